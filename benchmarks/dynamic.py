# SPDX-License-Identifier: Apache-2.0
"""Times models of open sizes beside the same models compiled for the sizes of the run.

    python -m benchmarks.dynamic [--only encoder,conv] [--threads 1] [--seconds 0.5] [--json out]
                                 [--direct]

Both executables take turns in bursts of runs in one process. The ratio of the fastest bursts is
what open sizes cost, that of the medians stands beside it; outputs are compared, too. The table
ends with the worst ratio of every model. With `--direct` both are computed as the formulas have it,
without Winograd's filtering and Strassen's algorithm, so that kernels multiply as often.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx

import treadle
from benchmarks import machine
from benchmarks.dynamic_models import MODELS, DynamicModel, Sizes
from benchmarks.measure import largest_error
from treadle.build.executable import Executable
from treadle.settings import get

_BURST_SECONDS = 2e-3
_LEAST_BURSTS = 7
Arrays = dict[str, np.ndarray]
Timer = Callable[[int], float]
"""timer(count) -> seconds of one of that many runs."""


@dataclass(frozen=True)
class Row:
    """Milliseconds of a model at some sizes, open and known; `error` over the largest output."""

    model: str
    sizes: str
    dynamic_ms: float
    static_ms: float
    median_ratio: float
    error: float

    @property
    def ratio(self) -> float:
        """The fastest burst with open sizes over that with known ones."""
        return self.dynamic_ms / self.static_ms


def shapes_at(model: onnx.ModelProto, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's inputs where its named sizes have the given numbers."""
    return {
        i.name: tuple(
            sizes[d.dim_param] if d.dim_param else d.dim_value for d in i.type.tensor_type.shape.dim
        )
        for i in model.graph.input
    }


def inputs_of(model: onnx.ModelProto, sizes: Sizes, indices: int) -> Arrays:
    """Return random inputs: float32 values, int64 ones below `indices`."""
    random = np.random.default_rng(0)
    found: Arrays = {}
    shapes = shapes_at(model, sizes)
    for i in model.graph.input:
        if i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            found[i.name] = random.standard_normal(shapes[i.name], dtype=np.float32)
        else:
            found[i.name] = random.integers(0, indices, shapes[i.name])
    return found


def _timer(executable: Executable, inputs: Arrays) -> Timer:
    executor = executable.executor
    return lambda count: executor.benchmark(inputs, number=count, repeat=1).mean


def in_turns(timers: Mapping[str, Timer], seconds: float) -> dict[str, list[float]]:
    """Return seconds of a run in every burst of each timer; the timers take turns."""
    counts = {name: _runs_of_a_burst(timer) for name, timer in timers.items()}
    times: dict[str, list[float]] = {name: [] for name in timers}
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times[next(iter(times))]) < _LEAST_BURSTS:
        for name, timer in timers.items():
            times[name].append(timer(counts[name]))
    return times


def _runs_of_a_burst(timer: Timer) -> int:
    return max(1, min(1000, round(_BURST_SECONDS / max(min(timer(1), timer(1)), 1e-9))))


def compare(case: DynamicModel, threads: int, seconds: float, *, direct: bool = False) -> list[Row]:
    """Return a row for each of the model's sizes; `direct`: of kernels that multiply as often."""
    model = case.build()
    with treadle.settings(winograd=get().winograd and not direct):
        dynamic = treadle.compile(model, dynamic=True)
    rows = []
    for sizes in case.grid:
        with treadle.settings(winograd=get().winograd and not direct):
            static = treadle.compile(model, shapes=shapes_at(model, sizes))
        inputs = inputs_of(model, sizes, case.indices)
        outputs = []
        for executable in (dynamic, static):
            executable.executor.num_threads = threads
            outputs.append([np.array(o) for o in executable.run(inputs)])
        times = in_turns(
            {"dynamic": _timer(dynamic, inputs), "static": _timer(static, inputs)}, seconds
        )
        medians = [statistics.median(t) for t in times.values()]
        opened, known = (1e3 * min(t) for t in times.values())
        text = ", ".join(f"{name} {size}" for name, size in sizes.items())
        error = largest_error(*outputs)
        rows.append(Row(case.name, text, opened, known, medians[0] / medians[1], error))
    return rows


def _text(row: Row) -> str:
    return (
        f"{row.model:20} {row.sizes:24} {row.dynamic_ms:9.3f} {row.static_ms:9.3f} "
        f"{row.ratio:6.2f} {row.median_ratio:6.2f} {row.error:8.0e}"
    )


def worst_of(rows: Sequence[Row]) -> list[Row]:
    """Return the row of the largest ratio of every model, the largest first."""
    worst: dict[str, Row] = {}
    for row in rows:
        if row.model not in worst or row.ratio > worst[row.model].ratio:
            worst[row.model] = row
    return sorted(worst.values(), key=lambda row: -row.ratio)


def main() -> None:
    """Compare what the command line says and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dynamic")
    parser.add_argument("--only", default="", help="parts of names, with commas between")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each size")
    parser.add_argument("--direct", action="store_true", help="no Winograd, no Strassen")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    wanted = [w for w in arguments.only.split(",") if w]
    print(
        f"{'model':20} {'sizes':24} {'open ms':>9} {'known ms':>9} {'ratio':>6} {'median':>6} error"
    )
    rows: list[Row] = []
    for case in MODELS:
        if wanted and not any(w in case.name for w in wanted):
            continue
        for row in compare(case, arguments.threads, arguments.seconds, direct=arguments.direct):
            print(_text(row), flush=True)
            rows.append(row)
    print("\nworst of every model")
    for row in worst_of(rows):
        print(_text(row))
    if arguments.json is not None:
        record = {"machine": machine.describe(), "rows": [asdict(r) for r in rows]}
        arguments.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
