# SPDX-License-Identifier: Apache-2.0
"""Which operators other than convolutions run on channel blocks, and as what.

A rule gets the values and a call with an operand in blocks. It returns the result in blocks; None
where the operator needs the layout of the model, or where the rule has stored a plain result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import Dim, TensorType, same_dim, tensor_type
from treadle.ops.image import resize
from treadle.ops.indexing import gather
from treadle.ops.movement import concat, pad, slice_
from treadle.ops.pool import avg_pool, max_pool
from treadle.ops.reduce import max_, mean, min_, sum_
from treadle.ops.reshaping import reshape
from treadle.optimize.blocked import IMAGES, Blocked, Values, unpacked
from treadle.optimize.channel_order import ChannelOrder

Rule = Callable[[Values, Call], Blocked | None]


def blocked_call(values: Values, node: Call) -> Blocked | None:
    """Return the result of a call with an operand in blocks; None where no rule makes it."""
    operator = node.op
    assert isinstance(operator, Operator)
    if operator.fusion in POINTWISE:
        return pointwise(values, node)
    rule = _RULES.get(operator)
    return None if rule is None else rule(values, node)


def can_carry_blocks(node: Call) -> bool:
    """True for an operator that mostly has its result in blocks of channels as its operand is."""
    operator, out = node.op, node.type
    if not isinstance(operator, Operator) or not isinstance(out, TensorType):
        return False
    return out.ndim in IMAGES and (operator.fusion in POINTWISE or operator in _RULES)


def pointwise(values: Values, node: Call) -> Blocked | None:
    """Element-wise operators take any order of channels, that of an operand that has a fixed one.

    Those that can make infinities or NaN of what padding lanes hold need channels without them.
    """
    operator, out = node.op, tensor_type(node.type)
    assert isinstance(operator, Operator)
    if out.ndim not in IMAGES or not isinstance(out.shape[1], int):
        return None
    order = _common_order(values, node, out.shape[1])
    if order is None or (order.has_padding_lanes and not operator.keeps_finite):
        return None
    if not all(_can_follow(a, out.shape) for a in node.args):
        return None

    def make(wanted: ChannelOrder) -> Node:
        operands = [values.operand(a, wanted, out.ndim) for a in node.args]
        return operator.call(node.attrs, operands, origin=node.origin)

    wide = [values.blocked[a] for a in node.args if a in values.blocked]
    flexible = all(b.remake is not None for b in wide)
    return Blocked(make(order), order, make if flexible else None)


def _common_order(values: Values, node: Call, channels: int) -> ChannelOrder | None:
    """The order of the operand that cannot change its own, else of the first."""
    wide = [
        values.blocked[a]
        for a in node.args
        if a in values.blocked and tensor_type(a.type).shape[1] == channels
    ]
    fixed = [b for b in wide if b.remake is None]
    chosen = fixed or wide
    return chosen[0].order if chosen else None


def _can_follow(x: Node, shape: tuple[Dim, ...]) -> bool:
    """True when an operand can broadcast with a blocked result of plain shape `shape`."""
    type_ = tensor_type(x.type)
    if type_.ndim > len(shape):
        return False
    full = (1,) * (len(shape) - type_.ndim) + type_.shape
    if same_dim(full[1], 1):
        return True
    is_whole = isinstance(x, Constant) or type_.ndim == len(shape)
    return same_dim(full[1], shape[1]) and is_whole


def _pool(values: Values, node: Call) -> Blocked | None:
    operator = node.op
    assert isinstance(operator, Operator)
    if tensor_type(node.type).ndim not in IMAGES:
        return None
    source = values.as_blocked(node.args[0])
    attrs: Any = replace(node.attrs, layout="NCc")  # type: ignore[type-var]
    return Blocked(operator.call(attrs, (source.node,), origin=node.origin), source.order)


def _reduce(values: Values, node: Call) -> Blocked | None:
    """Reduce over the image; without `keepdims` the result [n, c] is plain at once."""
    operator, attrs = node.op, node.attrs
    assert isinstance(operator, Operator)
    ndim = tensor_type(node.args[0].type).ndim
    spatial = tuple(range(2, ndim))
    if ndim not in IMAGES or tuple(sorted(attrs.axes)) != spatial:  # type: ignore[union-attr]
        return None
    source = values.as_blocked(node.args[0])
    call = operator(source.node, axes=spatial, keepdims=True, origin=node.origin)
    kept = Blocked(call, source.order)
    if attrs.keepdims:  # type: ignore[union-attr]
        return kept
    out = tensor_type(node.type)
    whole = TensorType((*out.shape, *(1 for _ in spatial)), out.dtype)
    values.plain[node] = reshape(unpacked(kept, whole, node.origin), shape=out.shape)
    return None


def _concat(values: Values, node: Call) -> Blocked | None:
    """Join blocks: along channels whatever their orders, else in the order of the first."""
    axis: int = node.attrs.axis  # type: ignore[union-attr]
    if tensor_type(node.type).ndim not in IMAGES:
        return None
    parts = [values.as_blocked(a) for a in node.args]
    order = parts[0].order
    if axis == 1:
        for part in parts[1:]:
            order = order.followed_by(part.order)
        nodes = [p.node for p in parts]
    else:
        again = [p.reordered(order) for p in parts]
        nodes = [n for n in again if n is not None]
        if len(nodes) != len(parts):
            return None
    return Blocked(concat(*nodes, axis=axis, origin=node.origin), order)


def _pad(values: Values, node: Call) -> Blocked | None:
    attrs: Any = node.attrs
    if len(attrs.before) not in IMAGES or any((*attrs.before[:2], *attrs.after[:2])):
        return None
    made = replace(attrs, before=(*attrs.before, 0), after=(*attrs.after, 0))
    source = values.as_blocked(node.args[0])
    return Blocked(pad.call(made, (source.node,), origin=node.origin), source.order)


def _slice(values: Values, node: Call) -> Blocked | None:
    """Slices of the image, and of channels where they are whole blocks in their order."""
    attrs: Any = node.attrs
    source = values.as_blocked(node.args[0])
    axes = attrs.axes or tuple(range(len(attrs.begin)))
    strides = attrs.strides or (1,) * len(axes)
    begin, end = list(attrs.begin), list(attrs.end)
    order, block = source.order, source.order.block
    for i, axis in enumerate(axes):
        if axis != 1:
            continue
        first, last = begin[i], end[i]
        begin[i], end[i] = first // block, -(-last // block)
        held = order.places[begin[i] * block :][: last - first]
        if strides[i] != 1 or first % block or held != tuple(range(first, last)):
            return None
        order = ChannelOrder.natural(last - first, block)
    made = replace(attrs, begin=tuple(begin), end=tuple(end), axes=axes, strides=strides)
    return Blocked(slice_.call(made, (source.node,), origin=node.origin), order)


def _gather(values: Values, node: Call) -> Blocked | None:
    """A permutation of channels renames them; nothing moves."""
    data, indices = node.args
    axis: int = node.attrs.axis  # type: ignore[union-attr]
    if axis != 1 or not isinstance(indices, Constant) or tensor_type(data.type).ndim != 4:
        return None
    channels = tensor_type(data.type).shape[1]
    if not isinstance(channels, int):
        return None
    picked = indices.value
    if picked.ndim != 1 or sorted(picked.tolist()) != list(range(channels)):
        return None
    source = values.as_blocked(data)
    return Blocked(source.node, source.order.renamed(picked))


_RULES: Mapping[object, Rule] = {
    max_pool: _pool,
    avg_pool: _pool,
    mean: _reduce,
    sum_: _reduce,
    max_: _reduce,
    min_: _reduce,
    concat: _concat,
    pad: _pad,
    slice_: _slice,
    gather: _gather,
    resize: Values.as_blocked_resize,
}
