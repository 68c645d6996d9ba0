# SPDX-License-Identifier: Apache-2.0
"""Rules that find an operator in the steps an exporter wrote it as.

Below, means are along the last axis, w and b are constants that vary along it only, and a division
by a root may be a product with its inverse.

1. x / sqrt(mean(x * x) + e)     -> rms_norm(x, 1)
2. the same of x = y - mean(y)   -> layer_norm(y, 1, 0)
3. rms_norm(x, v) * w            -> rms_norm(x, v * w);  layer_norm likewise, its shift too
4. layer_norm(y, w, u) + b       -> layer_norm(y, w, u + b)
5. x * (1 + erf(x / sqrt(2))) / 2, in any order -> gelu(x)
6. the same with tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)) -> gelu(x, approximate="tanh")
7. x * tanh(softplus(x)), in either order -> mish(x)

The results agree up to rounding: all compute in the element type of x.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType, tensor_type
from treadle.limits import ACTIVATION_DEPTH
from treadle.ops.activation import gelu, mish, softplus
from treadle.ops.elementwise import (
    add,
    divide,
    erf,
    multiply,
    power,
    reciprocal,
    rsqrt,
    sqrt,
    subtract,
    tanh,
)
from treadle.ops.norm import LayerNormAttrs, layer_norm, rms_norm
from treadle.ops.reduce import mean
from treadle.ops.reshaping import reshape
from treadle.optimize.movement_rules import reshaped
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


def _number(node: Node) -> float | None:
    """Return the value of a constant of one element."""
    if not isinstance(node, Constant) or node.value.size != 1:
        return None
    return float(node.value.reshape(-1)[0])


# Normalisations.


def _mean_operand(node: Node) -> Node | None:
    """Return x where `node` is mean(x) along the last axis, kept as an extent of 1."""
    call = _call_of(node, mean)
    if call is None:
        return None
    attrs, source = attrs_of(call), call.args[0]
    is_last = tuple(attrs.axes) == (tensor_type(source.type).ndim - 1,)
    return source if is_last and attrs.keepdims else None


def _over_root(call: Call) -> Iterator[tuple[Node, Node]]:
    """Yield x and y where `call` is x / sqrt(y)."""
    if call.op is divide:
        root = _call_of(call.args[1], sqrt)
        if root is not None:
            yield call.args[0], root.args[0]
        return
    for value, other in (call.args, call.args[::-1]):
        inverse = _inverse_root(other)
        if inverse is not None:
            yield value, inverse


def _inverse_root(node: Node) -> Node | None:
    """Return y where `node` is 1 / sqrt(y)."""
    if not isinstance(node, Call):
        return None
    if node.op is rsqrt or (node.op is power and _number(node.args[1]) == -0.5):
        return node.args[0]
    below = node.args[0] if node.op is reciprocal else None
    if node.op is divide and _number(node.args[0]) == 1.0:
        below = node.args[1]
    root = None if below is None else _call_of(below, sqrt)
    return None if root is None else root.args[0]


def _recognise_norm(call: Call, uses: Uses) -> Node | None:
    for source, square in _over_root(call):
        for variance, shift in _with_constant(square, add):
            squared, epsilon = _mean_operand(variance), _number(shift)
            if squared is None or not _is_square(squared, source) or source.type != call.type:
                continue
            if epsilon is not None and epsilon >= 0:
                return _norm_of(source, epsilon, call.origin)
    return None


def _is_square(node: Node, source: Node) -> bool:
    """True for x * x where `source` is x, or where both are reshaped alike."""
    root, shaped = _call_of(node, reshape), _call_of(source, reshape)
    if root is not None and shaped is not None and node.type == source.type:
        node, source = root.args[0], shaped.args[0]
    product = _call_of(node, multiply)
    return product is not None and all(a is source for a in product.args)


def _norm_of(source: Node, epsilon: float, origin: str) -> Node | None:
    type_ = tensor_type(source.type)
    if not dt.is_float(type_.dtype) or not isinstance(type_.shape[-1], int):
        return None
    attrs = LayerNormAttrs(axis=type_.ndim - 1, epsilon=epsilon)
    one, zero = (Constant.of(np.full(1, v), type_.dtype) for v in (1.0, 0.0))
    centred = _call_of(source, subtract)
    if centred is None or _mean_operand(centred.args[1]) is not centred.args[0]:
        return rms_norm.call(attrs, (source, one), origin=origin)
    if centred.args[0].type != type_:
        return None
    return layer_norm.call(attrs, (centred.args[0], one, zero), origin=origin)


def _row(node: Constant, type_: TensorType) -> Constant | None:
    """Return a constant that varies along the last axis of a type only as a vector."""
    size, width = node.value.size, type_.shape[-1] if type_.ndim else 1
    if size not in (1, width) or (size == width and node.value.shape[-1:] != (width,)):
        return None
    row = reshaped(node, (size,), node.origin)
    return row if isinstance(row, Constant) and row.type.dtype == type_.dtype else None


def _parameters(call: Call) -> list[np.ndarray] | None:
    """Return the parameters of a normalisation of rows by constants, None for any other."""
    type_ = tensor_type(call.type)
    if attrs_of(call).axis != type_.ndim - 1:
        return None
    rows = [_row(p, type_) if isinstance(p, Constant) else None for p in call.args[1:]]
    found = [r.value for r in rows if r is not None]
    return found if len(found) == len(rows) else None


def _renormalised(call: Call, parameters: list[np.ndarray], origin: str) -> Node:
    constants = [
        Constant.of(p, origin=a.origin) for p, a in zip(parameters, call.args[1:], strict=True)
    ]
    assert isinstance(call.op, Operator)
    return call.op.call(call.attrs, (call.args[0], *constants), origin=origin)


def _scale_norm(call: Call, uses: Uses) -> Node | None:
    for value, factor in _with_constant(call, multiply):
        if value.type != call.type or not uses.is_single(value) or not isinstance(value, Call):
            continue
        row = _row(factor, tensor_type(call.type)) if value.op in (layer_norm, rms_norm) else None
        parameters = None if row is None else _parameters(value)
        if parameters is not None and row is not None:
            return _renormalised(value, [p * row.value for p in parameters], call.origin)
    return None


def _shift_norm(call: Call, uses: Uses) -> Node | None:
    for value, term in _with_constant(call, add):
        if value.type != call.type or not uses.is_single(value):
            continue
        norm, row = _call_of(value, layer_norm), _row(term, tensor_type(call.type))
        parameters = None if norm is None else _parameters(norm)
        if norm is not None and parameters is not None and row is not None:
            scale, shift = parameters
            return _renormalised(norm, [scale, shift + row.value], call.origin)
    return None


# Gaussian error linear units.

_CLOSE = 1e-4
"""How far, relatively, the constants of an exporter may be from the exact ones."""
_ROOT_HALF = math.sqrt(0.5)
_ROOT_TWO_PI = math.sqrt(2.0 / math.pi)
_TANH_ARGUMENT = {(1, 0): _ROOT_TWO_PI, (3, 0): _ROOT_TWO_PI * 0.044715}
"""By the powers of x: the argument of tanh (Hendrycks and Gimpel, 2016)."""

Terms = dict[tuple[int, int], float]
"""A polynomial in two values: coefficients by their powers."""


def _recognise_gelu(call: Call, uses: Uses) -> Node | None:
    if not dt.is_float(tensor_type(call.type).dtype):
        return None
    for inner in _inside(call, (erf, tanh)):
        argument = inner.args[0]
        wanted = {(1, 0): _ROOT_HALF} if inner.op is erf else _TANH_ARGUMENT
        for source in _bases(argument):
            if source.type != call.type or not _is_close(_terms(argument, source, None), wanted):
                continue
            if _is_close(_terms(call, source, inner), {(1, 0): 0.5, (1, 1): 0.5}):
                approximate = "none" if inner.op is erf else "tanh"
                return gelu(source, approximate=approximate, origin=call.origin)
    return None


def _recognise_mish(call: Call, uses: Uses) -> Node | None:
    for source, other in (call.args, call.args[::-1]):
        bound = _call_of(other, tanh)
        inner = None if bound is None else _call_of(bound.args[0], softplus)
        if inner is not None and inner.args[0] is source:
            return mish(source, origin=call.origin)
    return None


def _is_close(found: Terms | None, wanted: Terms) -> bool:
    if found is None or found.keys() != wanted.keys():
        return False
    return all(math.isclose(found[k], v, rel_tol=_CLOSE) for k, v in wanted.items())


def _inside(node: Node, operators: tuple[Operator[Any], ...]) -> list[Call]:
    """Return the calls of `operators` a few arithmetic steps below a node."""
    return [n for n in _below(node, operators) if isinstance(n, Call) and n.op in operators]


def _bases(node: Node) -> list[Node]:
    """Return every value that a node may be a polynomial of, the nearest first."""
    return [n for n in _below(node, ()) if not isinstance(n, Constant)]


def _below(node: Node, ends: tuple[Operator[Any], ...]) -> list[Node]:
    found: dict[Node, None] = {node: None}
    level = [node]
    for _ in range(ACTIVATION_DEPTH):
        arithmetic = [
            n for n in level if isinstance(n, Call) and n.op in _ARITHMETIC and n.op not in ends
        ]
        level = [a for n in arithmetic for a in n.args if a not in found]
        found.update(dict.fromkeys(level))
    return list(found)


_ARITHMETIC = (add, subtract, multiply, divide, power)


def _terms(
    node: Node, first: Node, second: Node | None, depth: int = ACTIVATION_DEPTH
) -> Terms | None:
    """Return a node as a polynomial in two values, None where it is not one (or a deep one)."""
    if node is first:
        return {(1, 0): 1.0}
    if node is second:
        return {(0, 1): 1.0}
    number = _number(node)
    if number is not None:
        return {(0, 0): number}
    if not isinstance(node, Call) or node.op not in _ARITHMETIC or depth == 0:
        return None
    a, b = (_terms(x, first, second, depth - 1) for x in node.args)
    if a is None or b is None:
        return None
    if node.op is add:
        return _sum_of(a, b, 1.0)
    if node.op is subtract:
        return _sum_of(a, b, -1.0)
    if node.op is multiply:
        return _product_of(a, b)
    return _by_number(node, a, b)


def _by_number(node: Call, a: Terms, b: Terms) -> Terms | None:
    if b.keys() != {(0, 0)}:
        return None
    number = b[0, 0]
    if node.op is divide:
        return {k: v / number for k, v in a.items()} if number else None
    if number not in (2.0, 3.0):
        return None
    square = _product_of(a, a)
    return square if number == 2.0 else _product_of(square, a)


def _sum_of(a: Terms, b: Terms, sign: float) -> Terms:
    return {k: a.get(k, 0.0) + sign * b.get(k, 0.0) for k in (*a, *(k for k in b if k not in a))}


def _product_of(a: Terms, b: Terms) -> Terms:
    found: Terms = {}
    for (p, q), x in a.items():
        for (r, s), y in b.items():
            found[p + r, q + s] = found.get((p + r, q + s), 0.0) + x * y
    return found


RULES = (
    Rule("recognise_gelu", (multiply,), _recognise_gelu),
    Rule("recognise_mish", (multiply,), _recognise_mish),
    Rule("recognise_norm", (divide, multiply), _recognise_norm),
    Rule("scale_norm", (multiply,), _scale_norm),
    Rule("shift_norm", (add,), _shift_norm),
)
