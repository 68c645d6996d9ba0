# SPDX-License-Identifier: Apache-2.0
"""The reference interpreter: values, input mistakes, symbolic sizes, depth."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from treadle.errors import InputError, InternalError
from treadle.expr.nodes import Var as Symbol
from treadle.graph.interpret import evaluate, run
from treadle.graph.nodes import Call, Constant, Function, Node, Tuple, TupleItem, Var
from treadle.graph.operator import Attrs, Operator
from treadle.graph.types import TensorType
from treadle.ops.elementwise import add, exp, relu
from treadle.ops.movement import split
from treadle.ops.reshaping import reshape

x = Var("x", TensorType((2, 3), "float32"))
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3) - 3


def test_values() -> None:
    body = Tuple.of([add(relu(x), Constant.of(1.0, "float32")), x])
    first, second = run(Function((x,), body), {"x": ARRAY})
    np.testing.assert_array_equal(first, np.maximum(ARRAY, 0) + 1)
    np.testing.assert_array_equal(second, ARRAY)


def test_tuples_of_operators() -> None:
    parts = split(x, sections=(1, 2), axis=1)
    (only,) = run(Function((x,), TupleItem.of(parts, 1)), {"x": ARRAY})
    np.testing.assert_array_equal(only, ARRAY[:, 1:])
    pair = evaluate(Function((x,), parts), [ARRAY])
    assert isinstance(pair, tuple)
    assert len(pair) == 2


def test_calls_of_functions() -> None:
    p = Var("p", x.type)
    callee = Function((p,), relu(p), "f")
    call = Call(callee, (exp(x),), None, callee.type)
    (found,) = run(Function((x,), call), {"x": ARRAY})
    np.testing.assert_allclose(found, np.exp(ARRAY), rtol=1e-6)


@pytest.mark.parametrize(("inputs", "message"), [
    ({}, "'x' is missing"),
    ({"x": ARRAY, "y": ARRAY}, "no input 'y'"),
    ({"x": ARRAY.astype(np.int32)}, "dtype int32, expected float32"),
    ({"x": ARRAY[0]}, "1 dimensions, expected"),
    ({"x": ARRAY[:, :2]}, r"shape \(2, 2\), expected"),
])  # fmt: skip
def test_input_mistakes(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(Function((x,), relu(x)), inputs)


def test_symbolic_sizes() -> None:
    n = Symbol("n")
    s, t = (Var(k, TensorType((n, 3), "float32")) for k in "st")
    f = Function((s, t), reshape(add(s, t), shape=(n * 3, 1)))
    (found,) = run(f, {"s": ARRAY, "t": ARRAY})
    np.testing.assert_array_equal(found, 2 * ARRAY.reshape(6, 1))
    with pytest.raises(InputError, match="input t has the shape"):
        run(f, {"s": ARRAY, "t": ARRAY[:1]})


def test_wrong_references_are_found() -> None:
    wrong: Operator[Attrs] = Operator("wrong", lambda a, t: t, lambda a, v: v[0])
    with pytest.raises(InternalError, match="gives float32"):
        run(Function((x,), wrong(x)), {"x": ARRAY})


def test_unbound_variable() -> None:
    with pytest.raises(InternalError, match="y is not a parameter"):
        run(Function((x,), relu(Var("y", x.type))), {"x": ARRAY})


def test_depth_and_memory() -> None:
    """Five thousand values of 4 KB each: what is no longer needed is let go."""
    big = Var("x", TensorType((1000,), "float32"))
    node: Node = big
    for _ in range(5000):
        node = relu(node)
    f = Function((big,), node)
    tracemalloc.start()
    (found,) = run(f, {"x": np.ones(1000, np.float32)})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.sum() == 1000
    assert peak < 8e6
