# SPDX-License-Identifier: Apache-2.0
"""Rules that bring work along the last axis to matrices: one row per element of the other axes.

Below, R is a reshape that keeps the last axis, x' and y' are its operands.

1. matmul(x, w), w a matrix, x with more than two axes -> R(matmul(x', w)); a constant w whose axes
   before the last two have one element each is a matrix
2. an element-wise operator of R(x')      -> R(the operator of x')
3. f(R(x'), y), y a value of the same shape, or one that is repeated along some of its axes
   -> R(f(x', y'))
4. layer_norm or rms_norm along the last axis of R(x') -> R(the same of x')

So a product, its bias, activation and residual sum meet on one shape and become one kernel.
"""

from __future__ import annotations

import math
from typing import Any

from treadle.expr.nodes import int_value
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.operator import POINTWISE, Fusion, Operator
from treadle.graph.types import TensorType, product_of, same_dim, tensor_type
from treadle.ops import elementwise
from treadle.ops.matmul import matmul
from treadle.ops.norm import LayerNormAttrs, layer_norm, rms_norm
from treadle.ops.reshaping import broadcast_to, reshape
from treadle.optimize.movement_rules import reshaped
from treadle.optimize.reshape_rules import factors_of
from treadle.optimize.rule import Rule, Uses, attrs_of

_WORK = (*POINTWISE, Fusion.ANCHOR, Fusion.REDUCE)


def _flatten_product(call: Call, uses: Uses) -> Node | None:
    a, b = call.args
    rows, weights = tensor_type(a.type), tensor_type(b.type)
    if rows.ndim <= 2 or weights.ndim != 2 or 0 in map(int_value, rows.shape):
        return None
    flat = reshaped(a, (product_of(rows.shape[:-1]), rows.shape[-1]), a.origin)
    return reshape(
        matmul.call(call.attrs, (flat, b), origin=call.origin),
        shape=tensor_type(call.type).shape,
        origin=call.origin,
    )


def _flatten_weights(call: Call, uses: Uses) -> Node | None:
    a, b = call.args
    rows, weights = tensor_type(a.type), tensor_type(b.type)
    if not isinstance(b, Constant) or rows.ndim < 2 or weights.ndim <= 2:
        return None
    *batch, k, n = weights.static_shape
    if any(d != 1 for d in batch):
        return None
    made = matmul.call(call.attrs, (a, reshaped(b, (k, n), b.origin)), origin=call.origin)
    return reshaped(made, tensor_type(call.type).shape, call.origin)


def _unshaped(node: Node) -> Node | None:
    """Return the operand of a reshape that keeps a last axis of more than one element."""
    if not isinstance(node, Call) or node.op is not reshape:
        return None
    inner, outer = tensor_type(node.args[0].type), tensor_type(node.type)
    if not inner.ndim or not outer.ndim:
        return None
    width, same = inner.shape[-1], same_dim(inner.shape[-1], outer.shape[-1])
    return node.args[0] if same and isinstance(width, int) and width > 1 else None


def _sink_reshape(call: Call, uses: Uses) -> Node | None:
    shaped = next((a for a in call.args if _is_computed(_unshaped(a))), None)
    if shaped is None or not isinstance(call.op, Operator):
        return None
    value = _unshaped(shaped)
    assert value is not None
    if not isinstance(call.type, TensorType) or call.type.shape != tensor_type(shaped.type).shape:
        return None
    fitted = [_fitted(a, shaped, value, uses) for a in call.args]
    args = [a for a in fitted if a is not None]
    if len(args) < len(fitted):
        return None
    result = call.op.call(call.attrs, args, origin=call.origin)
    return reshape(result, shape=call.type.shape, origin=call.origin)


def _is_computed(node: Node | None) -> bool:
    """True for a value whose kernel a user can join."""
    return isinstance(node, Call) and isinstance(node.op, Operator) and node.op.fusion in _WORK


def _fitted(arg: Node, shaped: Node, value: Node, uses: Uses) -> Node | None:
    """Return an operand as it goes with `value` where it went with `shaped`; None: it cannot."""
    type_, wanted = tensor_type(arg.type), tensor_type(value.type)
    width = wanted.shape[-1]
    if type_.is_static and type_.size == 1:
        return reshaped(arg, (1,) * wanted.ndim, arg.origin)
    if type_.is_static and type_.size == type_.static_shape[-1] == width:
        return reshaped(arg, (*(1,) * (wanted.ndim - 1), width), arg.origin)
    if type_.shape != tensor_type(shaped.type).shape:
        return _regrouped(arg, tensor_type(shaped.type), wanted)
    own = _unshaped(arg)
    if own is not None and own.type == wanted:
        return own
    # A sum that could join the kernel of this operand instead stays where it is.
    if not isinstance(arg, Constant) and own is None and uses.is_single(arg) and _is_computed(arg):
        return None
    return reshaped(arg, wanted.shape, arg.origin)


def _regrouped(arg: Node, shaped: TensorType, value: TensorType) -> Node | None:
    """Return an operand that is repeated along axes of `shaped` as it is along those of `value`.

    None where an axis of `value` joins some that it is repeated along with others that it is not,
    but for a constant of half as many elements at most, which is then written out.
    """
    type_ = tensor_type(arg.type)
    if not (type_.is_static and shaped.is_static and value.is_static):
        return None
    factors = factors_of(shaped.static_shape, value.static_shape)
    if factors is None or type_.ndim > shaped.ndim:
        return None
    own = (*(1,) * (shaped.ndim - type_.ndim), *type_.static_shape)
    axes = zip(own, shaped.static_shape, factors.old, strict=True)
    kept = {f for have, all_, axis in axes if have == all_ for f in axis}
    made = {f for axis in factors.new if kept.intersection(axis) for f in axis}
    sizes = [size if f in made else 1 for f, size in enumerate(factors.sizes)]
    if made != kept:
        if not isinstance(arg, Constant) or 2 * math.prod(sizes) > value.size:
            return None
        cut = [size if f in kept else 1 for f, size in enumerate(factors.sizes)]
        arg = broadcast_to(reshaped(arg, tuple(cut), arg.origin), shape=tuple(sizes))
    shape = [math.prod(sizes[f] for f in axis) for axis in factors.new]
    return reshaped(arg, tuple(shape), arg.origin)


def _sink_below_norm(call: Call, uses: Uses) -> Node | None:
    attrs = attrs_of(call)
    value = _unshaped(call.args[0])
    shape = tensor_type(call.type).shape
    parameters = [tensor_type(p.type) for p in call.args[1:]]
    if value is None or attrs.axis != len(shape) - 1 or any(p.ndim > 1 for p in parameters):
        return None
    moved = LayerNormAttrs(axis=tensor_type(value.type).ndim - 1, epsilon=attrs.epsilon)
    assert isinstance(call.op, Operator)
    result = call.op.call(moved, (value, *call.args[1:]), origin=call.origin)
    return reshape(result, shape=shape, origin=call.origin)


def _pointwise() -> tuple[Operator[Any], ...]:
    found = (v for v in vars(elementwise).values() if isinstance(v, Operator))
    return tuple(op for op in found if op.fusion in POINTWISE)


RULES = (
    Rule("flatten_product", (matmul,), _flatten_product),
    Rule("flatten_weights", (matmul,), _flatten_weights),
    Rule("sink_reshape", _pointwise(), _sink_reshape),
    Rule("sink_reshape_below_norm", (layer_norm, rms_norm), _sink_below_norm),
)
