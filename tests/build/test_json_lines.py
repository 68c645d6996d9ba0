# SPDX-License-Identifier: Apache-2.0
"""Lines of JSON from elsewhere: what is no line of records is refused before it is believed."""

from __future__ import annotations

import io

import pytest

from treadle.build.json_lines import LONGEST_LINE, is_torn, lines_of, seconds_of, value_of
from treadle.errors import ConfigError

pytestmark = pytest.mark.tiny


def test_lines_come_one_by_one() -> None:
    assert [value_of(line) for line in lines_of(io.BytesIO(b'{"a": 1}\n[2]\n3'))] == [
        {"a": 1}, [2], 3,
    ]  # fmt: skip


def test_no_more_of_a_long_line_is_read_than_shows_that_it_is_long() -> None:
    first = next(lines_of(io.BytesIO(b"1" * (3 * LONGEST_LINE))))
    assert len(first) == LONGEST_LINE + 1
    with pytest.raises(ConfigError, match=f"longer than {LONGEST_LINE} bytes"):
        value_of(first)
    assert value_of(b'"' + b"x" * (LONGEST_LINE - 2) + b'"') == "x" * (LONGEST_LINE - 2)


@pytest.mark.parametrize(
    ("line", "cause"),
    [(b"{", "not a line of JSON"), (b"\xff", "not UTF-8"), (b"[" * 100_000, "nested too deeply"),
     (b'{"a": 1, "b": 2, "a": 3}', "'a' stands twice"),
     (b'{"x": {"k": 1, "k": 1}}', "'k' stands twice"),
     (b"[NaN]", "NaN is no number of JSON"), (b"-Infinity", "-Infinity is no number of JSON"),
     (b"[1e400]", "1e400 is too large a number"), (b'"\\uD800"', "half a character")],
)  # fmt: skip
def test_what_is_refused(line: bytes, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        value_of(line)


def test_a_long_name_is_shown_in_part() -> None:
    name = "n" * 5000
    with pytest.raises(ConfigError) as caught:
        value_of(f'{{"{name}": 1, "{name}": 2}}'.encode())
    assert len(caught.value.problem) < 120


def test_characters_in_two_halves_are_read() -> None:
    assert value_of(rb'"\ud83d\ude00"') == "\N{GRINNING FACE}"


@pytest.mark.parametrize("seconds", [[10**400], [0], [True], ["1"], [-1.0], 1.0, None])
def test_what_are_no_times(seconds: object) -> None:
    with pytest.raises(ConfigError, match="no list of times"):
        seconds_of(seconds, "")


@pytest.mark.parametrize("line", [b'{"a": 1', b'{"a": "\xc3', b'{"a": 1\0\0\0', b"\0\0", b"{"])
def test_the_beginning_of_a_line_is_torn(line: bytes) -> None:
    assert is_torn(line)
    assert not is_torn(line + b"\n")


@pytest.mark.parametrize("line", [b'{"a": 1}', b"PK\x03\x04", b"[1, 2", b"x" * (LONGEST_LINE + 1)])
def test_what_is_whole_or_of_something_else_is_not_torn(line: bytes) -> None:
    assert not is_torn(line)
