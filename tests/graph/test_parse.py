# SPDX-License-Identifier: Apache-2.0
"""Every mistake in a graph's text has a message with line, column and a caret."""

from __future__ import annotations

import numpy as np
import pytest

import treadle.ops  # noqa: F401  # the operators that the texts name
from treadle.errors import ModelError, TreadleError, TypeMismatch
from treadle.graph.nodes import Call
from treadle.graph.parse import parse
from treadle.graph.text import constant_digest


def _body(statement: str, result: str = "%0") -> str:
    return f"fn main(%x: float32[2]) {{\n  {statement}\n  return {result}\n}}\n"


MISTAKES = {
    "a sign that means nothing": (_body("%0 = relu($)"), "'\\$' cannot stand here", "2, column 13"),
    "an unknown operator": (_body("%0 = reluu(%x) : float32[2]"), "relu", "2, column 8"),
    "an unknown value": (_body("%0 = relu(%y) : float32[2]"), "there is no value %y", "2"),
    "an unknown element type": (_body("%0 = relu(%x) : floot32[2]"), "float32", "2, column 19"),
    "a wrong type": (_body("%0 = relu(%x) : float32[3]"), "the operands give float32", "2"),
    "a value defined twice": (_body("%x = relu(%x) : float32[2]"), "defined twice", "2, column 3"),
    "a missing parenthesis": (_body("%0 = relu(%x : float32[2]"), "expected '\\)'", "2"),
    "a text that ends": ("fn main(%x: float32[2]) {", "expected", "1"),
    "no function": ("", "expected", "1, column 1"),
    "an unlisted constant": (_body("", "const[3]"), "not listed above", "3"),
    "a field that is not there": (_body("%0 = %x[1]"), "has no field 1", "2"),
    "too few elements": (_body("", "float32[2]{1.0}"), "1 elements given", "3"),
    "a fraction as an integer": (_body("", "int32[1]{1.5}"), "are whole", "3"),
    "an integer too large": (_body("", "int8[1]{300}"), "not a int8", "3"),
    "a word as an element": (_body("", 'int8[1]{"a"}'), "consists of numbers", "3"),
    "a symbolic constant": (_body("", "int8[n]{1}"), "elements given", "3"),
    "a negative extent": ("fn f(%x: float32[-1]) { return %x }", "is not an extent", "1"),
    "a fractional extent": ("fn f(%x: float32[1.5]) { return %x }", "is not an extent", "1"),
    "a choice without a condition": (
        "fn f(%x: float32[select(n, 1, 2)]) { return %x }",
        "select takes a condition and two sizes",
        "1",
    ),
    "a choice of too few": (
        "fn f(%x: float32[select((n == 1), 2)]) { return %x }",
        "select takes a condition and two sizes",
        "1",
    ),
    "arithmetic on words": (_body('%0 = reshape(%x, shape=("a" + 1,))'), "for sizes only", "2"),
    "a minus before a word": (_body('%0 = reshape(%x, shape=-"a")'), "for numbers only", "2"),
    "two functions of one name": (
        "fn f() { return () } fn f() { return () }",
        "two functions",
        "1",
    ),
    "endless nesting": (_body(f"%0 = reshape(%x, shape={'(' * 5000}"), "too deeply", "2"),
    "endless minus signs": (_body(f"%0 = reshape(%x, shape={'-' * 5000}1"), "too deeply", "2"),
    "endless tuple types": (f"fn f(%x: {'(' * 5000}", "too deeply", "1"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str) -> None:
    text, message, place = MISTAKES[name]
    with pytest.raises(ModelError) as error:
        parse(text)
    assert f"line {place}" in error.value.at
    assert error.value.problem.rstrip().endswith("^")
    with pytest.raises(ModelError, match=message):
        parse(text)


def test_caret_stands_under_the_mistake() -> None:
    with pytest.raises(ModelError) as error:
        parse(_body("%0 = relu(%y) : float32[2]"))
    _, line, caret = error.value.problem.splitlines()
    assert line[caret.index("^") :].startswith("%y")


def test_long_lines_are_shown_around_the_mistake() -> None:
    with pytest.raises(ModelError) as error:
        parse(_body(f'%0 = relu(%x, name="{"a" * 5000}" $)'))
    assert max(map(len, error.value.problem.splitlines())) < 130


@pytest.mark.parametrize(("statement", "message"), [
    ("%0 = add(%x, float32[3]{1, 2, 3}) : float32[2]", "do not broadcast"),
    ("%0 = relu(%x, alpha=1) : float32[2]", "no attribute 'alpha'"),
])  # fmt: skip
def test_operators_refuse_with_the_line(statement: str, message: str) -> None:
    with pytest.raises(TypeMismatch, match=message) as error:
        parse(_body(statement))
    assert error.value.at.startswith("line 2")


def test_functions_are_called_with_what_they_take() -> None:
    text = "fn f(%p: float32[3]) { return %p }\n" + _body("%0 = f(%x) : float32[2]")
    with pytest.raises(ModelError, match="f takes"):
        parse(text)


ARRAY = np.arange(20, dtype=np.float32)
LISTED = f"const[0]: float32[20] sha {constant_digest(ARRAY)}\nfn f() {{ return const[0] }}"


def test_listed_constants_are_taken_as_they_are() -> None:
    body = parse(LISTED, constants=[ARRAY]).body
    assert body.value is ARRAY  # type: ignore[union-attr]


@pytest.mark.parametrize(("arrays", "message"), [
    ([], "constant 0 is not given"),
    ([ARRAY + 1], "constant 0 is another one"),
    ([ARRAY.astype(np.float64)], "constant 0 is another one"),
])  # fmt: skip
def test_listed_constants_are_checked(arrays: list[np.ndarray], message: str) -> None:
    with pytest.raises(TreadleError, match=message):
        parse(LISTED, constants=arrays)


def test_comments_and_layout_do_not_matter() -> None:
    text = "# a network\nfn main(%x:float32[2]){%0=relu(%x):float32[2]# twice\nreturn %0}"
    body = parse(text).body
    assert isinstance(body, Call)
    assert body.origin == ""
