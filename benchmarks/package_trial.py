# SPDX-License-Identifier: Apache-2.0
"""Tries one model of a package: is it right, what does compiling cost, how fast beside its peers.

`benchmarks.packages` does each of these in a process of its own: an engine may crash.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.engines import ENGINES, Arrays, Run, is_installed
from benchmarks.measure import LEAST_TURNS, run_in_rounds
from benchmarks.package_models import Case, File

PEERS = ("onnxruntime", "openvino")

NEAR = 1e-4
"""What two engines may be apart, as a share of the largest element, without being looked at."""

_TURN_SECONDS = 2e-3


@dataclass
class Row:
    """One model: what becomes of it, seconds to compile, milliseconds of engines by threads.

    `fixed` and `opened` begin with "right", or say what is wrong or refused; "" is not tried.
    Seconds of CPU are those of all processes that compile.
    """

    name: str
    fixed: str = ""
    opened: str = ""
    fixed_seconds: float = 0.0
    fixed_cpu_seconds: float = 0.0
    open_seconds: float = 0.0
    open_cpu_seconds: float = 0.0
    times: dict[int, dict[str, float]] = field(default_factory=dict)

    def ratio(self, threads: int) -> float | None:
        """Return the fastest peer's time over Treadle's."""
        found = self.times.get(threads, {})
        peers = [t for name, t in found.items() if name != "treadle"]
        return min(peers) / found["treadle"] if peers and "treadle" in found else None


def arrays_of(model: Path, case: Case) -> Arrays:
    """Return the inputs of a case: seeded random numbers of the declared types, or its values."""
    import onnx

    inputs = onnx.load(model, load_external_data=False).graph.input
    dtypes = {
        i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in inputs
    }
    random = np.random.default_rng(0)
    return {
        name: given
        if isinstance(given, np.ndarray)
        else (random.standard_normal(given) / 2).astype(dtypes[name])
        for name, given in case.items()
    }


# ---- right or wrong, and what compiling costs ----------------------------------------------------


def examine(model: Path, file: File, kernels: Path) -> Row:
    """Return what becomes of a model with fixed and with open sizes, compiled from empty caches.

    The folder `kernels` keeps the kernels of the fixed sizes, for `measured`.
    """
    row = Row(model.name)
    row.fixed, row.fixed_seconds, row.fixed_cpu_seconds = _outcome(model, file, False, kernels)
    opened = kernels.with_name(f"{kernels.name}-open")
    row.opened, row.open_seconds, row.open_cpu_seconds = _outcome(model, file, True, opened)
    shutil.rmtree(opened, ignore_errors=True)
    return row


def _outcome(model: Path, file: File, is_open: bool, kernels: Path) -> tuple[str, float, float]:
    """Return what becomes of a model, and the seconds and CPU seconds to compile it."""
    import treadle
    from treadle.errors import SizesError, TreadleError
    from treadle.settings import use

    shutil.rmtree(kernels, ignore_errors=True)
    cases = [arrays_of(model, case) for case in file.cases]
    shapes = None if is_open else {name: value.shape for name, value in cases[0].items()}
    before, start = tree_cpu_seconds(), time.perf_counter()
    try:
        with use(cache=kernels):
            executable = treadle.compile(model, shapes=shapes, dynamic=is_open)
    except TreadleError as error:
        took = time.perf_counter() - start, tree_cpu_seconds() - before
        return f"refused: {error.problem}", *took
    took = time.perf_counter() - start, tree_cpu_seconds() - before
    try:
        return _judged(model, executable.run, cases if is_open else cases[:1]) or "right", *took
    except SizesError:
        session = treadle.InferenceSession(model)
        outcome = _judged(model, lambda inputs: session.run(None, inputs), cases)
        return outcome or "right, compiled for each", *took
    except TreadleError as error:
        return f"refused when it runs: {error.problem}", *took


def tree_cpu_seconds() -> float:
    """Return the CPU time of this process, of its children and of what they waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    children = [p.read_text() for p in Path("/proc/self/task").glob("*/children")]
    ticks = sum(_ticks(child) for child in " ".join(children).split())
    return sum(u.ru_utime + u.ru_stime for u in used) + ticks / os.sysconf("SC_CLK_TCK")


def _ticks(process: str) -> int:
    """Return the clock ticks a process and those it waited for have used, 0 where it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime


def _judged(model: Path, run: Callable[[Arrays], Sequence[object]], cases: list[Arrays]) -> str:
    """Return what is wrong in the first case that is, "" where none is."""
    return next((w for w in (_departure(model, run, case) for case in cases) if w), "")


def _departure(model: Path, run: Callable[[Arrays], Sequence[object]], inputs: Arrays) -> str:
    """Return how the results of a run are wrong, "" where they are not."""
    import onnxruntime

    from treadle.build.agreement import agreement
    from treadle.cli.exact import verdicts
    from treadle.runtime.array import array

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    found = [np.asarray(o) for o in run(inputs)]
    results = [agreement(*pair, NEAR) for pair in zip(found, expected, strict=True)]
    if all(r.holds for r in results):
        return ""
    given = {name: array(value) for name, value in inputs.items()}
    judged = verdicts(model, given, found, expected, results)
    for result, verdict in zip(results, judged, strict=True):
        if not (result if verdict is None else verdict).holds:
            return f"wrong: {result if verdict is None else verdict}"
    return ""


# ---- how fast ------------------------------------------------------------------------------------


def measured(
    model: Path,
    file: File,
    threads: Sequence[int],
    seconds: float,
    kernels: Path,
    *,
    by_cpu: bool = False,
    peers: Sequence[str] = PEERS,
) -> dict[int, dict[str, float]]:
    """Return by number of threads the least time of each engine in milliseconds.

    The sizes are those of the first case. Kernels are taken from the folder `kernels` and kept
    there. `by_cpu` measures the process's CPU time, which waiting for a core does not count in.
    """
    import treadle
    from treadle.settings import use

    inputs = arrays_of(model, file.cases[0])
    with use(cache=kernels):
        executable = treadle.compile(model, shapes={n: v.shape for n, v in inputs.items()})
    found: dict[int, dict[str, float]] = {}
    for count in threads:
        executable.executor.num_threads = count
        runs: dict[str, Run] = {
            "treadle": lambda: [np.asarray(output) for output in executable.run(inputs)]
        }
        runs |= _peer_runs(model, inputs, count, peers)
        times = _cpu_turns(runs, seconds) if by_cpu else run_in_rounds(runs, seconds)
        found[count] = {name: 1e3 * min(each) for name, each in times.items()}
    return found


def _peer_runs(model: Path, inputs: Arrays, threads: int, peers: Sequence[str]) -> dict[str, Run]:
    """Return the runs of those peers that are installed and can run the model."""
    runs: dict[str, Run] = {}
    for name in filter(is_installed, peers):
        try:
            runs[name] = ENGINES[name](model, inputs, threads)
            runs[name]()
        except Exception as error:  # engines share no class of errors; one may lack an operator
            print(f"{name}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
            runs.pop(name, None)
    return runs


def _cpu_turns(runs: dict[str, Run], seconds: float) -> dict[str, list[float]]:
    """Return CPU seconds per run; the engines take turns, each long enough for the clock."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["treadle"]) < LEAST_TURNS:
        for name, run in runs.items():
            start, count = time.process_time(), 0
            while not count or time.process_time() - start < _TURN_SECONDS:
                run()
                count += 1
            times[name].append((time.process_time() - start) / count)
    return times
