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

from itertools import pairwise
from math import prod

from treadle.dtype import bits
from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.graph.types import TensorType, tensor_type
from treadle.limits import REDUCED_CHANNELS, REDUCED_POSITIONS
from treadle.ops.conv import conv
from treadle.ops.elementwise import add
from treadle.ops.movement import slice_
from treadle.optimize.rule import Rule, apply_rules, attrs_of
from treadle.passes import decided
from treadle.target.base import Target

_FILTERS = 2  # vectors of filters that a tile has
_WHOLE = 64  # channels: whole blocks of any target


def split_reductions(function: Function, target: Target) -> Function:
    """Return `function` with convolutions split whose weights of a tile exceed level 2 of a CPU."""
    if target.gpu is not None:
        return function
    rule = Rule("split_reduction", (conv,), lambda call, uses: _split(call, target))
    return apply_rules(function, [rule])


def _split(call: Call, target: Target) -> Node | None:
    x, w = call.args
    ends = _ends(call, target)
    if len(ends) < 3:
        return None
    assert isinstance(w, Constant)
    decided(
        call.origin, "depth", f"{len(ends) - 1} parts",
        f"a tile reads {_tile_bytes(w, target) >> 10} KB of weights, and level 2 holds "
        f"{target.l2_bytes >> 10} KB",
    )  # fmt: skip
    total: Node | None = None
    for begin, end in pairwise(ends):
        part = slice_(x, begin=(begin,), end=(end,), axes=(1,), origin=call.origin)
        value = w.value[:, begin:end]
        weights = Constant(value, TensorType(value.shape, w.type.dtype), w.origin)
        made = conv.call(call.attrs, (part, weights), origin=call.origin)
        total = made if total is None else add(total, made, origin=call.origin)
    return total


def _ends(call: Call, target: Target) -> list[int]:
    """Return where the parts of the channels begin, and the end of the last; [] for one part."""
    x, w = (tensor_type(a.type) for a in call.args)
    if not isinstance(call.args[1], Constant) or w.dtype != "float32" or attrs_of(call).groups != 1:
        return []
    made = tensor_type(call.type)
    channels = w.static_shape[1]
    if channels < REDUCED_CHANNELS or not made.is_static or not x.is_static:
        return []
    if prod(made.static_shape[2:]) < REDUCED_POSITIONS:
        return []
    parts = -(-_tile_bytes(call.args[1], target) // max(1, target.l2_bytes))
    size = -(-channels // (parts * _WHOLE)) * _WHOLE
    return [*range(0, channels, size), channels]


def _tile_bytes(w: Constant, target: Target) -> int:
    """Return the bytes of the weights that a tile of results reads."""
    filters = _FILTERS * target.lanes(bits(w.type.dtype))
    return w.type.nbytes // max(1, w.type.static_shape[0]) * filters
