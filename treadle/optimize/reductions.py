# SPDX-License-Identifier: Apache-2.0
"""Convolutions of very many channels as sums of convolutions of some of them.

    conv(x, w)  ->  conv(x[:, :c], w[:, :c]) + conv(x[:, c:], w[:, c:])

A tile of results reads the weights of its filters for all channels, and the next tile reads them
again. Where they are more than level 2 holds they come from further away every time, as what
Winograd's filtering makes of a few tiles does; GotoBLAS blocks the depth of a product for that
reason (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). The sum
of the parts joins the tail of the last of them.
"""

from __future__ import annotations

from math import prod

from treadle.cost.rewrites import channel_parts, tile_weight_bytes
from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.graph.types import tensor_type
from treadle.ops.conv import conv
from treadle.ops.elementwise import add
from treadle.ops.movement import slice_
from treadle.optimize.rule import Rule, apply_rules, attrs_of
from treadle.passes import decided
from treadle.target.base import Target


def split_reductions(function: Function, target: Target) -> Function:
    """Return `function` with convolutions split whose weights of a tile exceed level 2 of a CPU."""
    if target.gpu is not None:
        return function
    rule = Rule("split_reduction", (conv,), lambda call, uses: _split(call, target))
    return apply_rules(function, [rule])


def _split(call: Call, target: Target) -> Node | None:
    x, w = call.args
    made, given = tensor_type(call.type), tensor_type(w.type)
    if not isinstance(w, Constant) or given.dtype != "float32" or attrs_of(call).groups != 1:
        return None
    if not made.is_static or not tensor_type(x.type).is_static or not made.size:
        return None
    filters, channels = given.static_shape[:2]
    filter_bytes, positions = given.nbytes // filters, prod(made.static_shape[2:])
    parts = channel_parts(channels, positions, filter_bytes, given.dtype, target)
    if len(parts) < 2:
        return None
    reads = tile_weight_bytes(filter_bytes, given.dtype, target) >> 10
    reason = f"a tile reads {reads} KB of weights, and level 2 holds {target.l2_bytes >> 10} KB"
    decided(call.origin, "depth", f"{len(parts)} parts", reason)
    total: Node | None = None
    for begin, end in parts:
        some = slice_(x, begin=(begin,), end=(end,), axes=(1,), origin=call.origin)
        weights = Constant.over(w.value[:, begin:end], w.origin)
        product = conv.call(call.attrs, (some, weights), origin=call.origin)
        total = product if total is None else add(total, product, origin=call.origin)
    return total
