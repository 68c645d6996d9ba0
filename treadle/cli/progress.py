# SPDX-License-Identifier: Apache-2.0
"""Shows how far a compilation is: a live bar on a terminal, else a line every second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from treadle.build.compile import Report
from treadle.cli.text import console

_LINE_SECONDS = 1.0


@contextmanager
def shown_progress(report: Report) -> Iterator[None]:
    """Print the progress of `report` on stderr while the block runs."""
    with _bar(report) if sys.stderr.isatty() else _lines(report):
        yield


@contextmanager
def _bar(report: Report) -> Iterator[None]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("  {task.description:<9}"),
        BarColumn(),
        TextColumn("{task.fields[count]:>9}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("start", total=None, count="")

        def show(stage: str, done: int, total: int) -> None:
            count = f"{done}/{total}" if total else ""
            progress.update(
                task, description=stage, completed=done, total=total or None, count=count
            )

        report.on_progress = show
        yield


@contextmanager
def _lines(report: Report) -> Iterator[None]:
    printed = 0.0
    last = ""

    def show(stage: str, done: int, total: int) -> None:
        nonlocal printed, last
        now = time.monotonic()
        if stage == last and done < total and now - printed < _LINE_SECONDS:
            return
        printed, last = now, stage
        print(f"  {stage:<9}{f'{done}/{total}' if total else '...'}", file=sys.stderr, flush=True)

    report.on_progress = show
    yield
