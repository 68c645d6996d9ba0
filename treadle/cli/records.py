# SPDX-License-Identifier: Apache-2.0
"""`treadle records`: look into files and databases of records, join them, keep what matters."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path

from treadle.build.method_records import MethodRecord
from treadle.build.record_database import RecordDatabase, Row, is_url, shown
from treadle.build.records import Record, Records, parsed_rows
from treadle.cli.arguments import record_place
from treadle.cli.table import print_table
from treadle.cli.text import console, count_text, print_row
from treadle.cli.tune_view import time_text
from treadle.errors import UsageError

HELP = "list, join and prune what tuning has measured"

_KEPT = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs of this command."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (text, _) in _VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        many = name == "merge"
        verb.add_argument("files", type=record_place, nargs="+" if many else 1, metavar="FILE",
                          help="records, JSON lines, or the URL of a database")  # fmt: skip
        if name in ("merge", "prune"):
            verb.add_argument("-o", "--output", type=record_place, metavar="FILE", required=many,
                              help="where to write; to what a database holds it is added" + (
                "" if many else " (default: the file or database itself)"))  # fmt: skip
        if name == "prune":
            verb.add_argument(
                "--keep",
                type=int,
                default=_KEPT,
                metavar="N",
                help=f"the fastest trials of each kernel to keep (default: {_KEPT})",
            )


def run(arguments: argparse.Namespace) -> int:
    """Do what the verb says."""
    _VERBS[arguments.verb][1](arguments)
    return 0


def _list(arguments: argparse.Namespace) -> None:
    """A row per kernel and target."""
    records = Records.read(arguments.files[0])
    rows = []
    for kernel, target in records.kernels():
        trials = records.trials(kernel, target)
        best = records.best(kernel, target)
        failed = sum(bool(t.error) for t in trials)
        decided = best is not None and not best.is_trial
        rows.append(
            (
                kernel,
                str(len(trials)),
                str(failed) if failed else "",
                time_text(inf if best is None else best.time),
                "yes" if decided else "",
                target,
            )
        )
    rows += [(r.call, "", "", "", "yes", r.target) for r in records.method_records()]
    headings = ("kernel or call", "trials", "failed", "best", "decided", "target")
    print_table(console(), headings, rows, spare=("target",))


def _best(arguments: argparse.Namespace) -> None:
    """The choice of each kernel."""
    records = Records.read(arguments.files[0])
    rows = []
    for key in records.kernels():
        best = records.best(*key)
        if best is not None:
            rows.append((best.kernel, time_text(best.time), str(best.choice)))
    rows += [(r.call, "", f"method {r.method}") for r in records.method_records()]
    print_table(console(), ("kernel or call", "time", "choice"), rows, names=3)


def _merge(arguments: argparse.Namespace) -> None:
    """Every record of several files once, in their order."""
    found: dict[bytes, Record | MethodRecord] = {}
    for place in arguments.files:
        for record in Records.read(place):
            found.setdefault(record.line(), record)
    _write(found.values(), arguments.output)


def _prune(arguments: argparse.Namespace) -> None:
    """The fastest trials and the last decision of each kernel."""
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
    """Return the `keep` fastest trials of each kernel, and all decisions that hold."""
    kept: list[Record | MethodRecord] = []
    for kernel, target in records.kernels():
        trials = [t for t in records.trials(kernel, target) if t.seconds]
        kept += sorted(trials, key=lambda t: t.time)[:keep]
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


Verb = Callable[[argparse.Namespace], None]

_VERBS: dict[str, tuple[str, Verb]] = {
    "list": ("print a row for each kernel: trials, the best time, whether it is decided", _list),
    "best": ("print what each kernel is made by", _best),
    "merge": ("join files; what stands in several is kept once", _merge),
    "prune": ("keep the fastest trials of each kernel and the decisions", _prune),
}
