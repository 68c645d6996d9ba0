# SPDX-License-Identifier: Apache-2.0
"""Rules about convolutions and pooling: padding becomes theirs, one axis becomes two.

1. conv(pad(x))                 -> conv(x) with more padding      (zeros on spatial axes)
2. avg_pool(pad(x))             -> avg_pool(x) with more padding  (where padding counts already)
3. conv over one axis           -> reshape(conv over two axes, the first of extent 1), in groups
                                   of several channels: others have kernels over one axis
4. op(reshape(x))               -> reshape(op(x))   element-wise op; the reshape drops axes of 1
5. op(reshape(x), constant)     -> reshape(op(x, reshaped constant))
6. op(reshape(x), reshape(y))   -> reshape(op(x, y))   x and y of one shape
7. conv(x, w)                   -> conv(x, part of w)  taps at the ends that only meet padding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import Dim, same_dim, tensor_type
from treadle.ops import elementwise
from treadle.ops.conv import conv
from treadle.ops.movement import pad, slice_
from treadle.ops.pool import avg_pool
from treadle.ops.reshaping import reshape
from treadle.optimize.movement_rules import has_same_shape, reshaped, shape_of
from treadle.optimize.rule import Rule, Uses, attrs_of


def _spatial_zeros(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return how many zeros `node` pads before and after each spatial axis of its operand."""
    if not isinstance(node, Call) or node.op is not pad:
        return None
    attrs = attrs_of(node)
    amounts = (*attrs.before, *attrs.after)
    if attrs.mode != "constant" or attrs.value != 0 or any(k < 0 for k in amounts):
        return None
    if any((*attrs.before[:2], *attrs.after[:2])):
        return None
    return attrs.before[2:], attrs.after[2:]


def _sum(pads: Sequence[int], more: Sequence[int]) -> tuple[int, ...]:
    """Return padding per axis; an empty tuple stands for none anywhere."""
    return tuple(a + b for a, b in zip(pads or (0,) * len(more), more, strict=True))


def _pad_into_conv(call: Call, uses: Uses) -> Node | None:
    zeros = _spatial_zeros(call.args[0])
    if zeros is None or not isinstance(call.args[0], Call):
        return None
    attrs = attrs_of(call)
    merged = replace(
        attrs,
        pads_before=_sum(attrs.pads_before, zeros[0]),
        pads_after=_sum(attrs.pads_after, zeros[1]),
    )
    return conv.call(merged, (call.args[0].args[0], call.args[1]), origin=call.origin)


def _pad_into_avg_pool(call: Call, uses: Uses) -> Node | None:
    zeros, attrs = _spatial_zeros(call.args[0]), attrs_of(call)
    if zeros is None or not isinstance(call.args[0], Call) or attrs.layout != "NC":
        return None
    own = (*attrs.pads_before, *attrs.pads_after)
    if any(own) and not attrs.count_include_pad:
        return None
    merged = replace(
        attrs,
        pads_before=_sum(attrs.pads_before, zeros[0]),
        pads_after=_sum(attrs.pads_after, zeros[1]),
        count_include_pad=True,
    )
    pads = zip(merged.kernel, merged.pads_before, merged.pads_after, strict=True)
    if any(max(b, a) >= k for k, b, a in pads):
        return None
    return avg_pool.call(merged, (call.args[0].args[0],), origin=call.origin)


def _conv_to_two_axes(call: Call, uses: Uses) -> Node | None:
    value, weights = call.args
    if tensor_type(value.type).ndim != 3:
        return None
    attrs = attrs_of(call)
    n, c, length = shape_of(value)
    oc, per_group, kernel = shape_of(weights)
    if attrs.groups == 1 or per_group == 1:
        return None
    wider = replace(
        attrs,
        strides=(1, *(attrs.strides or (1,))),
        pads_before=(0, *(attrs.pads_before or (0,))),
        pads_after=(0, *(attrs.pads_after or (0,))),
        dilations=(1, *(attrs.dilations or (1,))),
    )
    x = reshaped(value, (n, c, 1, length), value.origin)
    w = reshaped(weights, (oc, per_group, 1, kernel), weights.origin)
    result = conv.call(wider, (x, w), origin=call.origin)
    return reshape(result, shape=shape_of(call), origin=call.origin)


