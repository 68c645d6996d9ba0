# SPDX-License-Identifier: Apache-2.0
"""`treadle records`: look into files and databases of records, join, keep, exchange them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from math import inf
from pathlib import Path

from treadle.auto_scheduler.extract import extract_tasks
from treadle.auto_scheduler.record_format import ANSOR
from treadle.autotvm.record_format import AUTOTVM
from treadle.build.appending import appending
from treadle.build.method_records import MethodRecord
from treadle.build.record_database import RecordDatabase, Row, is_url, shown
from treadle.build.records import Record, Records, parsed_rows
from treadle.cli.arguments import add_operators, parse_shapes, record_place
from treadle.cli.operators import load_operators
from treadle.cli.table import print_table
from treadle.cli.text import console, count_text, print_row
from treadle.cli.tune_view import time_text
from treadle.errors import ConfigError, UsageError
from treadle.files import check_writable
from treadle.tune.foreign_records import (
    RecordFormat,
    Skipped,
    export_records,
    import_records,
    write_lines,
)

_KEPT = 16
_SHOWN_LINES = 5

_FORMATS: dict[str, RecordFormat] = {form.name: form for form in (AUTOTVM, ANSOR)}
"""Of other projects, by the names that --format takes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs of this command."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (text, _) in _VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        _add_places(verb, name)
        if name in ("import", "export"):
            _add_format(verb, name)
        if name == "prune":
            verb.add_argument(
                "--keep",
                type=int,
                default=_KEPT,
                metavar="N",
                help=f"the fastest trials of each kernel to keep (default: {_KEPT})",
            )


def _add_places(verb: argparse.ArgumentParser, name: str) -> None:
    """Add what a verb reads and where it writes; lines of other projects are in files."""
    reads, many = Path if name == "import" else record_place, name in ("merge", "import")
    what = "JSON lines" if name == "import" else "records, JSON lines, or the URL of a database"
    verb.add_argument("files", type=reads, nargs="+" if many else 1, metavar="FILE", help=what)
    if name in ("list", "best"):
        return
    is_file = name == "export"
    writes = Path if is_file else record_place
    where = "where to write" if is_file else "where to write; to what a database holds it is added"
    own = " (default: the file or database itself)" if name == "prune" else ""
    verb.add_argument(
        "-o", "--output", type=writes, metavar="FILE", required=not own, help=where + own
    )


def _add_format(verb: argparse.ArgumentParser, name: str) -> None:
    verb.add_argument(
        "--format",
        choices=sorted(_FORMATS),
        required=name == "export",
        help="of the project whose lines they are" + (
            " (default: told by each line)" if name == "import" else ""
        ),
    )  # fmt: skip
    add_operators(verb)
    verb.add_argument(
        "--model",
        type=Path,
        metavar="MODEL",
        help="an ONNX model whose kernels they are of (needed for Ansor's lines)",
    )
    verb.add_argument("--target", default="llvm", help="what the model is compiled for")
    verb.add_argument("--input-shapes", metavar="SHAPES", help="sizes of inputs of the model")


def run(arguments: argparse.Namespace) -> int:
    """Do what the verb says.

    Of a file that is read and replaced no line is lost that a tuner appends meanwhile.
    """
    own = arguments.files[0] if arguments.verb == "prune" else None
    place = getattr(arguments, "output", None) or own
    if isinstance(place, Path):
        check_writable(place)
    held = isinstance(place, Path) and place.is_file() and appending(place, make=False)
    with held or nullcontext():
        _VERBS[arguments.verb][1](arguments)
    return 0


