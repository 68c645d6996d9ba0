# SPDX-License-Identifier: Apache-2.0
"""Where changing one choice of a default schedule makes its kernel faster on this machine.

    python -m benchmarks.tuning_knobs MODEL [--tasks 40] [--rounds 61] [--cold] [--json FILE]

Each kernel's default runs in turns with what its own model puts next: every knob at its nearest
values, some pairs of them. Times of a busy machine cannot be compared from run to run; the ratio
within a round can. Printed are, by kernel, its time in a run of the model, the part of the peak
that the default reaches, the fastest candidate and how much longer the model took it for; then, by
knob, what always taking the fastest of its values would gain in the whole model.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from treadle.build.compile import fused_model
from treadle.cli.measure import Stopwatch
from treadle.runtime import native
from treadle.target.base import Target
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune.executor import LocalExecutor, WorkOptions
from treadle.tune.runner import MeasureOptions
from treadle.tune.spaces import spaces_of
from treadle.tune.task import Task, extract_tasks

_MIN_REPEAT_MS = 0.3
"""Short figures and many rounds: most figures then fit between what else the cores do."""


@dataclass(frozen=True)
class Raced:
    """A kernel's default, and candidates with their share of its time, the fastest first."""

    task: Task
    default: Choice
    seconds: float
    shares: list[tuple[float, float, Choice]]
    """The share of the default's time, the estimate over the default's, the candidate."""

    @property
    def gain(self) -> float:
        """How many seconds of a run of the model the fastest candidate saves."""
        share = min([1.0, *(s for s, _, _ in self.shares)])
        return self.task.uses * self.seconds * (1 - share)


def raced(task: Task, rounds: int, *, cold: bool) -> Raced | None:
    """Run a kernel's first candidates in turns with its default; None where there is no choice."""
    (space,) = spaces_of(task, "template")
    points = space.start()
    if len(points) < 2:
        return None
    estimates = space.estimate(points)
    choices = [space.choice(p) for p in points]
    known = [(c, float(e / estimates[0])) for c, e in zip(choices, estimates, strict=True)
             if c is not None][1:]  # fmt: skip
    measure = MeasureOptions(
        threads=native.num_threads(), min_repeat_ms=_MIN_REPEAT_MS, cold_weights=cold
    )
    with LocalExecutor().workers([task], WorkOptions(measure, builders=1)) as workers:
        default, *others = workers.race(0, (DEFAULTS, *(c for c, _ in known)), rounds)
    if not default.seconds:
        return None
    first = np.asarray(default.seconds)
    shares = [
        (float(np.median(np.asarray(o.seconds) / first)), excess, choice)
        for o, (choice, excess) in zip(others, known, strict=True)
        if o.seconds
    ]
    assert choices[0] is not None
    return Raced(task, choices[0], float(np.median(first)), sorted(shares, key=lambda row: row[0]))


def _changes(old: Choice, new: Choice) -> Config:
    """Return the values of a configuration that differ from another's."""
    assert isinstance(old, Config)
    assert isinstance(new, Config)
    return Config(tuple(pair for pair in new.values if old.get(pair[0]) != pair[1]))


def main() -> None:
    """Race the kernels of a model and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning_knobs")
    parser.add_argument("model", type=Path)
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--cold", action="store_true", help="weights come from memory")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    tasks = extract_tasks(fused_model(arguments.model, target=arguments.target)).tasks
    peak = _peak(tasks[0].target)
    found: list[Raced] = []
    for task in tasks[: arguments.tasks]:
        if (one := raced(task, arguments.rounds, cold=arguments.cold)) is not None:
            found.append(one)
            _print(one, peak)
            if arguments.json is not None:
                _append(arguments.json, one)
    _summary(found)


def _peak(target: Target) -> float:
    """Return the float32 operations a second of the threads: the units' by the measured clock."""
    units = target.machine.fma_units * target.machine.fma_bits // 32
    return 2 * units * native.num_threads() * Stopwatch(target).hertz()


def _print(one: Raced, peak: float) -> None:
    task = one.task
    print(f"{one.seconds * task.uses * 1e3:8.3f} ms  {task.flops / peak / one.seconds:5.0%} of the "
          f"peak  {task.name}", flush=True)  # fmt: skip
    for share, excess, choice in one.shares[:2]:
        if share < 0.98:
            print(f"      {share:.3f} of the time, taken for {excess:.2f}: "
                  f"{_changes(one.default, choice)}")  # fmt: skip


def _append(path: Path, one: Raced) -> None:
    rows = [(s, e, str(_changes(one.default, c))) for s, e, c in one.shares]
    line = {"task": one.task.name, "uses": one.task.uses, "seconds": one.seconds, "rows": rows}
    with path.open("a") as file:
        file.write(json.dumps({**line, "default": str(one.default)}) + "\n")


def _summary(found: list[Raced]) -> None:
    total = sum(r.task.uses * r.seconds for r in found)
    print(f"all kernels {total * 1e3:.2f} ms; the fastest of each saves "
          f"{sum(r.gain for r in found) / total:.1%}")  # fmt: skip
    gains: dict[str, float] = defaultdict(float)
    for one in found:
        best: dict[str, float] = {}
        for share, _, choice in one.shares:
            name = "+".join(n for n, _ in _changes(one.default, choice).values)
            best[name] = min(best.get(name, 1.0), share)
        for name, share in best.items():
            gains[name] += one.task.uses * one.seconds * (1 - share)
    for name, gain in sorted(gains.items(), key=lambda pair: -pair[1])[:12]:
        print(f"  {name:40} {gain / total:6.1%}")


if __name__ == "__main__":
    main()
