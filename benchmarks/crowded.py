# SPDX-License-Identifier: Apache-2.0
"""How much slower a network gets beside busy processes, in Treadle and in onnxruntime.

    python -m benchmarks.crowded [--busy 4] [--rounds 5] [--json PATH] model.onnx ...

Both runtimes use every CPU and take turns, alone and in the crowd, so that whatever else the
machine does meets all four cases. A collapse shows as a slowdown far beyond the processes per CPU:
a parallel loop waits for its slowest thread, and a thread that spins takes the time another needs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from treadle.build.compile import compile_model
from treadle.cli.engines import open_onnxruntime
from treadle.cli.inputs import filled_inputs
from treadle.runtime import native

_SECONDS = 1.5
_LEAST_RUNS = 3
Times = dict[tuple[str, str], list[float]]


@contextmanager
def crowd(count: int) -> Iterator[None]:
    """Keep `count` processes busy while the block runs."""
    spin = "print(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", spin]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # it spins from now on
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def measure(model: Path, busy: int, rounds: int) -> dict[str, float]:
    """Return the median milliseconds of both runtimes, alone and in the crowd, and the ratios."""
    compiled = compile_model(model)
    inputs = filled_inputs(compiled, "random")
    ready = compiled.executor.run(inputs)
    given = {name: np.asarray(value) for name, value in inputs.items()}
    engines: Mapping[str, Callable[[], object]] = {
        "treadle": lambda: compiled.executor.run(given, ready),
        "onnxruntime": open_onnxruntime(model, inputs, native.num_threads()).run,
    }
    times: Times = {(name, place): [] for name in engines for place in ("alone", "crowd")}
    for _ in range(rounds):
        for name, run in engines.items():
            times[name, "alone"] += _timed(run)
            with crowd(busy):
                times[name, "crowd"] += _timed(run)
    return _summary({key: 1e3 * statistics.median(column) for key, column in times.items()})


def _timed(run: Callable[[], object]) -> list[float]:
    run()
    end = time.perf_counter() + _SECONDS
    times: list[float] = []
    while len(times) < _LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def _summary(medians: Mapping[tuple[str, str], float]) -> dict[str, float]:
    found = {f"{name}_{place}_ms": value for (name, place), value in medians.items()}
    for name in ("treadle", "onnxruntime"):
        found[f"{name}_slowdown"] = medians[name, "crowd"] / medians[name, "alone"]
    return found


def main() -> int:
    """Print a row per network, write JSON if asked to; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowded")
    parser.add_argument("models", nargs="+", type=Path, metavar="model.onnx")
    parser.add_argument("--busy", type=int, default=4, metavar="N", help="busy processes")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each runtime")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    print(f"{native.num_threads()} threads beside {options.busy} busy processes")
    print(f"{'':20}{'treadle ms':>22}{'onnxruntime ms':>22}{'slowdown':>18}")
    results = {}
    for model in options.models:
        row = results[model.stem] = measure(model, options.busy, options.rounds)
        cells = [
            f"{row[f'{name}_alone_ms']:9.2f} → {row[f'{name}_crowd_ms']:8.2f}"
            for name in ("treadle", "onnxruntime")
        ]
        ratio = f"{row['treadle_slowdown']:.2f} : {row['onnxruntime_slowdown']:.2f}"
        print(f"{model.stem:20}{cells[0]:>22}{cells[1]:>22}{ratio:>18}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
