# SPDX-License-Identifier: Apache-2.0
"""Runtimes with a model open, ready to run in several streams, and how they alternate."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from treadle.build.loaded import Runnable
from treadle.cli.threads import at_once
from treadle.errors import ToolchainError, UsageError
from treadle.runtime.array import NDArray

RUNS_PER_ROUND = 3
"""Timed runs of one engine in a round; one untimed run comes before them."""

_ROUND_SECONDS = 0.2
_SECONDS = 3.0
_MIN_RUNS, _MAX_RUNS = 15, 999
_SHOWN = 500

Run = Callable[[], list[np.ndarray]]
Inputs = Mapping[str, NDArray]


@dataclass
class Engine:
    """One runtime with the model open: a function per stream that runs it.

    `times` are the seconds of every run, `busy_seconds` the time in which all of them happened.
    """

    name: str
    runs: Sequence[Run]
    open_seconds: float
    times: list[float] = field(default_factory=list)
    busy_seconds: float = 0.0

    @property
    def run(self) -> Run:
        """One inference, in the first stream."""
        return self.runs[0]

    @property
    def median(self) -> float:
        """The median in seconds."""
        return statistics.median(self.times)

    @property
    def throughput(self) -> float:
        """Runs per second of all streams together."""
        return len(self.times) / self.busy_seconds if self.busy_seconds else 0.0


def open_treadle(model: Runnable, inputs: Inputs, threads: int, streams: int) -> Engine:
    """Return a compiled model as an engine; each stream has working memory of its own."""
    start = time.perf_counter()
    models = [model, *(_again(model, threads // streams or 1) for _ in range(streams - 1))]
    models[0].executor.num_threads = threads // streams or 1
    runs = [_run_of(one, inputs) for one in models]
    runs[0]()
    return Engine("treadle", runs, time.perf_counter() - start)


def _again(model: Runnable, threads: int) -> Runnable:
    """Return the same model with working memory of its own."""
    made = model.fork()
    made.executor.num_threads = threads
    return made


def _run_of(model: Runnable, inputs: Inputs) -> Run:
    given = dict(inputs)
    return lambda: [np.asarray(output) for output in model.run(given)]


def open_onnxruntime(network: Path, inputs: Inputs, threads: int, streams: int = 1) -> Engine:
    """Return the network open in onnxruntime, one session for all streams.

    Raises: ToolchainError when it is not installed, UsageError when it refuses the network.
    """
    try:
        import onnxruntime
    except ImportError:
        raise _missing("onnxruntime", "treadle[bench]") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads // streams or 1
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
        raise _refused("onnxruntime", network, error) from error
    seconds = time.perf_counter() - start
    name = f"onnxruntime {onnxruntime.__version__}"
    return Engine(name, [_results_of(session, given)] * streams, seconds)


def _results_of(session: Any, given: Mapping[str, np.ndarray]) -> Run:  # Any: onnxruntime's
    return lambda: [np.asarray(o) for o in session.run(None, given)]


def open_openvino(network: Path, inputs: Inputs, threads: int, streams: int = 1) -> Engine:
    """Return the network open in OpenVINO, in float32, with a request per stream.

    Raises: ToolchainError when it is not installed, UsageError when it refuses the network.
    """
    try:
        import openvino
    except ImportError:
        raise _missing("openvino", "openvino") from None
    # Its default precision is bfloat16 where the CPU has it.
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": streams,
    }
    given = {name: np.asarray(value) for name, value in inputs.items()}
    start = time.perf_counter()
    try:
        compiled = openvino.Core().compile_model(network, "CPU", settings)
        requests = [compiled.create_infer_request() for _ in range(streams)]
        requests[0].infer(given)
    except Exception as error:  # of its own classes and of pybind's
        raise _refused("openvino", network, error) from error
    seconds = time.perf_counter() - start
    name = f"openvino {openvino.__version__.partition('-')[0]}"
    return Engine(name, [_answers_of(request, given) for request in requests], seconds)


def _answers_of(request: Any, given: Mapping[str, np.ndarray]) -> Run:  # Any: OpenVINO's
    return lambda: [np.asarray(v) for v in request.infer(given, share_outputs=True).values()]


def _missing(name: str, package: str) -> ToolchainError:
    return ToolchainError(f"{name} is not installed", hint=f'pip install "{package}"')


def _refused(name: str, network: Path, error: Exception) -> UsageError:
    return UsageError(f"{name} cannot run this network: {str(error)[:_SHOWN]}", at=str(network))


PEERS: dict[str, Callable[[Path, Inputs, int, int], Engine]] = {
    "onnxruntime": open_onnxruntime,
    "openvino": open_openvino,
}
"""Runtimes to compare with."""


# ---- rounds --------------------------------------------------------------------------------------


def run_in_rounds(engines: Sequence[Engine], repeat: int | None, seconds: float | None) -> None:
    """Time the engines alternately, so that whatever else the machine does meets all of them.

    Each stream does at most `repeat` runs, in at most `seconds` of all engines together, but one
    round at least. Without either, what fits in 3 seconds, and 15 runs at least.
    """
    limit = _SECONDS if repeat is None else float("inf")
    end = time.perf_counter() + (limit if seconds is None else seconds)
    least = _MIN_RUNS if repeat is None and seconds is None else 1
    most = _MAX_RUNS if repeat is None else repeat
    done = 0
    while done < least or (done < most and time.perf_counter() < end):
        for engine in engines:
            _round(engine, min(RUNS_PER_ROUND, most - done), goes_on=repeat is None)
        done += RUNS_PER_ROUND


def _round(engine: Engine, runs: int, *, goes_on: bool) -> None:
    """Let every stream do `runs` runs; several streams may go on, so that they overlap longer."""
    engine.run()
    until = time.perf_counter() + (_ROUND_SECONDS if goes_on and len(engine.runs) > 1 else 0.0)
    gate = threading.Barrier(len(engine.runs))
    spans: list[tuple[float, float]] = []
    failed: list[BaseException] = []

    def work(run: Run) -> None:
        try:
            gate.wait()
            done = 0
            while (done < runs or time.perf_counter() < until) and not gate.broken:
                start = time.perf_counter()
                run()
                spans.append((start, time.perf_counter()))
                done += 1
        except BaseException as error:  # raised again in the thread that asked
            failed.append(error)

    if len(engine.runs) == 1:
        work(engine.run)
    else:
        with at_once([partial(work, run) for run in engine.runs], gate):
            pass
    if failed:
        raise failed[0]
    engine.times += [stop - start for start, stop in spans]
    engine.busy_seconds += max(stop for _, stop in spans) - min(start for start, _ in spans)
