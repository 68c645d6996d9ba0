# SPDX-License-Identifier: Apache-2.0
"""Rules that compute 1x1 convolutions before images grow, where there are fewer positions.

Resizing sums positions of one channel, a 1x1 convolution channels of one position: either may come
first. Below, x grows by R and nothing else reads what R makes of it.

1. conv(R(x), w)            -> R(conv(x, w))
2. conv(concat(a, R(x)), w) -> R(conv(x, w')) + conv(a, w'')    in any order, of any number

Heads that join the features of several resolutions are of the second form.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from treadle.cost.rewrites import resizes_results
from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.graph.types import known_sizes, tensor_type
from treadle.ops.conv import ConvAttrs, conv
from treadle.ops.elementwise import add
from treadle.ops.image import resize
from treadle.ops.movement import concat
from treadle.ops.resize_coordinates import ResizeAttrs
from treadle.optimize.rule import Rule, Uses, apply_rules, attrs_of


def convolve_before_resizing(function: Function) -> Function:
    """Return `function` with its 1x1 convolutions of grown images moved before the growth."""
    return apply_rules(function, RULES)


def _before_resize(call: Call, uses: Uses) -> Node | None:
    if not _is_pointwise(call):
        return None
    x, w = call.args
    assert isinstance(w, Constant)
    if _grows(x, w.type.static_shape[0], uses):
        return _grown(call, x, w)
    if not isinstance(x, Call) or x.op is not concat or not uses.is_single(x):
        return None
    if attrs_of(x).axis != 1 or not any(_grows(a, w.type.static_shape[0], uses) for a in x.args):
        return None
    return _sum_of_parts(call, x, w, uses)


def _sum_of_parts(call: Call, joined: Call, w: Constant, uses: Uses) -> Node:
    """Return the sum of what each grown part makes, and of what the others make together."""
    widths = [known_sizes(tensor_type(a.type).shape[1:2])[0] for a in joined.args]
    total: Node | None = None
    rest: list[tuple[Node, Constant]] = []
    for part, (begin, end) in zip(
        joined.args, pairwise(accumulate(widths, initial=0)), strict=True
    ):
        weights = Constant.of(w.value[:, begin:end], origin=w.origin)
        if not _grows(part, w.type.static_shape[0], uses):
            rest.append((part, weights))
            continue
        made = _grown(call, part, weights)
        total = made if total is None else add(total, made, origin=call.origin)
    assert total is not None
    if not rest:
        return total
    others = [part for part, _ in rest]
    x = concat(*others, axis=1, origin=joined.origin) if len(others) > 1 else others[0]
    weights = rest[0][1]
    if len(rest) > 1:
        values = [weights.value for _, weights in rest]
        weights = Constant.of(np.concatenate(values, axis=1), origin=w.origin)
    return add(total, conv.call(call.attrs, (x, weights), origin=call.origin), origin=call.origin)


def _grown(call: Call, x: Node, w: Constant) -> Node:
    """Return the resize `x` of what the convolution `call` makes of its operand by weights `w`."""
    assert isinstance(x, Call)
    attrs = x.attrs
    assert isinstance(attrs, ResizeAttrs)
    made = conv.call(call.attrs, (x.args[0], w), origin=call.origin)
    kept = replace(attrs, sizes=(-1, -1, *attrs.sizes[2:]))
    return resize.call(kept, (made,), origin=x.origin)


def _is_pointwise(call: Call) -> bool:
    """True for 1x1 convolutions of known weights without groups that keep an image's extents."""
    w, attrs = call.args[1], call.attrs
    assert isinstance(attrs, ConvAttrs)
    moves = (*attrs.strides, *attrs.dilations)
    pads = (*attrs.pads_before, *attrs.pads_after)
    if not isinstance(w, Constant) or attrs.groups != 1 or any(pads):
        return False
    is_float = w.type.dtype in ("float32", "float64")
    is_one = all(k == 1 for k in (*w.type.static_shape[2:], *moves))
    return is_float and is_one and tensor_type(call.type).is_static


def _grows(x: Node, filters: int, uses: Uses) -> bool:
    """True where `x` is resized to so many more positions that it should be convolved before."""
    if not isinstance(x, Call) or x.op is not resize or not uses.is_single(x):
        return False
    attrs, before, after = x.attrs, tensor_type(x.args[0].type), tensor_type(x.type)
    assert isinstance(attrs, ResizeAttrs)
    crops = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    if crops or not before.is_static or any(k < 2 for k in attrs.changed(before.shape)):
        return False
    channels = before.static_shape[1]
    return resizes_results(channels, filters, max(1, after.size) / max(1, before.size))


RULES = (Rule("convolve_before_resizing", (conv,), _before_resize),)
