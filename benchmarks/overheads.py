# SPDX-License-Identifier: Apache-2.0
"""What the runtime and a device cost next to the work itself, against the aims of the project.

Run: python -m benchmarks.overheads [--json FILE]

- `fork-join`: a parallel loop after another one until all threads are at work in it, in C;
- `kernel`: what one more kernel of 16 numbers adds to a run, the kernel's own time included;
- `load`: an artifact with 100 MB of weights, its file in the page cache, until it can run
  (`import treadle` comes before);
- `round trip`, `upload`: a session with the server in C on loopback, with a key:
  see benchmarks.rpc.

All are medians; the upload is a share of a plain copy's speed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import treadle
from benchmarks import rpc, threads
from benchmarks.machine import describe
from treadle.rpc.keys import make_key
from treadle.runtime.native_package import SERVER, build_package, find_toolchain

_ROWS = 5120
"""Rows and columns of a weight of 105 MB."""
_SHORT, _LONG = 100, 2100
_RUNS = 200
_LOADS = 30
_UPLOAD = 256 << 20


@dataclass(frozen=True)
class Figure:
    """What was measured, and the aim: at most that, or at least that."""

    name: str
    unit: str
    value: float
    aim: float
    is_most: bool = True

    @property
    def is_met(self) -> bool:
        return self.value <= self.aim if self.is_most else self.value >= self.aim


def fork_join() -> Figure:
    """Measure a parallel loop of all threads."""
    found = threads.measure()["all_at_work_back_to_back"] / 1e3
    return Figure("fork-join", "us", found, 3.0)


def chain(count: int) -> onnx.ModelProto:
    """Return a network of `count` operators, one after the other, on 16 numbers."""
    names = [f"v{i}" for i in range(count + 1)]
    nodes = [
        helper.make_node(("Relu", "Neg")[i % 2], names[i : i + 1], names[i + 1 : i + 2])
        for i in range(count)
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [16]) for n in names]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _seconds_of_run(count: int) -> float:
    executable = treadle.compile(chain(count), opt_level=0)
    x = np.ones(16, np.float32)
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        executable.run([x])
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def kernel() -> Figure:
    """Measure what kernels add to a run, by two networks of different lengths."""
    added = (_seconds_of_run(_LONG) - _seconds_of_run(_SHORT)) / (_LONG - _SHORT)
    return Figure("kernel", "us", added * 1e6, 1.0)


def load(folder: Path) -> Figure:
    """Measure how long an artifact with large weights takes to load."""
    weight = np.random.default_rng(0).standard_normal((_ROWS, _ROWS), np.float32)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, _ROWS]) for n in "xy"]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [node], "large", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")]
    )
    opset = [helper.make_opsetid("", 17)]
    path = folder / "large.tar"
    treadle.compile(helper.make_model(graph, opset_imports=opset, ir_version=8)).save(path)
    times = []
    for _ in range(_LOADS):
        start = time.perf_counter()
        treadle.load(path)
        times.append(time.perf_counter() - start)
    return Figure("load", "ms", statistics.median(times) * 1e3, 50.0)


def device(folder: Path) -> list[Figure]:
    """Measure calls of a device and uploads to it."""
    build_package(folder / "package", find_toolchain(None), with_server=True)
    make_key(folder / "key")
    found = rpc.measure(folder, folder / "key", _UPLOAD, folder / "package" / SERVER)
    return [
        Figure("round trip", "us", found["round_trip_us"], 200.0),
        Figure("upload", "of a copy's speed", found["share_of_copy"], 0.8, is_most=False),
    ]


def show(figures: list[Figure]) -> None:
    """Print the figures beside their aims."""
    table = Table("what", "measured", "aim", "")
    for figure in figures:
        aim = f"{'<=' if figure.is_most else '>='} {figure.aim:g}"
        measured = f"{figure.value:.3g} {figure.unit}"
        table.add_row(figure.name, measured, aim, "" if figure.is_met else "missed")
    Console().print(table)


def main() -> None:
    """Measure everything, print it, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = [fork_join(), kernel(), load(Path(name)), *device(Path(name))]
    show(figures)
    if arguments.json is not None:
        rows = {figure.name: figure.value for figure in figures}
        arguments.json.write_text(json.dumps({**describe(), **rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
