# SPDX-License-Identifier: Apache-2.0
"""Sizes, times and names as the commands print them."""

from __future__ import annotations

import pytest

from treadle.cli.text import (
    console,
    count_text,
    print_error,
    print_row,
    printable,
    seconds_text,
    size_text,
    type_text,
)
from treadle.errors import UsageError

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (100_400, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (97_800_000, "97.8 MB"),
        (5 * 10**12, "5000 GB"),
    ],
)
def test_sizes(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0121, "12 ms"), (0.1, "0.10 s"), (6.123, "6.12 s"), (61.4, "61 s")]
)
def test_times(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_names_from_files_drive_no_terminal() -> None:
    assert printable("conv\x1b[2J\r") == "conv\\x1b[2J\\r"
    assert printable("two\nlines é") == "two\nlines é"


def test_types_and_counts() -> None:
    assert type_text("data", "float32", (1, "n", 4)) == "data: float32[1,n,4]"
    assert [count_text(n, "kernel") for n in (0, 1, 2)] == ["0 kernels", "1 kernel", "2 kernels"]


def test_rows_are_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    print_row(console(), "model", "x" * 300 + "\nsecond [bold]")
    assert capsys.readouterr().out == f"  model    {'x' * 300}\n           second [bold]\n"


@pytest.mark.parametrize(
    ("error", "text"),
    [(UsageError("no", hint="yes"), "error: no\n  hint  yes\n"),
     (MemoryError("1 GB"), "error: there is not enough memory\n  1 GB\n"),
     (OSError("disk\x07"), "error: OSError: disk\\x07\n")],
)  # fmt: skip
def test_errors_go_to_stderr(
    error: Exception, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_error(error)
    assert capsys.readouterr() == ("", text)
