# SPDX-License-Identifier: Apache-2.0
"""Types of values: extents known and symbolic, broadcasting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Var
from treadle.graph.types import (
    TensorType,
    TupleType,
    broadcast_dim,
    broadcast_shapes,
    same_dim,
    tensor_type,
)

n, m = Var("n"), Var("m")


def test_constant_extents_become_numbers() -> None:
    assert TensorType((Const.of(3), 4), "int8") == TensorType((3, 4), "int8")


def test_sizes() -> None:
    t = TensorType((2, 3), "float64")
    assert (t.ndim, t.size, t.nbytes, t.is_static) == (2, 6, 48, True)
    assert TensorType((), "bool").size == 1


def test_symbolic_sizes_must_be_given_first() -> None:
    t = TensorType((n, 3), "float32")
    assert not t.is_static
    with pytest.raises(TypeMismatch, match=r"float32\[n, 3\] must be known"):
        _ = t.size


@pytest.mark.parametrize("bad", [((-1,), "int8"), ((1,), "int7")])
def test_bad_types(bad: tuple[tuple[int, ...], str]) -> None:
    with pytest.raises(TypeMismatch):
        TensorType(*bad)


def test_equality_of_symbolic_types() -> None:
    assert TensorType((n + 1,), "int8") == TensorType((n + 1,), "int8")
    assert TensorType((n,), "int8") != TensorType((m,), "int8")
    assert TensorType((n,), "int8") != TensorType((3,), "int8")
    assert hash(TensorType((n + 1,), "int8")) == hash(TensorType((n + 1,), "int8"))


def test_text() -> None:
    pair = TupleType((TensorType((n, 2), "int8"), TensorType((), "bool")))
    assert str(pair) == "(int8[n, 2], bool[])"


def test_a_tuple_is_no_tensor() -> None:
    with pytest.raises(TypeMismatch, match="not a tuple"):
        tensor_type(TupleType(()))


def test_equal_extents() -> None:
    assert same_dim(n, n)
    assert same_dim(3, 3)
    assert not same_dim(n, m)
    assert not same_dim(n, 3)


@pytest.mark.parametrize(("a", "b", "result"), [
    (1, 3, 3), (3, 1, 3), (3, 3, 3), (3, 4, None), (0, 1, 0), (n, 1, n), (1, n, n), (n, 3, 3),
    (3, n, 3), (n, n, n),
])  # fmt: skip
def test_broadcast_of_extents(a: int, b: int, result: int | None) -> None:
    found = broadcast_dim(a, b)
    assert found is result or found == result


SHAPES = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple)


@given(st.lists(SHAPES, max_size=3))
def test_broadcast_is_numpys(shapes: list[tuple[int, ...]]) -> None:
    try:
        wanted = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(TypeMismatch, match="do not broadcast"):
            broadcast_shapes(*shapes)
    else:
        assert broadcast_shapes(*shapes) == wanted
