# SPDX-License-Identifier: Apache-2.0
"""Which calls share a kernel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.optimize.cases import assert_same, constant, function, var
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Call, Constant, Function, Node, Tuple, TupleItem, topological
from treadle.graph.text import function_text
from treadle.ops.conv import conv
from treadle.ops.elementwise import add, cast, exp, multiply, relu, sigmoid, tanh
from treadle.ops.matmul import matmul
from treadle.ops.movement import concat, pad, split
from treadle.ops.reduce import mean, sum_
from treadle.ops.reshaping import broadcast_to, reshape, transpose
from treadle.optimize.fuse import fuse

x = var("x", 1, 4, 6, 6)
m = var("m", 5, 7)
PADS = {"pads_before": (1, 1), "pads_after": (1, 1)}


def _conv(value: Node = x, key: str = "w") -> Call:
    channels = value.type.shape[1]  # type: ignore[union-attr]
    return conv(value, constant(4, channels, 3, 3, key=key), origin=key, **PADS)  # type: ignore[arg-type]


def _bias(value: Node, key: str = "b") -> Call:
    return add(value, constant(1, 4, 1, 1, key=key))


def groups(f: Function, **options: Any) -> list[str]:
    """Return the operators of every group, in the order the groups run; checks the meaning."""
    fused = fuse(f, **options)
    assert_same(f, fused)
    found = []
    for node in topological([fused.body]):
        if isinstance(node, Call):
            assert isinstance(node.op, Function)
            inner = [n for n in topological([node.op.body]) if isinstance(n, Call)]
            found.append(" ".join(n.op.name for n in inner))
    return found


def test_tail_of_an_anchor() -> None:
    body = relu(_bias(_conv()))
    assert groups(function(body, params=[x])) == ["conv add relu"]


def test_residual_sum_joins_the_later_convolution() -> None:
    first = relu(_bias(_conv(), "b0"))
    second = _bias(_conv(first, "w1"), "b1")
    body = relu(add(second, first))
    assert groups(function(body, params=[x])) == ["conv add relu", "conv add add relu"]


def test_sum_of_two_convolutions() -> None:
    left, right = relu(_conv(x, "w0")), _conv(x, "w1")
    body = relu(add(left, right))
    assert groups(function(body, params=[x])) == ["conv relu", "conv add relu"]


def test_gate_computed_from_the_anchor() -> None:
    c = _conv()
    assert groups(function(multiply(c, sigmoid(c)), params=[x])) == ["conv sigmoid multiply"]


def test_side_operand_of_a_tail_is_computed_before() -> None:
    body = add(_conv(), exp(x))
    assert sorted(groups(function(body, params=[x]))) == ["conv add", "exp"]


def test_value_the_user_sees_ends_its_group() -> None:
    c = _conv()
    assert groups(function(relu(c), c, params=[x])) == ["conv", "relu"]


def test_path_through_the_outside_keeps_groups_apart() -> None:
    """relu(c) would need the second convolution, which needs c: they cannot be one kernel."""
    c = _conv()
    body = add(relu(c), _conv(c, "w1"))
    assert groups(function(body, params=[x])) == ["conv", "relu", "conv add"]


def test_tail_keeps_the_shape_of_its_anchor() -> None:
    wide = add(matmul(m, constant(7, 3)), constant(2, 5, 3))
    assert groups(function(wide, params=[m])) == ["matmul", "add"]


def test_tail_may_change_the_element_type() -> None:
    assert groups(function(cast(_conv(), dtype="float64"), params=[x])) == ["conv cast"]


@pytest.mark.parametrize(("fuse_pad", "expected"), [
    (True, ["conv relu pad", "conv"]),
    (False, ["conv relu", "pad", "conv"]),
])  # fmt: skip
def test_padding_ends_a_tail(fuse_pad: bool, expected: list[str]) -> None:
    padded = pad(relu(_conv()), before=(0, 0, 1, 1), after=(0, 0, 1, 1))
    body = conv(padded, constant(4, 4, 3, 3, key="w1"))
    assert groups(function(body, params=[x]), fuse_pad=fuse_pad) == expected


@pytest.mark.parametrize("attrs", [{"value": 1.0}, {"mode": "edge"}])
def test_other_padding_is_a_kernel_of_its_own(attrs: dict[str, Any]) -> None:
    body = pad(_conv(), before=(0, 0, 1, 1), after=(0, 0, 1, 1), **attrs)
    assert groups(function(body, params=[x]), fuse_pad=True) == ["conv", "pad"]


def test_producers_and_tail_of_a_reduction() -> None:
    t = var("t", 7, 5)
    total = mean(multiply(exp(m), transpose(t, perm=(1, 0))), axes=(1,), keepdims=True)
    f = function(relu(total), params=[m, t])
    assert groups(f) == ["exp transpose multiply mean relu"]


def test_reduction_inside_a_normalisation() -> None:
    """The mean is smaller than what it is subtracted from: computed once, not per element."""
    body = add(m, mean(exp(m), axes=(1,), keepdims=True))
    assert groups(function(body, params=[m])) == ["exp mean", "add"]


def test_value_for_a_reduction_and_its_tail_stays_outside() -> None:
    c = var("c", 5, 1)
    e = exp(c)
    body = add(sum_(e, axes=(1,), keepdims=True), e)
    assert groups(function(body, params=[c])) == ["exp", "sum add"]


def test_chain_of_moves_and_elements() -> None:
    body = relu(transpose(exp(transpose(m, perm=(1, 0))), perm=(1, 0)))
    assert groups(function(body, params=[m])) == ["transpose exp transpose relu"]


def test_diamond() -> None:
    e = exp(m)
    body = add(multiply(e, e), tanh(e))
    assert groups(function(body, params=[m])) == ["exp multiply tanh add"]


def test_small_value_is_not_computed_per_element() -> None:
    row = var("row", 1, 7)
    f = function(add(m, exp(row)), params=[m, row])
    assert groups(f) == ["exp", "add"]
    spread = function(add(m, broadcast_to(exp(row), shape=(5, 7))), params=[m, row])
    assert groups(spread) == ["exp", "broadcast_to add"]


def test_small_move_is_inlined() -> None:
    column = var("column", 7, 1)
    f = function(add(m, transpose(column, perm=(1, 0))), params=[m, column])
    assert groups(f) == ["transpose add"]


def test_reshape_and_concat_stay_alone() -> None:
    flat = reshape(relu(m), shape=(35,))
    f = function(concat(exp(flat), flat, axis=0), params=[m])
    assert groups(f) == ["relu", "reshape", "exp", "concat"]


def test_tuples_stay_outside() -> None:
    parts = split(relu(m), sections=(3, 4), axis=1)
    body = exp(TupleItem.of(parts, 1))
    assert groups(function(body, params=[m])) == ["relu", "split", "exp"]


def test_every_call_alone() -> None:
    body = relu(_bias(_conv()))
    assert groups(function(body, params=[x]), limit=1) == ["conv", "add", "relu"]


def test_group_size_is_bounded() -> None:
    body: Node = _conv()
    for _ in range(9):
        body = relu(body)
    assert groups(function(body, params=[x]), limit=4) == [
        "conv relu relu relu",
        "relu relu",
        "relu relu relu relu",
    ]


def test_a_chain_of_steps_is_cut_between_two_of_them() -> None:
    body: Node = exp(x)
    for _ in range(4):
        body = add(relu(body), exp(add(body, x)))
    steps = groups(function(body, params=[x]), limit=10)
    assert steps[-1] == "relu add exp add relu add exp add"  # two steps, not two and a half
    assert sum(len(s.split()) for s in steps) == 17


def test_symbolic_sizes() -> None:
    n = Symbol("n")
    s, row = var("s", n, 7), var("row", 1, 7)
    fused = fuse(function(relu(add(exp(s), exp(row))), params=[s, row]))
    names = [c.op.name for c in topological([fused.body]) if isinstance(c, Call)]
    assert sorted(names) == ["fused_exp", "fused_exp_add_relu"]


def test_five_thousand_calls() -> None:
    node: Node = m
    for k in range(5000):
        node = add(node, m) if k % 2 else relu(node)
    fused = fuse(function(node, params=[m]))
    calls = [n for n in topological([fused.body]) if isinstance(n, Call)]
    assert len(calls) == -(-5000 // 64)
    assert_same(function(node, params=[m]), fused)


def test_graph_without_calls() -> None:
    f = function(m, Constant.of(1.0, "float32"), params=[m])
    assert fuse(f).body.fields == f.body.fields  # type: ignore[union-attr]


def test_groups_of_one_structure_share_a_function() -> None:
    first = relu(_bias(_conv(x, "w0"), "b0"))
    second = relu(_bias(_conv(first, "w1"), "b1"))
    fused = fuse(function(second, params=[x]))
    calls = [n for n in topological([fused.body]) if isinstance(n, Call)]
    assert calls[0].op is calls[1].op
    assert [c.origin for c in calls] == ["w0", "w1"]


@pytest.mark.parametrize("pair", [(0.0, -0.0), (1.0, 2.0)])
def test_different_embedded_constants_are_different_functions(pair: tuple[float, float]) -> None:
    outputs = [add(var_, Constant.of(c, "float32")) for var_, c in zip((m, m), pair, strict=True)]
    fused = fuse(function(*outputs, params=[m]))
    assert isinstance(fused.body, Tuple)
    a, b = fused.body.fields
    assert isinstance(a, Call)
    assert isinstance(b, Call)
    assert a.op is not b.op


def test_weights_are_parameters_and_numbers_are_embedded(golden: Any) -> None:
    scaled = multiply(_conv(), Constant.of(0.5, "float32"))
    shared = constant(1, 4, 1, 1, key="s")
    body = add(multiply(scaled, shared), shared)
    golden.check("fuse_parameters.txt", function_text(fuse(function(body, params=[x]))))


def test_long_groups_have_short_names() -> None:
    body: Node = m
    for _ in range(8):
        body = relu(body)
    fused = fuse(function(body, params=[m]))
    assert isinstance(fused.body, Call)
    assert fused.body.op.name == "fused_relu_relu_relu_relu_relu_relu_and_2_more"