def _list(arguments: argparse.Namespace) -> None:
    """A row per kernel or call, and target."""
    records = Records.read(arguments.files[0])
    rows = []
    for kernel, target in records.kernels():
        best, trials = records.best(kernel, target), records.trials(kernel, target)
        seconds = inf if best is None else _seconds(best, trials)
        decided = best is not None and not best.is_trial
        rows.append(_row(kernel, trials, seconds, target, decided=decided))
    decisions = {record.key: record for record in records.method_records()}
    for call, target in records.calls():
        tried, decision = records.method_trials(call, target), decisions.get((call, target))
        seconds = min(t.time for t in tried) if decision is None else decision.time
        rows.append(_row(call, tried, seconds, target, decided=decision is not None))
    if not rows:
        _print_none(arguments.files[0])
        return
    headings = ("kernel or call", "trials", "failed", "best", "decided", "target")
    print_table(console(), headings, rows, spare=("target",))


def _row(
    name: str,
    trials: Sequence[Record] | Sequence[MethodRecord],
    seconds: float,
    target: str,
    *,
    decided: bool,
) -> tuple[str, ...]:
    failed = sum(bool(t.error) for t in trials)
    return (
        name,
        str(len(trials)),
        str(failed) if failed else "",
        time_text(seconds),
        "yes" if decided else "",
        target,
    )


def _seconds(best: Record, trials: Sequence[Record]) -> float:
    """Return the time of what is chosen: that of a trial where a decision has none of its own."""
    alike = [t.time for t in trials if t.choice == best.choice]
    return best.time if best.seconds else min(alike, default=inf)


def _print_none(place: Path | str, which: str = "") -> None:
    print_row(console(), "records", f"none in {shown(place)}{which}")


def _best(arguments: argparse.Namespace) -> None:
    """The choice of each kernel."""
    records = Records.read(arguments.files[0])
    rows = []
    for key in records.kernels():
        best = records.best(*key)
        if best is not None:
            seconds = _seconds(best, records.trials(*key))
            rows.append((best.kernel, time_text(seconds), str(best.choice)))
    for record in records.method_records():
        time = time_text(record.time) if record.seconds else ""
        rows.append((record.call, time, f"method {record.method}"))
    if not rows:
        _print_none(arguments.files[0], " that has run or is decided")
        return
    print_table(console(), ("kernel or call", "time", "choice"), rows, names=3)


def _merge(arguments: argparse.Namespace) -> None:
    """Every record of several files once, in their order."""
    found: dict[bytes, Record | MethodRecord] = {}
    for place in arguments.files:
        for record in Records.read(place):
            line = record.line()
            if not record.is_trial:
                found.pop(line, None)  # of decisions the last one counts
            found.setdefault(line, record)
    _write(found.values(), arguments.output)


def _prune(arguments: argparse.Namespace) -> None:
    """The fastest trials and the last decision of each kernel and call."""
    if arguments.keep < 0:
        raise UsageError("--keep is a number of trials", hint="0 keeps decisions alone")
    place = arguments.files[0]
    if arguments.output is None and is_url(place):
        dropped = _prune_database(place, arguments.keep)
    else:
        records = Records.read(place)
        kept = _pruned(records, arguments.keep)
        _write(kept, arguments.output or place)
        dropped = len(records) - len(kept)
    print_row(console(), "dropped", count_text(dropped, "record"))


def _pruned(records: Records, keep: int) -> list[Record | MethodRecord]:
    """Return the `keep` fastest trials of each kernel and call, and all decisions that hold."""
    kept: list[Record | MethodRecord] = []
    for kernel, target in records.kernels():
        trials = [t for t in records.trials(kernel, target) if t.seconds]
        kept += sorted(trials, key=lambda t: t.time)[:keep]
    for call, target in records.calls():
        tried = [t for t in records.method_trials(call, target) if t.seconds]
        kept += sorted(tried, key=lambda t: t.time)[:keep]
    return kept + [r for r in records if not r.is_trial]


