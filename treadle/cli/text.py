# SPDX-License-Identifier: Apache-2.0
"""How the commands print: labelled rows, sizes, times; names from files made harmless."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.errors import TreadleError

if TYPE_CHECKING:
    from rich.console import Console

LABEL_WIDTH = 9


def printable(text: str) -> str:
    """Return `text` with control characters escaped, so that no name drives the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def size_text(nbytes: int) -> str:
    """Return a number of bytes for people: "97.8 MB"."""
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            break
        value /= 1000
    digits = 0 if unit == "B" or value >= 100 else 1
    return f"{value:.{digits}f} {unit}"


def seconds_text(seconds: float) -> str:
    """Return a time for people: "12 ms", "6.1 s"."""
    if seconds < 0.1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def type_text(name: str, dtype: str, shape: Sequence[object]) -> str:
    """Return one input or output: "data: float32[1,3,224,224]"."""
    return f"{name}: {dtype}[{','.join(map(str, shape))}]"


def count_text(number: int, noun: str) -> str:
    """Return "1 kernel", "2 kernels"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def console(*, stderr: bool = False) -> Console:
    """Return a console that colours a terminal and never reads markup or wraps lines."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # the command line ends quietly, as for every other print

    return PipeConsole(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_row(out: Console, label: str, text: str) -> None:
    """Print one row: a label in its column, and what it says."""
    from rich.text import Text

    indent = "\n" + " " * (LABEL_WIDTH + 2)
    row = Text.assemble((f"  {label:<{LABEL_WIDTH}}", "bold"))
    row.append(printable(text).replace("\n", indent))
    out.print(row)


def print_made(
    rows: Iterable[tuple[str, str]], seconds: Mapping[str, float], written: Iterable[Path]
) -> None:
    """Print what there is to say of something made, the seconds of its stages, and its files."""
    out = console()
    for label, text in rows:
        print_row(out, label, text)
    stages = " · ".join(f"{stage} {seconds_text(s)}" for stage, s in seconds.items())
    print_row(out, "time", f"{seconds_text(sum(seconds.values()))}: {stages}")
    for path in written:
        print_written(path)


def print_written(path: Path) -> None:
    """Print which file was written, and how large it is."""
    print_row(console(), "wrote", f"{path} ({size_text(path.stat().st_size)})")


def print_error(error: BaseException) -> None:
    """Print what went wrong on stderr: the problem, the place, the next step."""
    print(f"error: {printable(_error_text(error))}", file=sys.stderr)


def _error_text(error: BaseException) -> str:
    if isinstance(error, TreadleError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"there is not enough memory\n  {error}".rstrip()
    return f"{type(error).__name__}: {error}"
