# SPDX-License-Identifier: Apache-2.0
"""Times networks and operators on a GPU: Treadle beside torch, torch.compile and CuPy.

    python -m benchmarks.gpu [name ...] [--target cuda] [--peers eager,graph,compile,cupy]
                             [--seconds 120] [--json FILE]

Every engine gets the same weights and inputs, in float32; TF32 is off for all of them, as Treadle
has none. Times are the device's, with inputs and results in its memory: the median of rounds in
which the engines take turns. `graph` is eager captured into a CUDA graph, as Treadle's launches
are. `of peak` is Treadle's rate over that of the device's multiply-adds at full clock, `of
memory` its bytes a second over the memory's bandwidth. The error is the largest difference from
torch's eager results, over the largest magnitude in them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

import treadle
from benchmarks.gpu_cases import CASES, Case, case_of, cupy_of
from treadle.cli.roofline import layer_of
from treadle.runtime.gpu.executor import GpuExecutor
from treadle.target.parse import parse_target

PEERS = ("eager", "graph", "compile", "cupy")
_ROUNDS = 15
_ROUND_SECONDS = 0.02

Timer = Callable[[int], float]
"""Runs a case so many times; returns the seconds it took."""


@dataclass
class Row:
    """One case: the median milliseconds of each engine, or why there are none."""

    name: str
    milliseconds: dict[str, float] = field(default_factory=dict)
    error: float = 0.0
    flops: int = 0
    bytes: int = 0
    compile_seconds: dict[str, float] = field(default_factory=dict)
    on_cpu: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def best_peer(self) -> str | None:
        """The fastest engine beside Treadle."""
        peers = {n: t for n, t in self.milliseconds.items() if n != "treadle"}
        return min(peers, key=lambda n: peers[n]) if peers else None

    def ratio(self, peer: str) -> float:
        """Return how many times faster Treadle is."""
        return self.milliseconds[peer] / self.milliseconds["treadle"]


# ---- engines -------------------------------------------------------------------------------------


def treadle_timer(case: Case, target: str, row: Row) -> tuple[Timer, list[np.ndarray]]:
    """Return a case compiled by Treadle, and its results."""
    start = time.perf_counter()
    made = treadle.compile(case.module, case.inputs, target=target)
    executor = made.executor
    assert isinstance(executor, GpuExecutor), made.notes
    inputs = [x.numpy() for x in case.inputs]
    results = [o.numpy() for o in executor.run(inputs)]
    row.compile_seconds["treadle"] = time.perf_counter() - start
    row.on_cpu = list(executor.places().values()).count("cpu")
    layers = [layer_of(i, [], 0.0) for i in made.instructions()]
    row.flops = sum(layer.flops for layer in layers)
    row.bytes = sum(layer.bytes for layer in layers)
    return executor.device_timer(inputs), results


def _cuda_timer(run: Callable[[], object]) -> Timer:
    def timed(number: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(number):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    return timed


def _tensors(result: Any) -> list[np.ndarray]:
    found = [result] if isinstance(result, Tensor) else list(result)
    return [t.cpu().numpy() for t in found]


def eager_timer(case: Case) -> tuple[Timer, list[np.ndarray]]:
    """Return a case as torch runs it, kernel by kernel."""
    module, inputs = case.module.cuda(), [x.cuda() for x in case.inputs]
    return _cuda_timer(lambda: module(*inputs)), _tensors(module(*inputs))


def graph_timer(case: Case) -> tuple[Timer, list[np.ndarray]]:
    """Return a case as torch runs it, captured into a CUDA graph."""
    module, inputs = case.module.cuda(), [x.cuda() for x in case.inputs]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = module(*inputs)
    graph.replay()
    torch.cuda.synchronize()
    return _cuda_timer(graph.replay), _tensors(result)


def compile_timer(case: Case) -> tuple[Timer, list[np.ndarray]]:
    """Return a case as torch.compile makes it, with CUDA graphs."""
    torch._dynamo.reset()
    module = torch.compile(case.module.cuda(), mode="reduce-overhead")
    inputs = [x.cuda() for x in case.inputs]
    for _ in range(3):
        module(*inputs)
    result = _tensors(module(*inputs))
    return _cuda_timer(lambda: module(*inputs)), result


def cupy_timer(case: Case) -> tuple[Timer, list[np.ndarray]]:
    """Return a case as CuPy runs it. Raises: LookupError for one that is no single function."""
    import cupy

    function = cupy_of(case.name, cupy)
    if function is None:
        raise LookupError("no single function")
    inputs = [cupy.asarray(x.numpy()) for x in case.inputs]

    def timed(number: int) -> float:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        for _ in range(number):
            function(*inputs)
        end.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3

    return timed, [cupy.asnumpy(function(*inputs))]


_TIMERS: dict[str, Callable[[Case], tuple[Timer, list[np.ndarray]]]] = {
    "eager": eager_timer,
    "graph": graph_timer,
    "compile": compile_timer,
    "cupy": cupy_timer,
}


# ---- measuring -----------------------------------------------------------------------------------


def measured(name: str, target: str, peers: Sequence[str]) -> Row:
    """Return the figures of a case."""
    row, case = Row(name), case_of(name)
    timers: dict[str, Timer] = {}
    with torch.inference_mode():
        timers["treadle"], ours = treadle_timer(case, target, row)
        expected = _tensors(case.module(*case.inputs)) if not peers else None
        for peer in peers:
            start = time.perf_counter()
            try:
                timers[peer], results = _TIMERS[peer](case)
            except LookupError:
                continue
            except Exception as error:  # whatever keeps a peer from running is its result
                row.failures[peer] = f"{type(error).__name__}: {str(error)[:200]}"
                continue
            row.compile_seconds[peer] = time.perf_counter() - start
            expected = results if expected is None else expected
        assert expected is not None
        row.error = max(map(_distance, ours, expected))
        times = in_rounds(timers)
    row.milliseconds = {n: 1e3 * statistics.median(t) for n, t in times.items()}
    return row


def _distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    scale = float(np.abs(theirs).max()) or 1.0
    return float(np.abs(ours.astype(np.float64) - theirs).max()) / scale


def in_rounds(timers: dict[str, Timer]) -> dict[str, list[float]]:
    """Return the seconds of a run in each round, the engines taking turns."""
    numbers = {}
    for name, timer in timers.items():
        timer(2)
        once = timer(3) / 3
        numbers[name] = max(3, min(200, int(_ROUND_SECONDS / max(once, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(_ROUNDS):
        for name, timer in timers.items():
            times[name].append(timer(numbers[name]) / numbers[name])
    return times


# ---- the table -----------------------------------------------------------------------------------


def table_of(rows: Sequence[Row], target: str, peers: Sequence[str]) -> Table:
    """Return what the rows say as a table."""
    gpu = parse_target(target).gpu
    made = Table(box=box.SIMPLE)
    columns = ("case", "treadle ms", *(f"{p} ms" for p in peers), "vs best", "error")
    for column in (*columns, "of peak", "of memory", "on cpu"):
        made.add_column(column, justify="left" if column == "case" else "right")
    for row in rows:
        cells = [row.name, *(_ms(row, name) for name in ("treadle", *peers))]
        best = row.best_peer
        cells.append(f"{row.ratio(best):.2f}× {best}" if best else "")
        cells.append(f"{row.error:.0e}")
        seconds = row.milliseconds["treadle"] / 1e3
        flops = 0.0 if gpu is None else row.flops / seconds / gpu.flops
        moved = 0.0 if gpu is None else row.bytes / seconds / gpu.memory_bytes
        made.add_row(*cells, f"{flops:.0%}", f"{moved:.0%}", str(row.on_cpu or ""))
    return made


def _ms(row: Row, name: str) -> str:
    if name in row.milliseconds:
        return f"{row.milliseconds[name]:.4f}"
    return "failed" if name in row.failures else ""


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line names and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(CASES)}")
    parser.add_argument("--target", default="cuda", help="what Treadle compiles for")
    parser.add_argument("--peers", default="eager,graph", help=f"of: {', '.join(PEERS)}; or none")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no case later than this")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    arguments = parser.parse_args(words)
    peers = [p for p in arguments.peers.split(",") if p in PEERS]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    start, rows = time.perf_counter(), []
    for name in arguments.names or CASES:
        if time.perf_counter() - start > arguments.seconds:
            break
        rows.append(measured(name, arguments.target, peers))
        print(json.dumps(asdict(rows[-1])), flush=True)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    console = Console(width=160)
    console.print(table_of(rows, arguments.target, peers))
    device = treadle.Device(arguments.target.split()[0])
    console.print(f"{device}: TF32 is off for all engines; torch {torch.__version__}")


if __name__ == "__main__":
    main()