def _without_dead_taps(call: Call, uses: Uses) -> Node | None:
    """Drop taps at the ends of a window that meet nothing but padding at any position.

    Far dilated windows have such: 18 apart on an image of 17 only the middle one is left.
    """
    value, weights = call.args
    if not tensor_type(value.type).is_static or not tensor_type(weights.type).is_static:
        return None
    attrs, kernel = attrs_of(call), tensor_type(weights.type).static_shape[2:]
    ones, none = (1,) * len(kernel), (0,) * len(kernel)
    steps, apart = attrs.strides or ones, attrs.dilations or ones
    before, after = list(attrs.pads_before or none), list(attrs.pads_after or none)
    begin, end = [0] * len(kernel), list(kernel)
    sizes, places = (
        tensor_type(value.type).static_shape[2:],
        tensor_type(call.type).static_shape[2:],
    )
    for k, (size, count, step, gap) in enumerate(zip(sizes, places, steps, apart, strict=True)):
        last = max(0, count - 1) * step
        while end[k] - begin[k] > 1 and last < before[k] and before[k] >= gap:
            begin[k], before[k] = begin[k] + 1, before[k] - gap
        while end[k] - begin[k] > 1 and after[k] >= gap:
            if (end[k] - begin[k] - 1) * gap < before[k] + size:
                break
            end[k], after[k] = end[k] - 1, after[k] - gap
    if (tuple(begin), tuple(end)) == (none, kernel):
        return None
    axes = tuple(range(2, 2 + len(kernel)))
    part = slice_(weights, begin=tuple(begin), end=tuple(end), axes=axes, origin=weights.origin)
    fewer = replace(attrs, pads_before=tuple(before), pads_after=tuple(after))
    return conv.call(fewer, (value, part), origin=call.origin)


def _dropped_axes(node: Node, uses: Uses) -> tuple[int, ...] | None:
    """Return which axes (of extent 1) a reshape drops, used once; None if it does anything else."""
    if not isinstance(node, Call) or node.op is not reshape or not uses.is_single(node):
        return None
    return _missing(shape_of(node.args[0]), shape_of(node)) or None


def _missing(source: Sequence[Dim], target: Sequence[Dim]) -> tuple[int, ...] | None:
    """Return which axes of 1 `target` lacks, the last possible ones; None if others differ."""
    if not source:
        return None if target else ()
    if target and same_dim(source[0], target[0]):
        rest = _missing(source[1:], target[1:])
        if rest is not None:
            return tuple(axis + 1 for axis in rest)
    if isinstance(source[0], int) and source[0] == 1:
        rest = _missing(source[1:], target)
        if rest is not None:
            return (0, *(axis + 1 for axis in rest))
    return None


def _sink_reshape(call: Call, uses: Uses) -> Node | None:
    """Apply rules 4 to 6: the reshape moves behind the element-wise operator."""
    if not isinstance(call.op, Operator):
        return None
    source = next((a for a in call.args if _dropped_axes(a, uses)), None)
    if not isinstance(source, Call) or not has_same_shape(source, call):
        return None
    axes = _dropped_axes(source, uses) or ()
    inner = source.args[0]
    args: list[Node] = []
    for arg in call.args:
        moved = inner if arg is source else _like(arg, axes, inner, call, uses)
        if moved is None:
            return None
        args.append(moved)
    result = call.op.call(call.attrs, args, origin=call.origin)
    if not has_same_shape(result, inner):
        return None
    return reshape(result, shape=shape_of(call), origin=call.origin)


def _like(arg: Node, axes: tuple[int, ...], inner: Node, call: Call, uses: Uses) -> Node | None:
    """Return an operand in the shape it has before `axes` are dropped, None if it has none."""
    if isinstance(arg, Constant):
        shape = [1] * (len(shape_of(call)) - arg.value.ndim) + list(arg.value.shape)
        for axis in axes:
            shape.insert(axis, 1)
        return Constant.of(arg.value.reshape(shape), origin=arg.origin)
    if isinstance(arg, Call) and _dropped_axes(arg, uses) == axes:
        return arg.args[0] if has_same_shape(arg.args[0], inner) else None
    return None


_POINTWISE = tuple(
    op for op in vars(elementwise).values() if isinstance(op, Operator) and op.fusion in POINTWISE
)

RULES = (
    Rule("pad_into_conv", (conv,), _pad_into_conv),
    Rule("pad_into_avg_pool", (avg_pool,), _pad_into_avg_pool),
    Rule("conv_to_two_axes", (conv,), _conv_to_two_axes),
    Rule("without_dead_taps", (conv,), _without_dead_taps),
    Rule("sink_reshape", _POINTWISE, _sink_reshape),
)
