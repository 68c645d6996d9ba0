# SPDX-License-Identifier: Apache-2.0
"""Graphs as text, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InternalError, ModelError
from treadle.expr import nodes as ex
from treadle.graph.broadcasting import common_dim
from treadle.graph.nodes import Call, Constant, Function, Node, Tuple, TupleItem, Var
from treadle.graph.operator import Attrs, Operator, OperatorTable
from treadle.graph.parse import parse
from treadle.graph.text import call_text, constant_digest, function_text, listed_constants
from treadle.graph.types import TensorType, TupleType
from treadle.ops.conv import conv
from treadle.ops.elementwise import add, relu
from treadle.ops.movement import pad, split
from treadle.ops.reshaping import broadcast_to, reshape
from treadle.optimize.fuse import fuse


@dataclass(frozen=True, slots=True)
class AnyAttrs(Attrs):
    value: Any = None


TABLE = OperatorTable()
anything: Operator[Attrs] = TABLE.register(
    Operator("anything", lambda a, t: t, lambda a, v: v, attrs_type=AnyAttrs)
)
x = Var("x", TensorType((2, 3), "float32"))


def _round_trip(f: Function, **options: Any) -> str:
    text = function_text(f)
    back = parse(text, constants=listed_constants(f), **options)
    assert function_text(back) == text
    inline = function_text(f, "inline")
    assert function_text(parse(inline, **options), "inline") == inline
    return text


def test_long_sizes_are_numbered() -> None:
    n: ex.Expr = ex.Var("n")
    for k in range(200):
        n = n - ex.binary("max", n - k, ex.convert(0))
    p = Var("p", TensorType((n, 3), "float32"))
    q = Var("q", TensorType((n + 1, 3), "float32"))
    cut = broadcast_to(x, shape=(n, 2, 3))
    text = _round_trip(Function((p, q, x), Tuple.of([relu(p), relu(q), cut])))
    assert len(text) < 60_000
    assert text.startswith("size[0] = ")
    assert isinstance(cut, Call)
    assert " where size[0] = (" in call_text(cut)
    assert len(call_text(cut)) < 60_000
    with pytest.raises(ModelError, match=r"size 7 is not listed above"):
        parse("fn main(%x: float32[size[7]]) {\n  return %x\n}\n")


def test_network(golden: Any) -> None:
    n = ex.Var("n")
    data = Var("data:0", TensorType((n, 3, 8, 8), "float32"))
    weights = Constant.of(np.arange(4 * 27, dtype=np.float32).reshape(4, 3, 3, 3), origin="w")
    c = conv(data, weights, strides=(2, 2), origin='conv "1"')
    body = relu(add(c, Constant.of(0.1, "float32")), origin="relu")
    parts = split(body, sections=(1, 3), axis=1)
    outputs = Tuple.of([TupleItem.of(parts, 1), reshape(body, shape=(n, 36))])
    fused = fuse(Function((data,), outputs))
    golden.check("network.txt", _round_trip(fused))


def test_symbols_of_one_name_are_told_apart() -> None:
    a, b = ex.Var("n"), ex.Var("n")
    p, q = Var("p", TensorType((a,), "float32")), Var("q", TensorType((b, a), "float32"))
    text = _round_trip(Function((p, q), Tuple.of([p, q])))
    assert "%p: float32[n], %q: float32[n_1, n]" in text


def test_symbols_with_reserved_or_odd_names() -> None:
    sizes = [ex.Var("inf"), ex.Var("batch size"), ex.Var("min")]
    p = Var("p", TensorType(tuple(sizes), "float32"))
    assert "float32[inf_1, size, min_1]" in _round_trip(Function((p,), relu(p)))


@pytest.mark.parametrize("name", ["x", "input.1", "data:0", "a b", "0", 'quo"te', "%", "ümlaut"])
def test_parameter_names(name: str) -> None:
    p = Var(name, TensorType((), "float32"))
    text = function_text(Function((p,), relu(p)))
    assert parse(text).params[0].name == name
    assert function_text(parse(text)) == text


def test_functions_of_one_name_are_told_apart() -> None:
    node: Node = x
    for op in (relu, relu):
        p = Var("p", x.type)
        callee = Function((p,), op(p), "f")
        node = Call(callee, (node,), None, callee.type)
    text = _round_trip(Function((x,), node))
    assert "fn f(" in text
    assert "fn f_1(" in text


def test_tuples_in_the_middle_and_tuple_parameters() -> None:
    pair = Tuple.of([x, relu(x)], origin="pair")
    item = TupleItem(pair, 1, x.type)
    p = Var("p", TupleType((x.type, TupleType((x.type,)))))
    text = _round_trip(Function((x, p), Tuple.of([item, pair])))
    assert '(%x, %0)  # origin "pair"' in text
    assert "%p: (float32[2, 3], (float32[2, 3]))" in text


def test_result_of_one_field_and_of_none() -> None:
    assert "return (%x,)" in _round_trip(Function((x,), Tuple.of([x])))
    assert "return ()" in _round_trip(Function((x,), Tuple.of([])))


def test_constant_as_the_result() -> None:
    assert "return int64[2]{1, -2}" in _round_trip(
        Function((), Constant.of(np.array([1, -2], np.int64)))
    )


def test_defaults_are_left_out_but_not_their_doubles() -> None:
    y = pad(x, before=(0, 1), after=(0, 0), value=-0.0)
    assert "before=(0, 1), after=(0, 0), value=-0.0)" in _round_trip(Function((x,), y))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)


def _same(a: object, b: object) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and repr(a) == repr(b)


@given(VALUES)
def test_attribute_values(value: object) -> None:
    f = Function((x,), anything(x, value=value))
    back = parse(function_text(f), TABLE)
    assert isinstance(back.body, Call)
    assert _same(back.body.attrs.value, value)  # type: ignore[union-attr]


def test_symbolic_attribute_values() -> None:
    n, m = ex.Var("n"), ex.Var("m")
    sizes = (n * 2 + 1, (n + m) // 4, ex.minimum(n, m) % 3, ex.truncdiv(n, 2), n - 3, -1)
    p = Var("p", TensorType((n, m), "float32"))
    text = _round_trip(Function((p,), anything(p, value=sizes)), operators=TABLE)
    shown = "(((n * 2) + 1), ((n + m) // 4), (min(n, m) % 3), truncdiv(n, 2), (n - 3), -1)"
    assert f"value={shown}" in text


def test_common_extents() -> None:
    n, m = ex.Var("n"), ex.Var("m")
    whole = common_dim(n, m)
    assert whole is not None
    x, y = Var("x", TensorType((n,), "float32")), Var("y", TensorType((m,), "float32"))
    made = add(broadcast_to(x, shape=(whole,)), broadcast_to(y, shape=(whole,)))
    text = _round_trip(Function((x, y), made))
    assert "float32[select((n == 1), m, n)]" in text


def test_values_that_cannot_be_printed() -> None:
    with pytest.raises(InternalError, match="type object cannot be printed"):
        function_text(Function((x,), anything(x, value=object())))


@given(
    st.sampled_from(["float16", "bfloat16", "float32", "float64", "int8", "uint64", "bool"]),
    st.binary(min_size=0, max_size=128),
)
def test_elements_of_small_constants(dtype: str, raw: bytes) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    usable = raw[: min(len(raw) // kind.itemsize, 16) * kind.itemsize]
    array = np.frombuffer(usable, np.uint8)
    value = (array % 2).astype(bool) if dtype == "bool" else array.view(kind)
    value = value[:16]
    back = parse(function_text(Function((), Constant.of(value)))).body
    assert isinstance(back, Constant)
    assert back.value.dtype == kind
    wanted = value.astype(np.float64) if dtype == "bfloat16" else value
    found = back.value.astype(np.float64) if dtype == "bfloat16" else back.value
    np.testing.assert_array_equal(found, wanted)
    if kind.kind == "f":
        real = ~np.isnan(value)
        np.testing.assert_array_equal(np.signbit(back.value[real]), np.signbit(value[real]))


def test_digest_sees_small_changes_and_samples_large_arrays() -> None:
    a = np.zeros(1 << 20, np.float32)
    b = a.copy()
    b[-1] = 1
    assert constant_digest(a) != constant_digest(b)
    assert constant_digest(a[:10]) != constant_digest(a[:11])
    assert constant_digest(a[:100].reshape(10, 10).T) == constant_digest(a[:100])


def test_long_graphs_print_and_parse() -> None:
    node: Node = x
    for _ in range(5000):
        node = relu(node)
    assert "%4999 = relu(%4998)" in _round_trip(Function((x,), node))
