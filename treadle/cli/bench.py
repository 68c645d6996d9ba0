# SPDX-License-Identifier: Apache-2.0
"""`treadle bench`: how fast a model runs here, side by side with other runtimes."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from treadle.build.load import is_artifact
from treadle.cli import kernels
from treadle.cli.arguments import (
    add_compile_options,
    add_inputs,
    add_model,
    add_threads,
    count,
    duration,
)
from treadle.cli.engines import PEERS, Engine, Inputs, open_treadle, run_in_rounds
from treadle.cli.inputs import given_inputs
from treadle.cli.machine import cpu_text, treadle_version
from treadle.cli.models import open_model
from treadle.cli.named import check_readable
from treadle.cli.roofline import limits_of
from treadle.cli.table import print_table
from treadle.cli.text import console, print_row
from treadle.errors import UsageError
from treadle.runtime import native
from treadle.runtime.gpu.executor import GpuExecutor
from treadle.settings import use

_HEADINGS = ("p50 ms", "p90 ms", "p99 ms", "min ms", "runs", "runs/s", "ready s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "an ONNX or TFLite file, or a .tar made by treadle compile")
    parser.add_argument(
        "--vs",
        type=_peers,
        default=(),
        metavar="NAMES",
        help=f"the runtimes to compare with: {', '.join(PEERS)}, with commas",
    )
    parser.add_argument(
        "--onnx",
        type=Path,
        metavar="FILE",
        help="the network for the other runtimes, where MODEL is a .tar",
    )
    add_inputs(parser)
    add_threads(parser)
    parser.add_argument(
        "--streams",
        type=count,
        default=1,
        metavar="N",
        help="run the model in N threads at once, which share the threads of --threads; runs/s is "
        "what all do together (default: 1)",
    )
    parser.add_argument(
        "--repeat",
        type=count,
        metavar="N",
        help="timed runs of each stream (default: as many as the time allows)",
    )
    parser.add_argument(
        "--time-limit",
        type=duration,
        metavar="SECONDS",
        help="time for so long in all (default: 3 seconds, and at least 15 runs)",
    )
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="time every kernel of the model alone, next to the machine's limits; --repeat is the "
        "number of rounds in which all take turns",
    )
    parser.add_argument(
        "--flush",
        action="store_true",
        help="with --kernels: drive the arguments out of the caches before every call",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    add_compile_options(parser)


def _peers(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    wrong = [name for name in names if name not in PEERS]
    if wrong:
        known = ", ".join(map(repr, PEERS))
        raise argparse.ArgumentTypeError(f"invalid choice: {wrong[0][:40]!r} (choose from {known})")
    return names


def run(arguments: argparse.Namespace) -> int:
    """Open the model in each runtime, run them alternately, print the figures."""
    if arguments.kernels:
        return _run_kernels(arguments)
    if arguments.flush:
        raise UsageError("--flush is for kernels alone", hint="give --kernels, too")
    network = _network(arguments)
    threads = arguments.threads or native.num_threads()
    with use(num_threads=threads):
        start = time.perf_counter()
        model = open_model(arguments)
        inputs = given_inputs(arguments, model)
        engines = [open_treadle(model, inputs, threads, arguments.streams)]
        engines[0].open_seconds = time.perf_counter() - start
        if network is not None:
            peers = (PEERS[name] for name in arguments.vs)
            engines += [peer(network, inputs, threads, arguments.streams) for peer in peers]
        results = [engine.run() for engine in engines]
        run_in_rounds(engines, arguments.repeat, arguments.time_limit)
    differences = [difference(results[0], other) for other in results[1:]]
    if arguments.json:
        facts = _facts(arguments.model, inputs, threads, arguments.streams)
        print(json.dumps({**facts, **figures(engines, differences)}, indent=2))
    else:
        print_figures(engines, differences, threads, arguments.streams)
        if isinstance(model.executor, GpuExecutor):
            _print_device(model.executor, inputs)
    return 0


def _print_device(executor: GpuExecutor, inputs: Inputs) -> None:
    """Print what a model takes on its device, where inputs are and outputs stay."""
    result = executor.benchmark_on_device(inputs, number=10, repeat=10)
    out = console()
    print_row(out, "device", f"{executor.device.name}, {executor.device.facts.name}")
    print_row(out, "there", f"p50 {_ms(result.median)} ms by its clock, without copies")


def _run_kernels(arguments: argparse.Namespace) -> int:
    """Time every kernel alone and print it next to what the machine can do."""
    if arguments.vs or arguments.onnx is not None or arguments.streams != 1:
        raise UsageError(
            "--kernels times the kernels of this model alone",
            hint="leave --vs, --onnx and --streams out",
        )
    threads = arguments.threads or native.num_threads()
    flush = arguments.flush
    with use(num_threads=threads):
        model = open_model(arguments)
        inputs = given_inputs(arguments, model)
        rounds, seconds = arguments.repeat, arguments.time_limit
        found = kernels.measure(model, inputs, rounds, seconds, flush=flush)
        limits = limits_of(model, threads)
    limits = limits.out_of_cache if flush else limits
    if arguments.json:
        facts = _facts(arguments.model, inputs, threads, 1)
        print(json.dumps({**facts, "flush": flush, **kernels.figures(found, limits)}, indent=2))
    else:
        kernels.print_figures(found, limits, threads, flush=flush)
    return 0


def _network(arguments: argparse.Namespace) -> Path | None:
    """Return the ONNX file for the other runtimes; None where there is no comparison."""
    check_readable(arguments.model)
    if not arguments.vs:
        if arguments.onnx is not None:
            raise UsageError(
                "--onnx is for a comparison", hint="name what to compare with: --vs onnxruntime"
            )
        return None
    if arguments.onnx is not None:
        check_readable(arguments.onnx)
        return Path(arguments.onnx)
    if is_artifact(arguments.model):
        raise UsageError(
            f"{arguments.vs[0]} cannot run {arguments.model}, which holds machine code",
            hint="give the network it was compiled from: --onnx model.onnx",
        )
    return Path(arguments.model)


# ---- figures -------------------------------------------------------------------------------------


class Difference:
    """How far the outputs of two engines are apart.

    Raises: UsageError when they are not outputs of the same network.
    """

    def __init__(self, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> None:
        if [a.shape for a in ours] != [b.shape for b in theirs]:
            raise UsageError(
                "the two runtimes' outputs have different shapes",
                hint="is --onnx the same network?",
            )
        pairs = list(zip(ours, theirs, strict=True))
        exact = [(a.astype(np.float64), b.astype(np.float64)) for a, b in pairs]
        with np.errstate(invalid="ignore"):  # of infinities; the result is NaN, which is kept
            self.largest = float(np.max([np.max(np.abs(a - b), initial=0.0) for a, b in exact]))
            norms = [(np.linalg.norm(a - b), np.linalg.norm(b) or 1.0) for a, b in exact]
            self.relative = float(np.max([distance / size for distance, size in norms]))
        self.same_top = all(a.size == 0 or np.argmax(a) == np.argmax(b) for a, b in pairs)

    def __str__(self) -> str:
        top = "same top-1" if self.same_top else "different top-1"
        return f"max|Δ| {self.largest:.1e} · relative {self.relative:.1e} · {top}"


def difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> Difference:
    """Return how far two lists of outputs are apart."""
    return Difference(ours, theirs)


def ratio(ours: Engine, other: Engine) -> float:
    """Return how many times faster ours is: by the median, or by throughput of several streams."""
    if len(ours.runs) > 1:
        return ours.throughput / other.throughput
    return other.median / ours.median


def _facts(model: Path, inputs: Inputs, threads: int, streams: int) -> dict[str, object]:
    return {
        "model": str(model),
        "inputs": {n: {"dtype": v.dtype, "shape": list(v.shape)} for n, v in inputs.items()},
        "treadle": treadle_version(),
        "cpu": cpu_text(),
        "threads": threads,
        "streams": streams,
    }


def figures(engines: Sequence[Engine], differences: Sequence[Difference]) -> dict[str, object]:
    """Return what the table shows as data; times of runs in milliseconds."""
    rows: list[dict[str, object]] = []
    for engine in engines:
        times = 1e3 * np.array(engine.times)
        latency = {f"p{p}": round(float(np.percentile(times, p)), 6) for p in (50, 90, 99)}
        latency |= {"min": round(float(times.min()), 6), "mean": round(float(times.mean()), 6)}
        rows.append(
            {
                "name": engine.name,
                "latency_ms": latency,
                "runs": len(times),
                "runs_per_second": round(engine.throughput, 3),
                "ready_seconds": round(engine.open_seconds, 3),
            }
        )
    for row, engine, apart in zip(rows[1:], engines[1:], differences, strict=True):
        row["treadle_is_faster_by"] = round(ratio(engines[0], engine), 4)
        row["largest_difference"] = apart.largest
        row["relative_difference"] = apart.relative
    return {"engines": rows}


def print_figures(
    engines: Sequence[Engine], differences: Sequence[Difference], threads: int, streams: int
) -> None:
    """Print the times of each engine, the ratios, and how far the outputs are apart."""
    out = console()
    print_table(out, ("", *_HEADINGS), [_cells(engine) for engine in engines])
    for engine, apart in zip(engines[1:], differences, strict=True):
        faster = ratio(engines[0], engine)
        word = "faster" if faster >= 1 else "slower"
        than = f" than {engine.name}" if len(engines) > 2 else ""
        text = f"{faster:.2f}× (treadle is {max(faster, 1 / faster):.2f}× {word}{than})"
        print_row(out, "ratio", text)
        print_row(out, "error", f"{apart}")
    noun = "thread" if threads == 1 else "threads"
    each = " each, taking turns" if len(engines) > 1 else ""
    many = f", {streams} streams at once" if streams > 1 else ""
    print_row(out, "threads", f"{threads} {noun}{each}{many}")
    print_row(out, "cpu", cpu_text())


def _cells(engine: Engine) -> list[str]:
    p50, p90, p99 = (_ms(float(np.percentile(engine.times, p))) for p in (50, 90, 99))
    rate = engine.throughput
    runs = (str(len(engine.times)), f"{rate:.0f}" if rate >= 100 else f"{rate:.2f}")
    return [engine.name, p50, p90, p99, _ms(min(engine.times)), *runs, f"{engine.open_seconds:.2f}"]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.{3 if seconds < 0.1 else 1}f}"
