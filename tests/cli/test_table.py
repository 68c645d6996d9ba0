# SPDX-License-Identifier: Apache-2.0
"""Tables: names whole in files, columns that give way on a narrow terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from treadle.cli.table import print_table

pytestmark = pytest.mark.tiny

HEADINGS = ("kernel", "ms", "note", "")
ROWS = [["a_very_long_name_of_a_kernel_0123456789", "1.5", "", "x"], ["b", "12.25", "", ""]]


def printed(
    width: int, *, terminal: bool, spare: tuple[str, ...] = (), rows: list[list[str]] = ROWS
) -> list[str]:
    text = io.StringIO()
    out = Console(file=text, width=width, force_terminal=terminal, no_color=True, soft_wrap=True,
                  color_system=None)  # fmt: skip
    print_table(out, HEADINGS, rows, spare=spare)
    return text.getvalue().splitlines()


def test_a_file_has_every_name_whole_and_no_empty_column() -> None:
    lines = printed(20, terminal=False, spare=("ms",))
    assert len(lines) == 3
    assert lines[0].split() == ["kernel", "ms"]
    assert lines[1].split() == ["a_very_long_name_of_a_kernel_0123456789", "1.5", "x"]
    assert lines[1].index("1.5") + 3 == lines[2].index("12.25") + 5  # numbers are flush right


def test_a_narrow_terminal_loses_spare_columns_then_the_middle_of_names() -> None:
    lines = printed(20, terminal=True, spare=("ms",))
    assert lines[0].split() == ["kernel"]
    assert "1.5" not in lines[1]
    name = lines[1].split()[0]
    assert name.startswith("a_very")
    assert name.endswith("89")
    assert "…" in name
    assert max(map(len, lines)) <= 20


def test_a_wide_terminal_shows_all() -> None:
    assert printed(80, terminal=True, spare=("ms",))[1].split()[:2] == ROWS[0][:2]


def test_no_name_drives_the_terminal_or_breaks_a_line() -> None:
    heading, line = printed(80, terminal=True, rows=[["a\x1b[2J\nb", "1", "", ""]])
    assert line == r"a\x1b[2J\nb   1"
    assert heading.index("ms") + 2 == len(line)
