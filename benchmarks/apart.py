# SPDX-License-Identifier: Apache-2.0
"""Times networks on two threads where their cores share a cache, and where they do not.

    python -m benchmarks.apart [--against REVISION] [--seconds 60] [--runs 20] FILE.onnx ...

The CPUs of a virtual machine move: two may share their host's last cache now and none in a second.
A line takes 50 to 150 ns from one to the other and back where they do, more than 200 where they do
not; it is timed before and after each run, and runs between two answers that differ do not count.
Each network runs for so many seconds, or until it has so many runs of both kinds. With another
revision, that one's artifacts take turns with those of this checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import treadle
from benchmarks.engines import random_inputs
from benchmarks.revisions import ROOT, checkout, compiled
from treadle.runtime import native_build

_NEAR_NS, _FAR_NS = 150.0, 200.0
"""Round trips of a line below and above which two cores share their last cache, and do not."""
_PAUSE = 0.2
"""Seconds between two looks where one kind of runs is complete."""

Times = dict[str, dict[str, list[float]]]
"""Seconds by where the cores were ("near" or "far"), then by artifact."""


class Cores:
    """Two CPUs of this process, and how far they are from each other at the moment."""

    def __init__(self, folder: Path) -> None:
        """Compile what measures it. Raises: SystemExit without a C compiler or a second CPU."""
        compilers = native_build.find_compilers()
        cpus = sorted(os.sched_getaffinity(0))
        if not compilers or len(cpus) < 2:
            raise SystemExit("a C compiler and two CPUs are needed")
        path = folder / "core_distance.so"
        source = ROOT / "benchmarks" / "core_distance.c"
        how = ["-std=c11", "-O2", "-shared", "-fPIC", "-pthread"]
        command = [*compilers[0], *how, str(source), "-o", str(path)]
        subprocess.run(command, check=True, timeout=300)
        self._library = ctypes.CDLL(str(path))
        for name in ("round_trip", "rewriting"):
            getattr(self._library, name).restype = ctypes.c_double
        self._cpus = cpus[0], cpus[1]

    def place(self) -> str:
        """Return "near", "far" or "" where it cannot be told."""
        nanoseconds = self._library.round_trip(*self._cpus)
        return "near" if nanoseconds < _NEAR_NS else "far" if nanoseconds > _FAR_NS else ""

    def rewriting(self) -> float:
        """Return the nanoseconds a line takes that is written again after both have read it."""
        return float(self._library.rewriting(*self._cpus))


def timed(
    runs: Mapping[str, Callable[[], object]], cores: Cores, seconds: float, most: int
) -> Times:
    """Return the times of runs in turns by where the cores were before and after each."""
    times: Times = {place: {name: [] for name in runs} for place in ("near", "far")}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        complete = {p for p, of in times.items() if min(map(len, of.values())) >= most}
        if len(complete) == len(times):
            break
        if cores.place() in complete:
            time.sleep(_PAUSE)
            continue
        for name, run in runs.items():
            place = cores.place()
            run()
            start = time.perf_counter()
            run()
            taken = time.perf_counter() - start
            if place and cores.place() == place:
                times[place][name].append(taken)
    return times


@contextlib.contextmanager
def _other(revision: str | None) -> Iterator[dict[str, Path]]:
    """Yield the folders whose compilers take turns, by name."""
    if revision is None:
        yield {"now": ROOT}
        return
    with checkout(revision) as folder:
        yield {"before": folder, "now": ROOT}


def _row(times: dict[str, list[float]]) -> str:
    medians = {k: 1e3 * statistics.median(v) for k, v in times.items() if v}
    if len(medians) < len(times):
        return "      (none)"
    text = " ".join(f"{x:9.3f}" for x in medians.values()) + " ms"
    if "before" in medians:
        text += f"  {medians['now'] / medians['before']:.3f} of the time before"
    return f"{text}  ({min(map(len, times.values()))} runs)"


def main() -> None:
    """Time the files of the command line; print two rows for each, and what rewriting takes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apart")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.onnx")
    parser.add_argument("--against", metavar="REVISION", help="the revision to compare with")
    parser.add_argument("--seconds", type=float, default=60, help="per network (default 60)")
    parser.add_argument("--runs", type=int, default=20, help="runs of each kind (default 20)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, _other(options.against) as places:
        folder = Path(name)
        cores = Cores(folder)
        for file in options.files:
            inputs = random_inputs(file)
            loaded = {
                label: treadle.load(compiled(file.resolve(), place, folder / f"{label}.tar"))
                for label, place in places.items()
            }
            for executable in loaded.values():
                executable.executor.num_threads = 2
            runs = {label: partial(x.run, inputs) for label, x in loaded.items()}
            for place, times in timed(runs, cores, options.seconds, options.runs).items():
                print(f"{file.stem:20} {place:5}{_row(times)}", flush=True)
        print(f"a line that both have read takes {cores.rewriting():.1f} ns to write again, now")


if __name__ == "__main__":
    main()
