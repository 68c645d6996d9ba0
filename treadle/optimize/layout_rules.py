# SPDX-License-Identifier: Apache-2.0
"""Rules about moves into and out of channel blocks: what cancels, and channels that stand last.

1. pack of an unpack of the same blocks, without padding lanes -> what was unpacked
2. unpack of a pack -> what was packed
3. pack of a transpose that takes the channels from the end -> reshape, transpose
4. transpose of an unpack that brings the channels to the end -> transpose, reshape
5. the same as 3 of layer_norm along the channels, with element-wise operators of one value in
   between -> layer_norm_nchwc, the same operators

3 and 4 are for tokens and NHWC images, and may reshape the image in between: [n, h * w, c] for
tokens. What is left moves whole blocks, vectors in memory, in one kernel instead of two that
transpose the tensor twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from treadle.graph.nodes import Call, Node
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import Dim, same_dim
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
from treadle.ops.lowered.layer_norm_nchwc import BlockedNormAttrs, layer_norm_nchwc
from treadle.ops.norm import layer_norm
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize.movement_rules import shape_of
from treadle.optimize.rule import Rule, Uses, attrs_of


def _pack_of_unpack(call: Call, uses: Uses) -> Node | None:
    unpacked = call.args[0]
    if not isinstance(unpacked, Call) or unpacked.op is not unpack_nchwc:
        return None
    *_, block = shape_of(unpacked.args[0])
    # Padding lanes hold anything, and those of a pack are zero.
    is_whole = attrs_of(unpacked).channels % attrs_of(call).block == 0
    return unpacked.args[0] if is_whole and same_dim(block, attrs_of(call).block) else None


def _unpack_of_pack(call: Call, uses: Uses) -> Node | None:
    packed = call.args[0]
    if not isinstance(packed, Call) or packed.op is not pack_nchwc:
        return None
    return packed.args[0] if packed.args[0].type == call.type else None


def _below_reshape(node: Node) -> Node:
    return node.args[0] if isinstance(node, Call) and node.op is reshape else node


def moved_channels(move: Call, image: Node, *, to_front: bool) -> int | None:
    """Return the axis of the channels of an image before a transpose that only moves them.

    It takes them from the end `to_front`, or brings them there; None for another transpose. The
    image is [n, channels, ...]; where n is 1 what is moved may lack its axis, and axes of one
    element may stand anywhere.
    """
    n, channels, *_ = shape_of(image)
    given = shape_of(move.args[0])
    axes = [k for k in attrs_of(move).perm if not same_dim(given[k], 1)]
    lead = axes[: int(not same_dim(n, 1))]
    moved = axes[len(lead) :]
    if not moved:
        return None
    channel, others = (moved[0], moved[1:]) if to_front else (moved[-1], moved[:-1])
    before = [*lead, *others, channel] if to_front else [*lead, channel, *others]
    sizes = [given[k] for k in (*lead, channel)]
    wanted = [n, channels] if lead else [channels]
    is_move = before == sorted(axes) and all(map(same_dim, sizes, wanted))
    return channel if is_move else None


def _pack_from_end(call: Call, uses: Uses) -> Node | None:
    n, channels, *image = shape_of(call.args[0])
    block, moved = attrs_of(call).block, _below_reshape(call.args[0])
    if not isinstance(channels, int) or channels % block:
        return None
    if not isinstance(moved, Call) or moved.op is not transpose:
        return None
    if moved_channels(moved, call.args[0], to_front=True) is None:
        return None
    if all(map(uses.is_single, (moved, call.args[0]))):
        normed = _norm_in_blocks(moved.args[0], (n, *image), block, uses)
        if normed is not None:
            return normed
    shape: tuple[Dim, ...] = (n, *image, channels // block, block)
    cut = reshape(moved.args[0], shape=shape, origin=call.origin)
    last = len(shape) - 1
    return transpose(cut, perm=(0, last - 1, *range(1, last - 1), last), origin=call.origin)


def _unpack_to_end(call: Call, uses: Uses) -> Node | None:
    unpacked = _below_reshape(call.args[0])
    if not isinstance(unpacked, Call) or unpacked.op is not unpack_nchwc:
        return None
    if moved_channels(call, unpacked, to_front=False) is None:
        return None
    blocked = unpacked.args[0]
    shape = shape_of(blocked)
    chunks, block = shape[1], shape[-1]
    known = [d for d in (chunks, block) if isinstance(d, int)]
    if len(known) < 2 or prod(known) != attrs_of(unpacked).channels:
        return None
    last = len(shape) - 1
    transposed = transpose(blocked, perm=(0, *range(2, last), 1, last), origin=unpacked.origin)
    return reshape(transposed, shape=shape_of(call), origin=call.origin)


def _norm_in_blocks(source: Node, rows: Sequence[Dim], block: int, uses: Uses) -> Node | None:
    """Return normalised rows [n, *image, channels] as a norm that writes blocks; None of others.

    Element-wise operators of one value may follow the norm.
    """
    norm, tail = source, []
    while isinstance(norm, Call) and uses.is_single(norm) and _is_unary(norm):
        tail.append(norm)
        norm = norm.args[0]
    if not isinstance(norm, Call) or norm.op is not layer_norm or not uses.is_single(norm):
        return None
    x, scale, bias = norm.args
    *_, channels = shape_of(x)
    if attrs_of(norm).axis != len(shape_of(x)) - 1:
        return None
    if any(shape_of(p) != (channels,) for p in (scale, bias)):
        return None
    apart = reshape(x, shape=(*rows, channels), origin=norm.origin)
    how = BlockedNormAttrs(block, attrs_of(norm).epsilon)
    made: Node = layer_norm_nchwc.call(how, (apart, scale, bias), origin=norm.origin)
    for one in reversed(tail):
        assert isinstance(one.op, Operator)
        made = one.op.call(one.attrs, (made,), origin=one.origin)
    return made


def _is_unary(call: Call) -> bool:
    """True for an element-wise operator of one value of its own type."""
    is_pointwise = isinstance(call.op, Operator) and call.op.fusion in POINTWISE
    return is_pointwise and len(call.args) == 1 and call.args[0].type == call.type


RULES = (
    Rule("pack_of_unpack", (pack_nchwc,), _pack_of_unpack),
    Rule("unpack_of_pack", (unpack_nchwc,), _unpack_of_pack),
    Rule("pack_from_end", (pack_nchwc,), _pack_from_end),
    Rule("unpack_to_end", (transpose,), _unpack_to_end),
)
