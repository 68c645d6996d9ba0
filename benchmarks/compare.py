# SPDX-License-Identifier: Apache-2.0
"""Compares Treadle with its peers on the benchmark networks: a table, and a JSON file.

    python -m benchmarks.compare [network or file ...] [--threads 1,2] [--peers onnxruntime]
    python -m benchmarks.compare --build       makes the networks first
    python -m benchmarks.compare --isa avx2    holds all engines to AVX2 on a machine that has more

All engines compute in float32. The last ratio is against the fastest peer of the row. `of peak` is
what Treadle reaches of a loop of multiply-adds in the same run, at the widest vectors it may use;
operations are those of the plain algorithms, so that Winograd's may exceed it.

Each network and number of threads is measured in a process of its own; within it the engines take
turns, so that whatever else the machine does meets all of them. Only ratios within one row count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import engines, machine, networks
from benchmarks.isa import ISAS, Isa, NotBoundError, bound_copies

FOLDER = Path(__file__).parent


@dataclass
class Row:
    """One network at one number of threads: per engine its figures, or else why there are none."""

    network: str
    threads: int
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    failure: str = ""

    def ratio(self, peer: str) -> float:
        """Return how many times faster Treadle is than `peer`."""
        return self.figures[peer]["median_ms"] / self.figures["treadle"]["median_ms"]

    def ratio_to_best(self) -> float:
        """Return how many times faster Treadle is than its fastest peer."""
        return min(self.ratio(peer) for peer in self.figures if peer != "treadle")

    @property
    def is_comparable(self) -> bool:
        """True when Treadle and a peer were measured."""
        return not self.failure and "treadle" in self.figures and len(self.figures) > 1


def measure_apart(
    model: Path,
    threads: int,
    names: list[str],
    seconds: float,
    settings: Mapping[str, str] | None = None,
) -> Row:
    """Measure in a child process; a failure there becomes the row's text.

    `settings` are variables of the child's environment besides this one's.
    """
    command = [sys.executable, "-m", "benchmarks.measure", str(model.resolve())]
    command += ["--threads", str(threads), "--engines", ",".join(names), "--seconds", str(seconds)]
    row = Row(model.stem, threads)
    limit = 300 + 20 * seconds * len(names)
    environment = {**os.environ, "TREADLE_NUM_THREADS": str(threads), **(settings or {})}
    try:
        child = subprocess.run(
            command,
            cwd=FOLDER.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        row.failure = f"took more than {limit:.0f} s"
        return row
    if child.returncode:
        lines = child.stderr.strip().splitlines()
        row.failure = lines[-1] if lines else f"ended with code {child.returncode}"
    else:
        row.figures = json.loads(child.stdout.splitlines()[-1])
    return row


def table_of(rows: list[Row], peers: list[str]) -> Table:
    """Return the rows as a table: times in ms, ratios above 1 where Treadle is faster."""
    title = (
        "medians in ms; ratio = fastest peer / treadle; error over the largest output; ready in s"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("network", no_wrap=True)
    for heading in ("threads", "treadle", *peers, "ratio", "of peak", "error", "ready"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.network, str(row.threads), *_cells(row, peers))
    return table


def _cells(row: Row, peers: list[str]) -> list[str]:
    if row.failure:
        return ["[red]failed"]
    ours = row.figures["treadle"]
    cells = [f"{ours['median_ms']:.2f}"]
    for peer in peers:
        cells.append(f"{row.figures[peer]['median_ms']:.2f}" if peer in row.figures else "–")
    ratio = row.ratio_to_best()
    coloured = f"[{'green' if ratio >= 1 else 'red'}]{ratio:.2f}"
    share = f"{ours['of_peak']:.0%}" if "of_peak" in ours else "–"
    last = [share, f"{ours['max_relative_error']:.1e}", f"{ours['open_seconds']:.1f}"]
    return [*cells, coloured, *last]


def geometric_means(rows: list[Row]) -> dict[int, float]:
    """Return the geometric mean of the ratios to the fastest peer by number of threads."""
    ratios: dict[int, list[float]] = {}
    for row in rows:
        if row.is_comparable:
            ratios.setdefault(row.threads, []).append(row.ratio_to_best())
    return {threads: statistics.geometric_mean(found) for threads, found in ratios.items()}


@contextmanager
def held_to(isa: Isa | None, peers: list[str]) -> Iterator[dict[str, str]]:
    """Give the settings under which Treadle and its peers use no more than `isa`.

    None where the machine has no more. Raises: NotBoundError for a peer that cannot be held.
    """
    if isa is None or not isa.exceeds:
        yield {}
        return
    with TemporaryDirectory(prefix="treadle-held-") as folder:
        bound_copies(peers, isa, Path(folder))
        paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        yield {"TREADLE_HOST_CPU": isa.cpu, "PYTHONPATH": os.pathsep.join(paths)}


def models_of(names: list[str], zoo: Path) -> list[Path]:
    """Return the files that the names on the command line mean; without names, all of the zoo."""
    if not names:
        return sorted(zoo.glob("*.onnx"))
    return [Path(name) if name.endswith(".onnx") else zoo / f"{name}.onnx" for name in names]


def build_missing(names: list[str], zoo: Path) -> None:
    """Write the networks named, or all that can be built here, where there is no file yet."""
    zoo.mkdir(parents=True, exist_ok=True)
    for name in names or networks.buildable_names():
        path = zoo / f"{name}.onnx"
        if name in networks.BUILDERS and not path.exists():
            networks.write(networks.build(name), path)


def main() -> None:
    """Measure what the command line says; end with code 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare")
    parser.add_argument("networks", nargs="*", help="names in the zoo, or .onnx files")
    parser.add_argument("--zoo", type=Path, default=FOLDER / "zoo", help="where the networks are")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, as in 1,2")
    installed = [n for n in engines.ENGINES if n != "treadle" and engines.is_installed(n)]
    parser.add_argument(
        "--peers",
        default=",".join(n for n in installed if n != "inductor"),
        help=f"of {', '.join(engines.ENGINES)} (default: %(default)s)",
    )
    parser.add_argument("--build", action="store_true", help="make the networks that are missing")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each row, at least")
    parser.add_argument("--json", type=Path, default=FOLDER / "results" / "compare.json")
    parser.add_argument(
        "--isa",
        choices=ISAS,
        help="hold every engine to these instructions: Treadle by compiling for a CPU that has no "
        "more, onnxruntime and OpenVINO by copies that see no more (benchmarks/isa.py)",
    )
    arguments = parser.parse_args()
    peers = arguments.peers.split(",")
    if unknown := [name for name in peers if name not in engines.ENGINES]:
        parser.error(f"unknown peer {', '.join(unknown)}; peers are {', '.join(engines.ENGINES)}")
    if arguments.build:
        build_missing(arguments.networks, arguments.zoo)
    models = models_of(arguments.networks, arguments.zoo)
    if missing := [str(path) for path in models if not path.is_file()]:
        parser.error(
            f"no such file: {', '.join(missing)}; python -m benchmarks.networks makes them"
        )
    if not models:
        parser.error(f"no network in {arguments.zoo}; python -m benchmarks.networks makes them")

    isa = ISAS.get(arguments.isa)
    if isa and not isa.is_here:
        parser.error(f"this machine has no {isa.name}")
    console = Console(width=max(110, Console().width))  # wide enough for three peers
    rows = []
    try:
        with held_to(isa, peers) as settings:
            for model in models:
                for threads in map(int, arguments.threads.split(",")):
                    names = ["treadle", *peers]
                    with console.status(f"{model.stem}, {threads} threads"):
                        row = measure_apart(model, threads, names, arguments.seconds, settings)
                    rows.append(row)
    except NotBoundError as e:
        parser.error(str(e))
    console.print(table_of(rows, peers))
    for row in rows:
        if row.failure:
            console.print(f"{row.network}, {row.threads} threads: {row.failure}", markup=False)
    means = geometric_means(rows)
    for threads, mean in means.items():
        console.print(f"geometric mean of the ratios at {threads} threads: {mean:.2f}")
    here = machine.describe()
    where = f"{here['cpu']} ({here['llvm_cpu']})"
    if settings:
        where += f" held to {arguments.isa}: Treadle compiled for {settings['TREADLE_HOST_CPU']}"
    report = {
        "isa": arguments.isa,
        "treadle_cpu": settings.get("TREADLE_HOST_CPU", here["llvm_cpu"]),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": here,
        "rows": [asdict(row) for row in rows],
        "geometric_means": means,
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    console.print(f"{where}; figures in {arguments.json}")
    sys.exit(any(row.failure for row in rows))


if __name__ == "__main__":
    main()
