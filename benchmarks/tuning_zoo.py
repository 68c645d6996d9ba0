# SPDX-License-Identifier: Apache-2.0
"""What a small budget of tuning gains, network by network.

    python -m benchmarks.tuning_zoo FOLDER [--only NAME,...] [--trials 120] [--target T]
                                    [--keep RECORDS] [--minutes 2] [--stage all|tune|compare]

Each network of the folder (`benchmarks.networks` writes one) is tuned in so many trials, methods
included, from the defaults; its records stay in the folder RECORDS, and a network that is done is
not tuned again: so it may run in pieces, of which none begins a network after --minutes. Then the
network is compiled with its records and without, and both run in turns. Printed are the medians and
the median of the ratio within a round; the tuned network is called faster, or slower, where it is
so in more rounds than chance gives (a test of signs, one in twenty).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import treadle
from treadle.build.executable import Executable
from treadle.files import replacing
from treadle.runtime import native
from treadle.runtime.array import array
from treadle.runtime.fill import filled
from treadle.tune.model import tune_model
from treadle.tune.options import TuneOptions
from treadle.tune.runner import MeasureOptions
from treadle.tune.settle import compared

_SECONDS = 12.0
"""How long a network runs with and without its records."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning a network has done: seconds, trials, kernels and calls that are decided for, and
    kernels that were faster alone only."""

    seconds: float
    trials: int
    kernels: int
    methods: int
    reverted: int


def tune(path: Path, records: Path, arguments: argparse.Namespace) -> Tuned:
    """Tune a network into a file of records."""
    options = TuneOptions(
        trials=arguments.trials, measure=MeasureOptions(threads=native.num_threads())
    )
    start = time.monotonic()
    result = tune_model(path, records, options=options, target=arguments.target)
    chosen = [s for s in result.tuner.states if s.decided and s.decided.choice.to_json()]
    changed = () if result.methods is None else result.methods.changed
    reverted = len(result.reverted)
    return Tuned(
        time.monotonic() - start, result.trials, len(chosen) - reverted, len(changed), reverted
    )


def compare(path: Path, records: Path, target: str) -> tuple[str, float]:
    """Run a network with and without its records in turns; return a line, and the ratio."""
    before = treadle.compile(path, target=target)
    after = treadle.compile(path, target=target, records=records)
    found = compared(before, after, inputs_of(before), [], seconds=_SECONDS)
    word = "the same"
    if found.is_sure:
        word = "faster" if found.share < 1 else "slower"
    times = f"{found.before * 1e3:9.3f} {found.after * 1e3:9.3f}"
    return f"{times} {1 / found.share:7.3f}  {word}", 1 / found.share


def inputs_of(model: Executable) -> dict[str, treadle.NDArray]:
    """Return random inputs of a network."""
    random = np.random.default_rng(0)
    return {
        name: array(filled("random", dtype, shape, random)) for name, dtype, shape in model.inputs
    }


def main() -> None:
    """Tune and compare as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning_zoo")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--trials", type=int, default=120)
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--stage", choices=("all", "tune", "compare"), default="all")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    paths = [p for p in sorted(arguments.folder.glob("*.onnx")) if not only or p.stem in only]
    with ExitStack() as stack:
        keep = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keep.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + 60 * arguments.minutes
        if arguments.stage != "compare":
            tune_all(paths, keep, arguments, end)
        if arguments.stage != "tune":
            compare_all(paths, keep, arguments, end)


def tune_all(paths: list[Path], keep: Path, arguments: argparse.Namespace, end: float) -> None:
    """Tune the networks that are not done."""
    for path in paths:
        done, records = keep / f"{path.stem}.json", keep / f"{path.stem}.jsonl"
        if done.exists() or time.monotonic() >= end:
            continue
        found = tune(path, records, arguments)
        with replacing(done) as file:
            file.write(json.dumps(asdict(found)).encode())
        print(f"{path.stem:<22} {found}", flush=True)


def compare_all(paths: list[Path], keep: Path, arguments: argparse.Namespace, end: float) -> None:
    """Compare the networks that are tuned; print a row for each."""
    print(f"{'':<22}  before    after     times as fast  trials seconds kernels methods")
    ratios = []
    for path in paths:
        done, records = keep / f"{path.stem}.json", keep / f"{path.stem}.jsonl"
        if not done.exists() or time.monotonic() >= end:
            continue
        tuned = Tuned(**json.loads(done.read_text()))
        line, ratio = compare(path, records, arguments.target)
        ratios.append(ratio)
        more = f"{tuned.trials:5} {tuned.seconds:6.0f} {tuned.kernels:5} {tuned.methods:5}"
        print(f"{path.stem:<22} {line:<40} {more}", flush=True)
    if ratios:
        mean = float(np.exp(np.mean(np.log(ratios))))
        print(f"{len(ratios)} networks, geometric mean {mean:.3f}, the least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
