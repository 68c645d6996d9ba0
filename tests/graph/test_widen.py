# SPDX-License-Identifier: Apache-2.0
"""Graphs that compute with float64: types, attributes, bodies, operators of one element type."""

from __future__ import annotations

import numpy as np

from treadle.graph import interpret
from treadle.graph.nodes import Constant, Function, Node, Var
from treadle.graph.types import TensorType, tensor_type
from treadle.graph.widen import in_float64
from treadle.ops import bits, control, elementwise


def _cast(x: Node, dtype: str) -> Node:
    return elementwise.cast(x, dtype=dtype)


def test_floats_and_casts_become_wide() -> None:
    x, k = Var("x", TensorType((3,), "float16")), Var("k", TensorType((3,), "int32"))
    summed = elementwise.add(elementwise.cast(x, dtype="float32"), Constant.of(0.1, "float32"))
    body = elementwise.multiply(summed, elementwise.cast(k, dtype="float32"))
    wide = in_float64(Function((x, k), body), _cast)
    assert [str(p.type) for p in wide.params] == ["float64[3]", "int32[3]"]
    assert tensor_type(wide.type).dtype == "float64"
    given = {"x": np.array([1e-9, 0, 2]), "k": np.array([1, 2, 3], "int32")}
    expected = (given["x"] + np.float32(0.1)) * given["k"]
    np.testing.assert_allclose(interpret.run(wide, given)[0], expected, rtol=1e-15)


def test_what_takes_narrow_floats_only_is_given_them() -> None:
    x = Var("x", TensorType((2,), "float32"))
    wide = in_float64(Function((x,), bits.bitcast(x, dtype="int32")), _cast)
    (result,) = interpret.run(wide, {"x": np.array([1.0, -2.0])})
    np.testing.assert_array_equal(result, np.array([1.0, -2.0], "float32").view("int32"))


def test_bodies_become_wide() -> None:
    x, c = Var("x", TensorType((2,), "float32")), Var("c", control.CONDITION)
    bodies = []
    for op in (elementwise.negative, elementwise.abs):
        inner = Var("inner", x.type)
        bodies.append(Function((inner,), op(inner)))
    call = control.if_.call(control.IfAttrs(*bodies), (c, x))
    wide = in_float64(Function((c, x), call), _cast)
    (result,) = interpret.run(wide, {"c": np.array(True), "x": np.array([1e-300, 2.0])})
    np.testing.assert_array_equal(result, [-1e-300, -2.0])
