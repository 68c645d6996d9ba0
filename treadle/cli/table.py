# SPDX-License-Identifier: Apache-2.0
"""Tables whose names are never cut or wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.cli.text import printable

if TYPE_CHECKING:
    from rich.console import Console

_GAP = "  "
_LEAST = 16
"""Characters of the first column that a terminal shows at least."""


def print_table(
    out: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    names: int = 1,
    spare: Sequence[str] = (),
) -> None:
    """Print a line per row: `names` columns flush left, the others flush right.

    Control characters are escaped. Columns without any text are left out. What goes to a file is as
    wide as it must be. Where a terminal is too narrow, the columns headed as in `spare` give way,
    the first of them first, and then the middles of the first column's words; no other column is
    cut, and no line wrapped.
    """
    from rich.text import Text

    width = out.width if out.is_terminal and spare else None
    lines = table_lines(headings, rows, names=names, spare=spare, width=width)
    for number, line in enumerate(lines):
        out.print(Text(line, "" if number else "bold"))


def table_lines(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    names: int = 1,
    spare: Sequence[str] = (),
    width: int | None = None,
) -> list[str]:
    """Return the lines that `print_table` prints, the headings first; None: of any width."""
    kept = [k for k, heading in enumerate(headings) if not heading or any(r[k] for r in rows)]
    cells = [list(headings), *([_on_a_line(cell) for cell in row] for row in rows)]
    if width is not None:
        kept = _fitting(cells, kept, spare, width)
    widths = [max(len(row[k]) for row in cells) for k in range(len(headings))]
    lines: list[str] = []
    for row in cells:
        line = (f"{row[k]:<{widths[k]}}" if k < names else f"{row[k]:>{widths[k]}}" for k in kept)
        lines.append(_GAP.join(line).rstrip())
    return lines


def _on_a_line(text: str) -> str:
    return printable(text).replace("\n", "\\n")


def _fitting(
    cells: list[list[str]], columns: list[int], spare: Sequence[str], width: int
) -> list[int]:
    """Return the columns that fit next to a readable first one, and shorten that one in `cells`."""
    widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]

    def room(kept: Sequence[int]) -> int:
        return width - sum(widths[k] + len(_GAP) for k in kept if k)

    kept = list(columns)
    for heading in spare:
        column = cells[0].index(heading)
        if column in kept and room(kept) < min(_LEAST, widths[0]):
            kept.remove(column)
    for row in cells:
        row[0] = _short(row[0], max(_LEAST, room(kept)))
    return kept


def _short(text: str, width: int) -> str:
    """Return a name without its middle: the beginning says where, the end which one."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
