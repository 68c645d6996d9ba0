# SPDX-License-Identifier: Apache-2.0
"""What tuning finds, what it costs, and what becomes of it when it is killed.

    python -m benchmarks.tuning host MODEL [--trials 1000] [--target T]
    python -m benchmarks.tuning naive MODEL [--trials 64] [--space template|sketch] [--tasks 10]
    python -m benchmarks.tuning kill MODEL [--kills 20] [--trials 120]
    python -m benchmarks.tuning order RECORDS MODEL [--target T]

`host` tunes a whole model: wall time, the share of it that this process spends on searching and
learning, builds per second and core, and the model before and after, run in turns. `naive` hides
the default schedules and their models from the search, and compares what so many trials of each
task reach with the default, in turns: the best three race, as they do before a decision. Sketches
know no defaults, and keep their own estimates unless --blind hides them, too. `kill` ends a run
with SIGKILL at random moments, lets it go on, looks at the records, and holds what was found
against an uninterrupted run with the same seed. `order` prints where the order of the analytic
models and the measured one disagree most.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from treadle.build.compile import fused_model
from treadle.build.records import Record, Records, read_lines
from treadle.runtime import native
from treadle.target.host import usable_cores
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune.executor import LocalExecutor, WorkOptions
from treadle.tune.model import tune_model
from treadle.tune.options import TuneOptions
from treadle.tune.record_file import RecordFile
from treadle.tune.runner import MeasureOptions
from treadle.tune.space import Floats, SearchSpace
from treadle.tune.spaces import spaces_of
from treadle.tune.task import Task, extract_tasks
from treadle.tune.tuner import Tuner

_ROUNDS, _FINALISTS = 15, 3


def _options(trials: int, space: str = "template") -> TuneOptions:
    threads = native.num_threads()
    return TuneOptions(trials=trials, space=space, measure=MeasureOptions(threads=threads))


# ---- a whole model -------------------------------------------------------------------------------


def host(arguments: argparse.Namespace) -> None:
    """Tune a model and print what it costs and gains."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        start = time.monotonic()
        compiling = {"target": arguments.target} if arguments.target else {}
        result = tune_model(arguments.model, path, options=_options(arguments.trials), **compiling)
        wall = time.monotonic() - start
    tuner, both = result.tuner, result.comparison
    print(f"trials         {tuner.trials} of {len(tuner.states)} tasks")
    print(f"wall           {wall:.0f} s, {tuner.trials / wall:.2f} trials/s")
    print(f"host           {tuner.host_seconds / wall:.1%} of the wall time")
    per_core = tuner.trials / max(tuner.build_seconds, 1e-9)
    print(f"builds         {per_core:.1f} per second of a core")
    print(f"failed         {sum(sum(s.failures.values()) for s in tuner.states)}")
    print(f"reverted       {len(result.reverted)}")
    if both is None:
        print("model          as it was")
    else:
        print(f"model          {1 / both.share:.3f} times as fast as untuned")


# ---- without the defaults ------------------------------------------------------------------------


class Naive:
    """A space without its first candidates and estimates: what is known beforehand is hidden."""

    def __init__(self, space: SearchSpace[Any]) -> None:
        self._space = space
        self.kind = space.kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._space)

    def start(self) -> list[Any]:
        """Return nothing."""
        return []

    def estimate(self, candidates: Sequence[Any]) -> Floats:
        """Return that nothing is known."""
        return np.full(len(candidates), np.nan, np.float32)


def naive(arguments: argparse.Namespace) -> None:
    """Tune the largest tasks without their defaults; print what share of the default is reached."""
    tasks = extract_tasks(fused_model(arguments.model)).tasks[: arguments.tasks]
    options = replace(_options(arguments.trials, arguments.space), tries_default=False)
    shares = []
    for task in tasks:
        reached, seconds = _reached(task, options, blind=arguments.blind)
        shares.append(reached)
        print(
            f"{task.name:<60} {reached:6.2f} of the default's speed  {seconds:5.0f} s", flush=True
        )
    print(f"geometric mean {float(np.exp(np.mean(np.log(shares)))):.3f}, least {min(shares):.2f}")


