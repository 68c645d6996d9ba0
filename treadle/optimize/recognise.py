# SPDX-License-Identifier: Apache-2.0
"""Rules that find an operator in the steps an exporter wrote it as.

1. c / sqrt(mean(c * c) + e) * w + b with c = x - mean(x), means along the last axis and w, b rows
   of its length -> layer_norm(x, w, b)

The result agrees up to rounding: both compute in the element type of x.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.operator import Operator
from treadle.graph.types import tensor_type
from treadle.ops.elementwise import add, divide, multiply, sqrt, subtract
from treadle.ops.norm import LayerNormAttrs, layer_norm
from treadle.ops.reduce import mean
from treadle.optimize.moves import reshaped
from treadle.optimize.rule import Rule, Uses, attrs_of


def _call_of(node: Node, operator: Operator[Any]) -> Call | None:
    return node if isinstance(node, Call) and node.op is operator else None


def _with_constant(node: Node, operator: Operator[Any]) -> Iterator[tuple[Node, Constant]]:
    """Yield the other operand and the constant of a call of a commutative operator."""
    call = _call_of(node, operator)
    if call is not None:
        for value, other in (call.args, call.args[::-1]):
            if isinstance(other, Constant):
                yield value, other


def _mean_operand(node: Node) -> Node | None:
    """Return x where `node` is mean(x) along the last axis, kept as an extent of 1."""
    call = _call_of(node, mean)
    if call is None:
        return None
    attrs, source = attrs_of(call), call.args[0]
    is_last = tuple(attrs.axes) == (tensor_type(source.type).ndim - 1,)
    return source if is_last and attrs.keepdims else None


def _normalised(node: Node) -> tuple[Node, float] | None:
    """Return x and epsilon where `node` is (x - mean) / sqrt(variance + epsilon)."""
    quotient = _call_of(node, divide)
    if quotient is None:
        return None
    centred, root = _call_of(quotient.args[0], subtract), _call_of(quotient.args[1], sqrt)
    if centred is None or root is None:
        return None
    source = centred.args[0]
    if _mean_operand(centred.args[1]) is not source or source.type != centred.type:
        return None
    for variance, epsilon in _with_constant(root.args[0], add):
        square = _mean_operand(variance)
        product = None if square is None else _call_of(square, multiply)
        if product is None or any(a is not centred for a in product.args):
            continue
        if epsilon.value.size == 1 and float(epsilon.value.reshape(-1)[0]) >= 0:
            return source, float(epsilon.value.reshape(-1)[0])
    return None


def _row(node: Constant, width: int) -> Node | None:
    """Return a constant that varies along the last axis only as a vector."""
    size = node.type.size
    if size not in (1, width) or (size == width and node.value.shape[-1:] != (width,)):
        return None
    return reshaped(node, (size,), node.origin)


def _recognise_layer_norm(call: Call, uses: Uses) -> Node | None:
    for product, shift in _with_constant(call, add):
        for quotient, scale in _with_constant(product, multiply):
            found = _normalised(quotient)
            if found is None or found[0].type != call.type:
                continue
            source, epsilon = found
            type_ = tensor_type(source.type)
            width = type_.shape[-1]
            if not isinstance(width, int) or type_.dtype != shift.type.dtype:
                continue
            weight, bias = _row(scale, width), _row(shift, width)
            if weight is not None and bias is not None:
                attrs = LayerNormAttrs(axis=type_.ndim - 1, epsilon=epsilon)
                return layer_norm.call(attrs, (source, weight, bias), origin=call.origin)
    return None


RULES = (Rule("recognise_layer_norm", (add,), _recognise_layer_norm),)
