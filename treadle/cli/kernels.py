# SPDX-License-Identifier: Apache-2.0
"""`treadle bench --kernels`: each kernel of a model timed alone, their sum, and the model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from treadle.build.loaded import Runnable
from treadle.cli.machine import cpu_text
from treadle.cli.roofline import Layer, Limits, layer_of, sizes_of_inputs
from treadle.cli.table import print_table
from treadle.cli.text import console, count_text, print_row, printable
from treadle.errors import TreadleError
from treadle.runtime.array import NDArray
from treadle.runtime.module import LoadedKernel
from treadle.runtime.timing import BenchmarkResult

Json = dict[str, object]

_BURST_SECONDS = 0.002
"""Calls of one kernel in a row take so long at least, before the next is called."""
_MOST_CALLS = 10_000
_MODEL_RUNS = 3
_SECONDS, _MIN_ROUNDS, _MAX_ROUNDS = 3.0, 5, 99
_SAVES = "*"
_HEADINGS = (
    "layer", "kernel", "uses", "ms", "all ms", "share",
    "GFLOP/s", "GB/s", "bound by", "of roofline",
)  # fmt: skip
_SPARE = ("bound by", "GB/s", "of roofline", "GFLOP/s", "share")


@dataclass
class Task:
    """A kernel at one set of sizes: how often a run of the model calls it, and its times alone.

    `seconds` are those of a call, one figure per round. `problem` says why it is not timed.
    `inside` is true where it runs in a branch or loop: how often, only a run knows.
    """

    layer: Layer
    sizes: Mapping[str, int]
    uses: int = 0
    inside: bool = False
    problem: str = ""
    seconds: list[float] = field(default_factory=list)

    @property
    def fastest(self) -> Layer:
        """The layer with the shortest time, which other work on the machine disturbs least."""
        return replace(self.layer, seconds=min(self.seconds))

    @property
    def total(self) -> float:
        """The seconds of all its calls in one run."""
        return self.uses * min(self.seconds)


@dataclass
class Figures:
    """What was measured: tasks in the order a run meets them, and seconds of whole runs."""

    tasks: list[Task]
    runs: list[float]

    @property
    def timed(self) -> list[Task]:
        """The tasks that have figures."""
        return [task for task in self.tasks if task.seconds]

    @property
    def kernels(self) -> float:
        """The seconds of all kernel calls of one run, each timed alone."""
        return sum(task.total for task in self.timed)

    @property
    def run(self) -> float:
        """The shortest whole run in seconds."""
        return min(self.runs)


# ---- measuring -----------------------------------------------------------------------------------


def measure(
    model: Runnable,
    inputs: Mapping[str, NDArray],
    rounds: int | None = None,
    seconds: float | None = None,
    *,
    flush: bool = False,
) -> Figures:
    """Time every kernel of a model alone, and the model as a whole, in rounds of all of them.

    Without `rounds`, what fits in `seconds` (default: 3), and 5 at least. With `flush` no cache
    holds the arguments of a kernel when it is called; the model runs as it does.

    Raises: ArtifactError when an artifact does not say what its kernels take.
    """
    kernels = {kernel.name: kernel for kernel in model.loaded_kernels()}
    tasks = tasks_of(model, inputs, kernels)
    bursts = [(task, _burst(kernels[task.layer.kernel], task, flush)) for task in tasks]
    outputs = model.run(inputs)
    end = time.perf_counter() + (_SECONDS if seconds is None else seconds)
    found = Figures(tasks, [])
    while not _is_enough(len(found.runs), rounds, end):
        for task, burst in bursts:
            if not task.problem:
                task.seconds.append(burst())
        for _ in range(_MODEL_RUNS):
            start = time.perf_counter()
            model.executor.run(inputs, outputs)
            spent = time.perf_counter() - start
        found.runs.append(spent)
    return found


def _is_enough(done: int, rounds: int | None, end: float) -> bool:
    if rounds is not None:
        return done >= rounds
    return done >= _MIN_ROUNDS and (done >= _MAX_ROUNDS or time.perf_counter() >= end)


def tasks_of(
    model: Runnable, inputs: Mapping[str, NDArray], kernels: Mapping[str, LoadedKernel]
) -> list[Task]:
    """Return the distinct kernels of a run by name and sizes, in order, the bodies' last."""
    plan = model.describe()
    found: dict[tuple[str, tuple[int | None, ...]], Task] = {}
    for row, sizes, inside in _calls(plan, sizes_of_inputs(model, inputs)):
        kernel = kernels[str(row["kernel"])]
        layer = layer_of(row, sizes, 0.0)
        dims = tuple(_dims(row, sizes))
        key = (kernel.name, dims)
        if key not in found:
            found[key] = Task(layer, _named(kernel, dims), inside=inside)
            if None in dims:
                found[key].problem = "data decides its sizes"
        found[key].uses += not inside
    return list(found.values())


