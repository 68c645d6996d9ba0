# SPDX-License-Identifier: Apache-2.0
"""Rules about moves into and out of channel blocks: what cancels, and channels that stand last.

1. pack of an unpack of the same blocks, without padding lanes -> what was unpacked
2. unpack of a pack -> what was packed
3. pack of a transpose that takes the channels from the end -> reshape, transpose
4. transpose of an unpack that brings the channels to the end -> transpose, reshape

The last two are for tokens and NHWC images, and may reshape the image in between: [n, h * w, c] for
tokens. What is left moves whole blocks, vectors in memory, in one kernel instead of two that
transpose the tensor twice.
"""

from __future__ import annotations

from math import prod

from treadle.graph.nodes import Call, Node
from treadle.graph.types import Dim, same_dim
from treadle.ops.lowered.channel_blocks import pack_nchwc, unpack_nchwc
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


def _below_reshape(node: Node) -> Call | None:
    """Return the call that an image comes from: itself, or below a reshape of the image alone."""
    if not isinstance(node, Call) or node.op is not reshape:
        return node if isinstance(node, Call) else None
    source, after = node.args[0], shape_of(node)
    before = shape_of(source)
    if not isinstance(source, Call) or len(before) < 3 or len(after) < 3:
        return None
    keeps = all(same_dim(a, b) for a, b in zip(before[:2], after[:2], strict=True))
    return source if keeps else None


def _channels_to_front(image: Node) -> Call | None:
    """Return the transpose that takes the channels of an image from the end, below a reshape.

    Of one image the transposed value may have no axis for the images.
    """
    moved = _below_reshape(image)
    if moved is not None and moved.op is transpose:
        perm = list(attrs_of(moved).perm)
        return moved if perm == [0, len(perm) - 1, *range(1, len(perm) - 1)] else None
    source = image.args[0] if isinstance(image, Call) and image.op is reshape else None
    if not isinstance(source, Call) or source.op is not transpose:
        return None
    perm, (n, channels, *_) = list(attrs_of(source).perm), shape_of(image)
    is_one = same_dim(n, 1) and same_dim(shape_of(source)[0], channels)
    return source if is_one and perm == [len(perm) - 1, *range(len(perm) - 1)] else None


def _is_channels_to_end(call: Call) -> bool:
    perm = list(attrs_of(call).perm)
    return perm == [0, *range(2, len(perm)), 1]


def _pack_from_end(call: Call, uses: Uses) -> Node | None:
    n, channels, *image = shape_of(call.args[0])
    moved = _channels_to_front(call.args[0])
    if moved is None:
        return None
    block = attrs_of(call).block
    if not isinstance(channels, int) or channels % block:
        return None
    shape: tuple[Dim, ...] = (n, *image, channels // block, block)
    cut = reshape(moved.args[0], shape=shape, origin=call.origin)
    last = len(shape) - 1
    return transpose(cut, perm=(0, last - 1, *range(1, last - 1), last), origin=call.origin)


def _unpack_to_end(call: Call, uses: Uses) -> Node | None:
    unpacked = _below_reshape(call.args[0])
    if unpacked is None or unpacked.op is not unpack_nchwc or not _is_channels_to_end(call):
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


RULES = (
    Rule("pack_of_unpack", (pack_nchwc,), _pack_of_unpack),
    Rule("unpack_of_pack", (unpack_nchwc,), _unpack_of_pack),
    Rule("pack_from_end", (pack_nchwc,), _pack_from_end),
    Rule("unpack_to_end", (transpose,), _unpack_to_end),
)
