# SPDX-License-Identifier: Apache-2.0
"""`treadle bench`: how fast a model runs here, side by side with another runtime."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from treadle.build.executable import Runnable
from treadle.build.load import is_artifact
from treadle.cli.arguments import add_compile_options, add_model, add_threads, count
from treadle.cli.inputs import filled_inputs
from treadle.cli.machine import cpu_text
from treadle.cli.models import check_readable, given_shapes, open_model
from treadle.cli.text import console, print_row
from treadle.errors import ToolchainError, UsageError
from treadle.runtime import native
from treadle.runtime.array import NDArray
from treadle.settings import use

HELP = "time a model, side by side with another runtime"

RUNS_PER_TURN = 3
"""Timed runs of one engine before the next has its turn; one untimed run comes before them."""

_SECONDS = 3.0
_MIN_RUNS, _MAX_RUNS = 15, 999

Run = Callable[[], list[np.ndarray]]


@dataclass
class Engine:
    """One runtime with the model open, and its times in seconds."""

    name: str
    run: Run
    open_seconds: float
    times: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median in seconds."""
        return statistics.median(self.times)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "an ONNX file, or a .tar made by treadle compile")
    parser.add_argument("--vs", choices=("onnxruntime",), help="the runtime to compare with")
    parser.add_argument(
        "--onnx",
        type=Path,
        metavar="FILE",
        help="the network for the other runtime, where MODEL is a .tar",
    )
    add_threads(parser)
    parser.add_argument(
        "--repeat",
        type=count,
        metavar="N",
        help=f"timed runs of each (default: what fits in {_SECONDS:.0f} seconds)",
    )
    add_compile_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Open the model in each runtime, let them take turns, print the figures."""
    network = _network(arguments)
    threads = arguments.threads or native.num_threads()
    with use(num_threads=threads):
        start = time.perf_counter()
        model = open_model(arguments)
        inputs = filled_inputs(model, "random", given_shapes(arguments))
        model.run(inputs)
        engines = [_treadle(model, inputs, time.perf_counter() - start)]
        if network is not None:
            engines.append(open_onnxruntime(network, inputs, threads))
        results = [engine.run() for engine in engines]
        take_turns(engines, arguments.repeat)
    print_figures(engines, results, threads)
    return 0


def _network(arguments: argparse.Namespace) -> Path | None:
    """Return the ONNX file for the other runtime; None where there is no comparison."""
    check_readable(arguments.model)
    if arguments.vs is None:
        return None
    if arguments.onnx is not None:
        check_readable(arguments.onnx)
        return Path(arguments.onnx)
    if is_artifact(arguments.model):
        raise UsageError(
            f"{arguments.vs} cannot run {arguments.model}, which holds machine code",
            hint="give the network it was compiled from: --onnx model.onnx",
        )
    return Path(arguments.model)


def _treadle(model: Runnable, inputs: dict[str, NDArray], seconds: float) -> Engine:
    return Engine("treadle", lambda: [np.asarray(o) for o in model.run(inputs)], seconds)


def open_onnxruntime(network: Path, inputs: dict[str, NDArray], threads: int) -> Engine:
    """Return the network open in onnxruntime.

    Raises: ToolchainError when it is not installed, UsageError when it refuses the network.
    """
    try:
        import onnxruntime
    except ImportError:
        raise ToolchainError(
            "onnxruntime is not installed", hint='pip install "treadle[bench]"'
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Its threads spin while it works; after a run they must leave the cores to the next engine.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    given = {name: np.asarray(value) for name, value in inputs.items()}
    start = time.perf_counter()
    try:
        session = onnxruntime.InferenceSession(
            str(network), options, providers=["CPUExecutionProvider"]
        )
        session.run(None, given)
    except Exception as error:  # its exceptions share no class of their own
        raise UsageError(
            f"onnxruntime cannot run this network: {str(error)[:500]}", at=str(network)
        ) from error
    seconds = time.perf_counter() - start
    name = f"onnxruntime {onnxruntime.__version__}"
    return Engine(name, lambda: [np.asarray(o) for o in session.run(None, given)], seconds)


def take_turns(engines: list[Engine], repeat: int | None) -> None:
    """Time the engines alternately, so that whatever else the machine does meets all of them."""
    end = time.perf_counter() + _SECONDS
    while not _is_enough(len(engines[0].times), repeat, end):
        left = RUNS_PER_TURN if repeat is None else repeat - len(engines[0].times)
        for engine in engines:
            engine.run()
            for _ in range(min(RUNS_PER_TURN, left)):
                start = time.perf_counter()
                engine.run()
                engine.times.append(time.perf_counter() - start)


def _is_enough(done: int, repeat: int | None, end: float) -> bool:
    if repeat is not None:
        return done >= repeat
    return done >= _MIN_RUNS and (done >= _MAX_RUNS or time.perf_counter() >= end)


def print_figures(engines: list[Engine], results: list[list[np.ndarray]], threads: int) -> None:
    """Print the times of each engine, the ratio, and how far the outputs are apart."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for heading in ("median", "p95", "min", "runs", "ready after"):
        table.add_column(heading, justify="right")
    for engine in engines:
        p95 = float(np.percentile(engine.times, 95))
        times = (_ms(engine.median), _ms(p95), _ms(min(engine.times)))
        table.add_row(engine.name, *times, str(len(engine.times)), f"{engine.open_seconds:.2f} s")
    out = console()
    out.print(table)
    if len(engines) > 1:
        ratio = engines[1].median / engines[0].median
        word = "faster" if ratio >= 1 else "slower"
        print_row(out, "ratio", f"{ratio:.2f}× (treadle is {max(ratio, 1 / ratio):.2f}× {word})")
        print_row(out, "error", compare(results[0], results[1]))
    noun = "thread" if threads == 1 else "threads"
    each = " each, taking turns" if len(engines) > 1 else ""
    print_row(out, "threads", f"{threads} {noun}{each}")
    print_row(out, "cpu", cpu_text())


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds < 0.01 else f"{seconds * 1e3:.1f} ms"


def compare(ours: list[np.ndarray], theirs: list[np.ndarray]) -> str:
    """Return how far two lists of outputs are apart, as text.

    Raises: UsageError when they are not outputs of the same network.
    """
    if [a.shape for a in ours] != [b.shape for b in theirs]:
        raise UsageError(
            "the two runtimes' outputs have different shapes", hint="is --onnx the same network?"
        )
    pairs = list(zip(ours, theirs, strict=True))
    exact = [(a.astype(np.float64), b.astype(np.float64)) for a, b in pairs]
    with np.errstate(invalid="ignore"):  # of infinities; the result is NaN, which is kept
        difference = np.max([np.max(np.abs(a - b), initial=0.0) for a, b in exact])
        norms = [(np.linalg.norm(a - b), np.linalg.norm(b) or 1.0) for a, b in exact]
        relative = np.max([distance / size for distance, size in norms])
    same = all(a.size == 0 or np.argmax(a) == np.argmax(b) for a, b in pairs)
    top = "same top-1" if same else "different top-1"
    return f"max|Δ| {difference:.1e} · relative {relative:.1e} · {top}"
