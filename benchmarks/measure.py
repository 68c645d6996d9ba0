# SPDX-License-Identifier: Apache-2.0
"""Measures one network in several engines at one number of threads; `compare` runs it as a child.

    python -m benchmarks.measure model.onnx --threads 1 --engines treadle,onnxruntime --seconds 5

Prints one JSON object: per engine the median time, the time to open the network, and the error;
where Treadle takes part, also the share of the FMA peak, which takes its turns with the engines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.engines import (
    ENGINES,
    NotAvailableError,
    Run,
    TreadleRun,
    open_peak,
    random_inputs,
)

RUNS_PER_ROUND = 3
"""Timed runs of one engine before the next has its turn; one untimed run comes before them."""

LEAST_TURNS = 5

_PEAK = "peak"


def measure(
    model: Path, engines: list[str], threads: int, seconds: float
) -> dict[str, dict[str, float]]:
    """Return the figures of each engine that can run the network.

    `of_peak` counts the operations of the plain algorithms, against multiply-adds of the widest
    vectors that Treadle compiles for, both in their fastest runs: what else the machine does
    lengthens some of each. It may exceed 1 where an algorithm saves operations.

    Errors are against onnxruntime where it takes part, else against the last engine.
    """
    inputs = random_inputs(model)
    runs: dict[str, Run] = {}
    opening: dict[str, float] = {}
    for name in engines:
        start = time.perf_counter()
        try:
            runs[name] = ENGINES[name](model, inputs, threads)
        except NotAvailableError:
            continue
        runs[name]()
        opening[name] = time.perf_counter() - start
    trusted = "onnxruntime" if "onnxruntime" in runs else [*runs][-1]
    reference = [np.array(output) for output in runs[trusted]()]
    peak = open_peak(threads)
    times = run_in_rounds({**runs, _PEAK: peak}, seconds)
    limit = peak.operations / min(times[_PEAK])
    work = next((run.operations() for run in runs.values() if isinstance(run, TreadleRun)), 0)
    figures: dict[str, dict[str, float]] = {}
    for name, run in runs.items():
        figures[name] = {
            "median_ms": 1e3 * statistics.median(times[name]),
            "fastest_ms": 1e3 * min(times[name]),
            "runs": len(times[name]),
            "open_seconds": opening[name],
            "max_relative_error": largest_error(run(), reference),
        }
        if work:
            figures[name] |= {
                "of_peak": work / min(times[name]) / limit,
                "peak_gflops": 1e-9 * limit,
            }
    return figures


def run_in_rounds(runs: dict[str, Run], seconds: float) -> dict[str, list[float]]:
    """Return the times of each engine's runs, in seconds; the engines take turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    start = time.perf_counter()
    turns = 0
    while turns < LEAST_TURNS or time.perf_counter() - start < seconds:
        for name, run in runs.items():
            run()
            for _ in range(RUNS_PER_ROUND):
                before = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - before)
        turns += 1
    return times


def largest_error(
    outputs: list[NDArray[np.generic]], reference: list[NDArray[np.generic]]
) -> float:
    """Return the largest error of all outputs over the largest output; infinite where NaN."""
    errors = [_relative_error(a, b) for a, b in zip(outputs, reference, strict=True)]
    return max(errors) if np.isfinite(errors).all() else float("inf")


def _relative_error(value: NDArray[np.generic], reference: NDArray[np.generic]) -> float:
    if value.shape != reference.shape:
        return float("inf")
    if not value.size:
        return 0.0
    exact = reference.astype(np.float64)
    distance = np.abs(value.astype(np.float64) - exact).max()
    return float(distance / max(float(np.abs(exact).max()), 1e-30))


def main() -> None:
    """Measure what the command line says and print it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure")
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engines", default="treadle,onnxruntime")
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    engines = arguments.engines.split(",")
    print(json.dumps(measure(arguments.model, engines, arguments.threads, arguments.seconds)))


if __name__ == "__main__":
    main()
