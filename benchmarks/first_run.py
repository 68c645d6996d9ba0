# SPDX-License-Identifier: Apache-2.0
"""The program of one process of `benchmarks.memory`: opens a model, runs it, prints what that took.

    python -m benchmarks.first_run compile|load|onnxruntime MODEL INPUTS.npz RUNS

It imports nothing but NumPy besides the engine, so that what is measured is the engine's.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

Inputs = dict[str, Any]
Run = Callable[[Inputs], object]
Open = Callable[[str], Run]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one process took: seconds and bytes."""

    open_seconds: float
    first_seconds: float
    steady_seconds: float
    private_bytes: int
    shared_bytes: int
    grown_bytes: int
    """How much more than after the imports it had at its peak."""
    peak_bytes: int = 0


def status_bytes(process: int | str, *names: str) -> int:
    """Return the sum of fields of a process's status, such as VmRSS; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines)
    return sum(1024 * int(fields[name].split()[0]) for name in names if name in fields)


def _compile() -> Open:
    import treadle

    compile_ = treadle.compile
    return lambda file: compile_(file).run


def _load() -> Open:
    import treadle

    load = treadle.load
    return lambda file: load(file).run


def _onnxruntime() -> Open:
    import onnxruntime

    def open_(file: str) -> Run:
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(None, inputs)

    return open_


ENGINES: Mapping[str, Callable[[], Open]] = {
    "compile": _compile,
    "load": _load,
    "onnxruntime": _onnxruntime,
}
"""How each engine is imported; what opens a model is ready then."""


def measure(engine: str, file: str, inputs: Inputs, runs: int) -> Figures:
    """Open a model in this process and run it."""
    opens = ENGINES[engine]()
    before = status_bytes("self", "VmRSS")
    start = time.perf_counter()
    run = opens(file)
    opened = time.perf_counter() - start
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run(inputs)
        times.append(time.perf_counter() - start)
    return Figures(
        opened,
        times[0],
        statistics.median(times[2:]),
        status_bytes("self", "RssAnon"),
        status_bytes("self", "RssFile", "RssShmem"),
        status_bytes("self", "VmHWM") - before,
    )


def main(engine: str, file: str, inputs: str, runs: str) -> None:
    """Print the figures as JSON."""
    with np.load(inputs) as stored:
        given = dict(stored)
    print(json.dumps(asdict(measure(engine, file, given, int(runs)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