def _prune_database(url: str, keep: int) -> int:
    """Remove the other rows of a database, where they are; return how many.

    What others append at the same time stays.
    """
    database = RecordDatabase.open(url)
    dropped = 0

    def kept(rows: Sequence[Row]) -> Iterable[int]:
        nonlocal dropped
        found = parsed_rows(rows, database.name)
        records = Records()
        for record in found:
            records.add(record)
        wanted = {id(record) for record in _pruned(records, keep)}
        numbers = [
            number for (number, _), record in zip(rows, found, strict=True) if id(record) in wanted
        ]
        dropped = len(rows) - len(numbers)
        return numbers

    database.retain(kept)
    return dropped


def _write(records: Iterable[Record | MethodRecord], place: Path | str) -> None:
    """Write records to a file that appears when it is complete, or add them to a database."""
    kept = Records()
    for record in records:
        kept.add(record)
    if isinstance(place, str):
        _add(kept, place)
        return
    kept.write(place)
    print_row(console(), "wrote", f"{place} ({count_text(len(kept), 'record')})")


def _add(records: Records, url: str) -> None:
    """Add records to a database, those that are not there."""
    database = RecordDatabase.open(url, make=True)
    there = {record.line() for record in parsed_rows(database.rows(), database.name)}
    lines = [line for record in records if (line := record.line()) not in there]
    database.append(lines)
    print_row(console(), "added", f"{count_text(len(lines), 'record')} to {shown(url)}")


def _load_workloads(arguments: argparse.Namespace) -> None:
    """Let what the user names be known: operators, templates, workloads, the kernels of a model."""
    load_operators(arguments.operators)
    if arguments.model is not None:
        shapes = parse_shapes(arguments.input_shapes) if arguments.input_shapes else None
        extract_tasks(
            arguments.model, target=arguments.target, include_simple_tasks=True, shapes=shapes
        )


def _import(arguments: argparse.Namespace) -> None:
    """Lines of other projects as records."""
    _load_workloads(arguments)
    formats = [_FORMATS[arguments.format]] if arguments.format else list(_FORMATS.values())
    records: list[Record] = []
    skipped: list[Skipped] = []
    for path in arguments.files:
        found = import_records(path, formats)
        records += found.records
        skipped += found.skipped
    _print_skipped(skipped, "line")
    if not records:
        raise ConfigError(
            "no line has a meaning here",
            hint="--operators FILE.py names a file with templates and workloads, --model a model",
        )
    _write(records, arguments.output)


def _export(arguments: argparse.Namespace) -> None:
    """Records as lines of another project."""
    _load_workloads(arguments)
    records = Records.read(arguments.files[0])
    if not len(records):
        raise ConfigError(f"there are no records in {shown(arguments.files[0])}")
    found = export_records(records, _FORMATS[arguments.format])
    _print_skipped(found.skipped, "record")
    if not found.lines:
        raise ConfigError(f"no record has a form that {arguments.format} knows")
    write_lines(arguments.output, found.lines)
    print_row(console(), "wrote", f"{arguments.output} ({count_text(len(found.lines), 'line')})")


def _print_skipped(skipped: Sequence[Skipped], noun: str) -> None:
    """Print how many were left out, and of each reason the first places."""
    if not skipped:
        return
    out = console()
    print_row(out, "left out", count_text(len(skipped), noun))
    by_reason: dict[str, list[str]] = {}
    for one in skipped:
        by_reason.setdefault(one.reason, []).append(one.at)
    for reason, places in by_reason.items():
        rest = len(places) - _SHOWN_LINES
        more = f" and {rest} more" if rest > 0 else ""
        print_row(out, "", f"{reason}\n  at {'; '.join(places[:_SHOWN_LINES])}{more}")


Verb = Callable[[argparse.Namespace], None]

_VERBS: dict[str, tuple[str, Verb]] = {
    "list": ("print a row for each kernel: trials, the best time, whether it is decided", _list),
    "best": ("print what each kernel is made by", _best),
    "merge": ("join files; what stands in several is kept once", _merge),
    "import": ("make records of the lines of other projects, where they have a meaning", _import),
    "export": ("write records as the lines of another project", _export),
    "prune": ("keep the fastest trials of each kernel and the decisions", _prune),
}
