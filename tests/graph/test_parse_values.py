# SPDX-License-Identifier: Apache-2.0
"""Types and attribute values are read as they are printed, and mistakes in them are shown."""

from __future__ import annotations

import math

import pytest

from treadle.errors import ModelError
from treadle.expr import nodes as ex
from treadle.graph.nodes import Function
from treadle.graph.parse_values import Values
from treadle.graph.tokens import Tokens
from treadle.graph.types import TensorType, TupleType

pytestmark = pytest.mark.tiny


def reader(text: str) -> Values:
    functions: dict[str, Function] = {}
    return Values(Tokens(text), functions)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("-2.5", -2.5), ("-inf", -math.inf), ('"a b"', "a b"), ("None", None),
     ("True", True), ("()", ()), ("(3,)", (3,)), ("(3)", 3), ("(1, (2, 3))", (1, (2, 3)))],
)  # fmt: skip
def test_literals(text: str, value: object) -> None:
    assert reader(text).value() == value


@pytest.mark.parametrize("text", ["n + 2 * m", "(n // 2) % 4", "min(n, 7) - m", "truncdiv(n, 3)"])
def test_sizes_are_sums_with_the_usual_precedence(text: str) -> None:
    read = reader(text).value()
    assert isinstance(read, ex.Expr)
    assert str(reader(str(read)).value()) == str(read)


def test_precedence_is_the_usual_one() -> None:
    n = ex.Var("n")
    read = reader("n + 2 * 3").value()
    assert isinstance(read, ex.Expr)
    assert read.children[1] is ex.binary("mul", 2, 3)
    assert type(read.children[0]) is type(n)


def test_one_name_is_one_symbolic_size() -> None:
    type_ = reader("(float32[n, 4], int64[n])").type()
    assert isinstance(type_, TupleType)
    first, second = type_.fields
    assert isinstance(first, TensorType)
    assert isinstance(second, TensorType)
    assert first.shape[0] is second.shape[0]
    assert first.shape[1] == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [("floot32[2]", "no element type floot32"), ("float32[-1]", "-1 is not an extent"),
     ("float32[True]", "True is not an extent"), ("float32[(1, 2)]", "is not an extent"),
     ("float32[2.5 + n]", "is for sizes only"), ("float32[min(n)]", "takes two values")],
)  # fmt: skip
def test_mistakes_in_types(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        reader(text).type()
    assert message in caught.value.problem


@pytest.mark.parametrize(
    ("text", "message"),
    [("select(n, 1, 2)", "takes a condition and two sizes"), ("@f", "no function f"),
     ('-"a"', "a minus sign is for numbers only"), ("(" * 70, "nests too deeply")],
)  # fmt: skip
def test_mistakes_in_values(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        reader(text).value()
    assert message in caught.value.problem
