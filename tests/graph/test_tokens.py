# SPDX-License-Identifier: Apache-2.0
"""Words of a graph's text: their kinds and places, and errors that show the place."""

from __future__ import annotations

import pytest

from treadle.errors import ModelError
from treadle.graph.tokens import DEPTH_LIMIT, Tokens

pytestmark = pytest.mark.tiny


def kinds(text: str) -> list[tuple[str, str]]:
    return [(t.kind, t.text) for t in Tokens(text).tokens[:-1]]


def test_words_are_told_apart() -> None:
    assert kinds('fn %x %"a b" "s" 12 1.5e-3 // == (') == [
        ("name", "fn"), ("ref", "%x"), ("ref", '%"a b"'), ("string", '"s"'), ("number", "12"),
        ("number", "1.5e-3"), ("sign", "//"), ("sign", "=="), ("sign", "("),
    ]  # fmt: skip


def test_a_comment_is_left_out_but_an_origin_and_a_digest_are_not() -> None:
    assert kinds('a # text\nb # origin "conv"') == [
        ("name", "a"), ("name", "b"), ("origin", "# origin "), ("string", '"conv"'),
    ]  # fmt: skip
    assert kinds("sha 0123456789ab") == [("name", "sha"), ("digest", "0123456789ab")]
    assert kinds("shb 0123456789ab")[1:] == [("number", "0123456789"), ("name", "ab")]


def test_items_say_whether_a_comma_ends_them() -> None:
    for text, wanted in (("1, 2)", ([1, 2], False)), ("1,)", ([1], True)), (")", ([], False))):
        tokens = Tokens(text)
        assert tokens.items(tokens.integer, ")") == wanted
        assert tokens.token.kind == "end"


def test_an_error_shows_line_column_and_place() -> None:
    tokens = Tokens("first\n  second third")
    tokens.take("name", "first")
    tokens.take("name")
    with pytest.raises(ModelError) as caught:
        tokens.take("sign", "(")
    assert caught.value.at == "line 2, column 10"
    assert caught.value.problem.splitlines() == [
        "expected '(', found third", "      second third", "             ^",
    ]  # fmt: skip


def test_a_close_name_is_proposed() -> None:
    tokens = Tokens("matmull")
    assert tokens.unknown("operator", tokens.token, ["matmul", "conv"]).hint == (
        "did you mean matmul?"
    )
    assert tokens.unknown("operator", tokens.token, ["relu"]).hint == ""


def test_nesting_has_a_limit_and_is_counted_back() -> None:
    tokens = Tokens("x")

    def deep(levels: int) -> int:
        return tokens.nested(lambda: deep(levels - 1)) if levels else 0

    for _ in range(3):
        assert deep(DEPTH_LIMIT) == 0
    with pytest.raises(ModelError, match="nests too deeply"):
        deep(DEPTH_LIMIT + 1)


def test_what_is_no_word_is_an_error() -> None:
    with pytest.raises(ModelError, match="'&' cannot stand here"):
        Tokens("a & b")
    tokens = Tokens("1.5")
    with pytest.raises(ModelError, match="expected a whole number"):
        tokens.integer()