def _reached(task: Task, options: TuneOptions, *, blind: bool) -> tuple[float, float]:
    """Return the speed of the best candidate over that of the default, run in turns."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = RecordFile(Path(folder) / "records.jsonl")

        def hidden(one: Task) -> list[Any]:
            spaces = spaces_of(one, options.space)
            return [Naive(s) if blind or s.kind == "template" else s for s in spaces]

        tuner = Tuner([task], file, options, spaces=hidden)
        tuner.run()
        file.close()
    ran = sorted((r for r in tuner.states[0].trials if r.seconds), key=lambda r: r.time)
    choices = [r.choice for r in ran[:_FINALISTS]]
    return race(task, choices, options.measure), time.monotonic() - start


def race(task: Task, choices: Sequence[Choice], measure: MeasureOptions) -> float:
    """Return how many times as fast as the default the best choice is, all run in turns.

    The figure is the median over the rounds: a single time on a busy machine says little.
    """
    with LocalExecutor().workers([task], WorkOptions(measure, builders=1)) as workers:
        old, *new = workers.race(0, (DEFAULTS, *choices), _ROUNDS)
    ratios = [np.asarray(old.seconds) / np.asarray(n.seconds) for n in new if n.seconds]
    return max((float(np.median(r)) for r in ratios), default=1e-3) if old.seconds else 1e-3


# ---- kills ---------------------------------------------------------------------------------------


def kill(arguments: argparse.Namespace) -> None:
    """Kill a run again and again; look at the records after each time."""
    draws = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        words = ["tune", str(arguments.model), "-o", str(path), "--trials", str(arguments.trials)]
        kept = 0
        for number in range(arguments.kills):
            process = subprocess.Popen(
                [sys.executable, "-m", "treadle", *words],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                process.wait(draws.uniform(2.0, 12.0))
                print(f"run {number} came to its end")
                break
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            found = len(Records.read(path)) if path.exists() else 0
            assert found >= kept, "a record is lost"
            kept = found
            print(f"kill {number + 1}: {found} records", flush=True)
        subprocess.run([sys.executable, "-m", "treadle", *words], check=True)
        trials = [r for r in read_lines(path) if r.is_trial]
        distinct = {(r.kernel, json.dumps(r.choice.to_json())) for r in trials}
        print(f"{len(trials)} trials, {len(trials) - len(distinct)} of them twice")
        whole = Path(folder) / "uninterrupted.jsonl"
        words[words.index(str(path))] = str(whole)
        subprocess.run([sys.executable, "-m", "treadle", *words], check=True)
        ratio = _ratio_of_finals(arguments.model, Records.read(path), Records.read(whole))
        print(f"the kernels of the killed run take {ratio:.3f} of the uninterrupted one's time")


def _ratio_of_finals(model: Path, first: Records, second: Records) -> float:
    """Return what all kernels of a run take by the decisions of `first`, by those of `second`.

    The two choices of a kernel run in turns; where they are the same one, it counts in both sums.
    """
    threads = native.num_threads()
    sums = np.zeros(2)
    for task in extract_tasks(fused_model(model)).tasks:
        found = [r.get(task.name, task.target) or DEFAULTS for r in (first, second)]
        how = WorkOptions(MeasureOptions(threads=threads), builders=1)
        with LocalExecutor().workers([task], how) as workers:
            both = workers.race(0, found[: 1 if found[0] == found[1] else 2], _ROUNDS)
        times = [float(np.median(m.seconds)) for m in both if m.seconds]
        assert len(times) == len(both), both
        sums += task.uses * np.asarray([times[0], times[-1]])
    return float(sums[0] / sums[1])


# ---- the models' order ---------------------------------------------------------------------------


def order(arguments: argparse.Namespace) -> None:
    """Print, by task, the pairs of candidates that the analytic model orders most wrongly."""
    records = Records.read(arguments.records)
    compiling = {"target": arguments.target} if arguments.target else {}
    for task in extract_tasks(fused_model(arguments.model, **compiling)).tasks:
        trials = [t for t in records.trials(task.name, task.target) if t.seconds]
        (space,) = spaces_of(task, "template")
        points = [(space.from_json(t.point), t) for t in trials if t.space == "template"]
        known = [(p, t) for p, t in points if p is not None]
        if len(known) < 4:
            continue
        estimates = space.estimate([p for p, _ in known])
        found = _worst(estimates, [t for _, t in known])
        if found is not None:
            believed, best, ratio = found
            print(f"{task.name}: {ratio:.2f} times as long")
            print(f"    the model likes  {believed.choice}")
            print(f"    faster is        {_changes(believed.choice, best.choice)}")


def _worst(estimates: Floats, trials: Sequence[Record]) -> tuple[Record, Record, float] | None:
    """Return the candidate that the model likes best, the fastest one, and the ratio of times."""
    believed = trials[int(np.argmin(estimates))]
    best = min(trials, key=lambda t: t.time)
    ratio = believed.time / best.time
    return (believed, best, ratio) if ratio > 1.02 and best.time < inf else None


def _changes(old: Choice, new: Choice) -> str:
    """Return the values of a configuration that differ from another's."""
    if not isinstance(old, Config) or not isinstance(new, Config):
        return str(new)
    return str(Config(tuple(pair for pair in new.values if old.get(pair[0]) != pair[1])))


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, run in (("host", host), ("naive", naive), ("kill", kill), ("order", order)):
        verb = verbs.add_parser(name)
        verb.set_defaults(run=run)
        if name == "order":
            verb.add_argument("records", type=Path)
        verb.add_argument("model", type=Path)
        if name != "order":
            default = {"host": 1000, "naive": 64, "kill": 120}[name]
            verb.add_argument("--trials", type=int, default=default)
        if name in ("host", "order"):
            verb.add_argument("--target", default="")
        if name == "naive":
            verb.add_argument("--space", default="template")
            verb.add_argument("--blind", action="store_true")
            verb.add_argument("--tasks", type=int, default=10)
        if name == "kill":
            verb.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    print(f"{usable_cores()} cores, {native.num_threads()} threads")
    arguments.run(arguments)


if __name__ == "__main__":
    main()
