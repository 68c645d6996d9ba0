# SPDX-License-Identifier: Apache-2.0
"""`treadle profile`: where a model's time goes, kernel by kernel, against the machine's limits."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from treadle.build.loaded import Runnable
from treadle.cli.arguments import add_compile_options, add_inputs, add_model, add_threads, count
from treadle.cli.inputs import given_inputs
from treadle.cli.machine import cpu_text, treadle_version
from treadle.cli.models import open_model
from treadle.cli.roofline import Layer, Limits, layer_of, limits_of, sizes_of_inputs
from treadle.cli.table import print_table
from treadle.cli.text import console, count_text, print_row, printable
from treadle.errors import UsageError
from treadle.files import check_writable
from treadle.runtime import native
from treadle.runtime.array import NDArray
from treadle.settings import use

_SECONDS = 2.0
_MIN_RUNS, _MAX_RUNS = 8, 200
_TOP = 20
_SAVES = "*"
_HEADINGS = ("layer", "kernel", "ms", "share", "GFLOP/s", "GB/s", "bound by", "of roofline")
_SPARE = ("bound by", "GB/s", "of roofline", "GFLOP/s")
_TRACK = "kernels in order, each at its fastest; not which thread did what"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "an ONNX or TFLite file, or a .tar made by treadle compile")
    add_inputs(parser)
    parser.add_argument(
        "--top",
        type=_whole,
        default=_TOP,
        metavar="N",
        help=f"show the N slowest kernels (default: {_TOP}); 0: all, in the order they run",
    )
    parser.add_argument(
        "--json", action="store_true", help="print all kernels as JSON instead of the table"
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write a timeline that chrome://tracing and ui.perfetto.dev open: one track with the "
        "kernels in order, each at its fastest",
    )
    parser.add_argument(
        "--repeat",
        type=count,
        metavar="N",
        help=f"measured runs (default: what fits in {_SECONDS:.0f} seconds)",
    )
    add_threads(parser)
    add_compile_options(parser)


def _whole(text: str) -> int:
    return 0 if text == "0" else count(text)


def run(arguments: argparse.Namespace) -> int:
    """Open the model, time every instruction, print the table and write the timeline."""
    if arguments.trace is not None:
        check_writable(arguments.trace)
    threads = arguments.threads or native.num_threads()
    with use(num_threads=threads):
        model = open_model(arguments)
        inputs = given_inputs(arguments, model)
        layers, seconds = measure(model, inputs, arguments.repeat)
        limits = limits_of(model, threads)
    if arguments.json:
        facts = {"model": str(arguments.model), "treadle": treadle_version(), "cpu": cpu_text()}
        rows = figures(layers, limits, seconds)
        print(json.dumps({**facts, "threads": threads, **rows}, indent=2))
    else:
        print_layers(layers, limits, arguments.top)
        print_summary(layers, limits, seconds, threads)
    if arguments.trace is not None:
        write_trace(layers, arguments.trace)
    return 0


def measure(
    model: Runnable, inputs: dict[str, NDArray], repeat: int | None = None
) -> tuple[list[Layer], float]:
    """Return every instruction with its shortest time, and the shortest unprofiled whole run.

    The shortest time is what other work on the machine disturbs least.
    """
    instructions = model.instructions()
    sizes = sizes_of_inputs(model, inputs)
    outputs = model.run(inputs)
    whole: list[float] = []
    times: list[list[float]] = []
    end = time.perf_counter() + _SECONDS
    while not _is_enough(len(whole), repeat, end):
        start = time.perf_counter()
        model.executor.run(inputs, outputs)
        whole.append(time.perf_counter() - start)
        times.append([row.mean for row in model.profile(inputs, 1)])
    if len(instructions) != len(times[0]):
        raise UsageError(
            f"the plan has {len(instructions)} instructions but {len(times[0])} were timed",
            hint="compile the model again with this version of Treadle",
        )
    shortest = [min(column) for column in zip(*times, strict=True)]
    layers = [layer_of(row, sizes, t) for row, t in zip(instructions, shortest, strict=True)]
    return layers, min(whole)


def _is_enough(done: int, repeat: int | None, end: float) -> bool:
    if repeat is not None:
        return done >= repeat
    return done >= _MIN_RUNS and (done >= _MAX_RUNS or time.perf_counter() >= end)


def figures(layers: Sequence[Layer], limits: Limits, seconds: float) -> dict[str, object]:
    """Return what the table and its summary show as data.

    Rates are in 10^9 per second, shares of 1.
    """
    total = sum(layer.seconds for layer in layers)
    return {
        "run_ms": round(seconds * 1e3, 6),
        "kernels_ms": round(total * 1e3, 6),
        "machine": limits.to_json(),
        "kernels": [
            {
                "layer": layer.origin,
                "kernel": layer.kernel,
                "ms": round(layer.seconds * 1e3, 6),
                "share": round(layer.seconds / (total or 1.0), 6),
                **layer.rates(limits),
            }
            for layer in layers
        ],
    }


def print_layers(layers: Sequence[Layer], limits: Limits | None, top: int) -> None:
    """Print a row per instruction: all in order, or the `top` slowest.

    Without `limits` nothing is said of what the machine can do.
    """
    total = sum(layer.seconds for layer in layers) or 1.0
    shown = sorted(layers, key=lambda layer: -layer.seconds)[:top] if top else layers
    rows = [_cells(layer, limits, total) for layer in shown]
    out = console()
    print_table(out, _HEADINGS, rows, names=2, spare=_SPARE)
    if len(shown) < len(layers):
        rest = 1 - sum(layer.seconds for layer in shown) / total
        left = len(layers) - len(shown)
        out.print(f"… and {count_text(left, 'more instruction')}, {rest:.1%} (--top 0 shows all)")
    if any(layer.saves for layer in shown):
        out.print(f"{_SAVES} operations of the direct algorithm; this kernel multiplies less")


def _cells(layer: Layer, limits: Limits | None, total: float) -> list[str]:
    bound = layer.bound(limits) if limits is not None else ""
    mark = _SAVES if layer.saves else ""
    return [
        printable(layer.origin),
        printable(layer.kernel),
        f"{layer.seconds * 1e3:.4f}",
        f"{layer.seconds / total:.1%}",
        f"{layer.gflops:.1f}{mark}" if layer.flops else "",
        f"{layer.gigabytes:.1f}" if layer.bytes else "",
        bound,
        f"{layer.roofline(limits):.0%}{mark}" if limits is not None and bound else "",
    ]


def print_summary(layers: Sequence[Layer], limits: Limits, seconds: float, threads: int) -> None:
    """Print the whole run next to the sum of its kernels, and what the machine can do."""
    total = sum(layer.seconds for layer in layers)
    out = console()
    print_row(out, "kernels", f"{total * 1e3:.3f} ms in {count_text(len(layers), 'instruction')}")
    print_row(out, "run", f"{seconds * 1e3:.3f} ms{_rate(layers, seconds)}")
    noun = "thread" if threads == 1 else "threads"
    print_row(out, "machine", f"{limits.text()} on {threads} {noun}")
    print_row(out, "cpu", cpu_text())


def _rate(layers: Sequence[Layer], seconds: float) -> str:
    """Return the operations per second of a whole run, and by what algorithm they are counted."""
    flops = sum(layer.flops for layer in layers)
    how = "the fastest, not profiled"
    if not flops:
        return f" ({how})"
    if saved := sum(layer.flops for layer in layers if layer.saves):
        how += f"; {saved / flops:.0%} counted as the direct algorithm{_SAVES}"
    return f", {1e-9 * flops / seconds:.0f} GFLOP/s ({how})"


def write_trace(layers: Sequence[Layer], path: Path) -> None:
    """Write a run in the Trace Event format: one track, one event per instruction."""
    events: list[dict[str, object]] = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": _TRACK}}
    ]
    at = 0.0
    for layer in layers:
        arguments = {"kernel": layer.kernel, "flops": layer.flops, "bytes": layer.bytes}
        rates = {"GFLOP/s": round(layer.gflops, 1), "GB/s": round(layer.gigabytes, 1)}
        events.append(
            {
                "name": layer.origin or layer.kernel,
                "cat": "kernel",
                "ph": "X",
                "ts": round(at * 1e6, 3),
                "dur": round(layer.seconds * 1e6, 3),
                "pid": 1,
                "tid": 1,
                "args": {**arguments, **rates},
            }
        )
        at += layer.seconds
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, indent=1)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