def _calls(
    plan: Mapping[str, object], sizes: Sequence[int | None]
) -> Iterator[tuple[Mapping[str, object], Sequence[int | None], bool]]:
    """Yield the rows of kernel calls with the sizes of their plan, and whether it is a body's."""
    for row in _rows(plan, "instructions"):
        if row.get("kernel"):
            yield row, sizes, False
    for body in _rows(plan, "plans"):
        unknown = [None] * len(_rows(body, "sizes"))
        for row, own, _ in _calls(body, unknown):
            yield row, own, True


def _rows(plan: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    rows = plan.get(name, [])
    assert isinstance(rows, list)
    return rows


def _dims(row: Mapping[str, object], sizes: Sequence[int | None]) -> list[int | None]:
    dims = row.get("dims") or []
    assert isinstance(dims, list)
    return [sizes[d["size"]] if isinstance(d, dict) else int(d) for d in dims]


def _named(kernel: LoadedKernel, dims: Sequence[int | None]) -> dict[str, int]:
    pairs = zip(kernel.signature.symbols, dims, strict=True)
    return {name: size for name, size in pairs if size is not None}


def _burst(kernel: LoadedKernel, task: Task, flush: bool) -> Callable[[], float]:
    """Return a function that calls a kernel some times in a row and returns the seconds of a call.

    A kernel that cannot be called alone says why in `task.problem`.
    """
    if task.problem:
        return float
    arguments = kernel.random_arguments(sizes=task.sizes)

    def timed(number: int) -> BenchmarkResult:
        evaluate = kernel.time_evaluator(number, flush=flush)
        return evaluate(*arguments, sizes=task.sizes)

    try:
        once = timed(1).min
    except TreadleError as error:
        task.problem = error.problem
        return float
    count = 1 if flush else int(min(max(_BURST_SECONDS / max(once, 1e-9), 1), _MOST_CALLS))
    return lambda: timed(count).min


# ---- figures -------------------------------------------------------------------------------------


def figures(found: Figures, limits: Limits) -> Json:
    """Return what the table shows as data: times in milliseconds, rates in 10^9 per second."""
    return {
        "run_ms": _ms(found.run),
        "kernels_ms": _ms(found.kernels),
        "rounds": len(found.runs),
        "machine": limits.to_json(),
        "kernels": [_row(task, limits, found.kernels) for task in found.tasks],
    }


def _row(task: Task, limits: Limits, total: float) -> Json:
    layer = task.layer
    row: Json = {
        "layer": layer.origin,
        "kernel": layer.kernel,
        "sizes": dict(task.sizes),
        "uses": None if task.inside else task.uses,
    }
    if not task.seconds:
        return {**row, "problem": task.problem}
    fastest = task.fastest
    return {
        **row,
        "ms": _ms(fastest.seconds),
        "median_ms": _ms(statistics.median(task.seconds)),
        "share": round(task.total / (total or 1.0), 6),
        **fastest.rates(limits),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 6)


def print_figures(found: Figures, limits: Limits, threads: int, *, flush: bool) -> None:
    """Print a row per kernel, the dearest first, and the sum of all next to the whole model."""
    out = console()
    timed = sorted(found.timed, key=lambda task: -task.total)
    print_table(
        out, _HEADINGS, [_cells(t, limits, found.kernels) for t in timed], names=2, spare=_SPARE
    )
    if any(task.layer.saves for task in timed):
        out.print(f"{_SAVES} operations of the direct algorithm; this kernel multiplies less")
    for task in found.tasks:
        if not task.seconds:
            out.print(f"not timed: {printable(task.layer.kernel)}: {task.problem}")
    calls = count_text(sum(task.uses for task in timed), "call")
    how = "no cache holds their arguments" if flush else "arguments stay where calls leave them"
    kinds = count_text(len(timed), "kernel")
    print_row(
        out, "kernels", f"{found.kernels * 1e3:.3f} ms in {calls} of {kinds}, each alone ({how})"
    )
    print_row(out, "network", f"{found.run * 1e3:.3f} ms, {_compared(found)}")
    noun = "thread" if threads == 1 else "threads"
    rounds = count_text(len(found.runs), "round")
    print_row(out, "threads", f"{threads} {noun}; the fastest of {rounds}, taking turns")
    print_row(out, "machine", limits.text())
    print_row(out, "cpu", cpu_text())


def _compared(found: Figures) -> str:
    if not found.kernels:
        return "which has no kernel that could be timed"
    return f"{found.run / found.kernels:.2f}× the sum of its kernels"


def _cells(task: Task, limits: Limits, total: float) -> list[str]:
    layer = task.fastest
    bound = layer.bound(limits)
    mark = _SAVES if layer.saves else ""
    sizes = ", ".join(f"{name}={size}" for name, size in task.sizes.items())
    return [
        printable(layer.origin),
        printable(layer.kernel + (f"({sizes})" if sizes else "")),
        "inside" if task.inside else str(task.uses),
        f"{layer.seconds * 1e3:.4f}",
        "" if task.inside else f"{task.total * 1e3:.4f}",
        "" if task.inside else f"{task.total / (total or 1.0):.1%}",
        f"{layer.gflops:.1f}{mark}" if layer.flops else "",
        f"{layer.gigabytes:.1f}" if layer.bytes else "",
        bound,
        f"{layer.roofline(limits):.0%}{mark}" if bound else "",
    ]
