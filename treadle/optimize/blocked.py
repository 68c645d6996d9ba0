# SPDX-License-Identifier: Apache-2.0
"""Values in channel blocks: the plain and the other forms of each, and the moves between them.

Blocked is [n, c/block, *spatial, block] (NCHWc: Liu et al., "Optimizing CNN Model Inference on
CPUs", USENIX ATC 2019). Channels may lie in any order with padding lanes between them
(`ChannelOrder`); those hold finite values of no meaning that only ever meet zero weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from treadle.cost.rewrites import is_spliced
from treadle.dtype import bits
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.types import Dim, TensorType, Type, known_sizes, same_dim, tensor_type
from treadle.ops.image import resize
from treadle.ops.indexing import gather
from treadle.ops.lowered.channel_blocks import (
    element_of,
    pack_nchwc,
    reorder_nchwc,
    splice_nchwc,
    unpack_nchwc,
)
from treadle.ops.reshaping import reshape
from treadle.ops.resize_coordinates import ResizeAttrs
from treadle.optimize.channel_order import ChannelOrder, pack_channels, packed_constant, runs_of
from treadle.target.base import Target

IMAGES = (3, 4, 5)
"""Dimensions of signals, images and volumes, batch and channels included."""


def block_of(target: Target, dtype: str) -> int:
    """Return the channel block for a target: a vector register, at least 8 elements."""
    return max(8, target.lanes(bits(dtype)))


@dataclass(frozen=True, slots=True, eq=False)
class Blocked:
    """A value in blocks, its channels in `order`.

    `remake`, where there is one, makes the value in another order of channels at no cost: weights
    are arranged when the model is compiled.
    """

    node: Node
    order: ChannelOrder
    remake: Callable[[ChannelOrder], Node] | None = None

    def reordered(self, order: ChannelOrder) -> Node | None:
        """Return the value in `order`; None where that would move data."""
        if self.order == order:
            return self.node
        return None if self.remake is None else self.remake(order)


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """An image whose pixels are one row: [n, c, pixels], for what does the same with each."""

    node: Node


class Values:
    """The plain and the other forms of every value of the new graph, each made when needed.

    Keys are nodes of the graph that is rewritten; `plain`, `blocked` and `flat` hold nodes of the
    new one, the last those of images that were made with their pixels as one row.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.plain: dict[Node, Node] = {}
        self.blocked: dict[Node, Blocked] = {}
        self.flat: dict[Node, Node] = {}
        self.moved: dict[tuple[Node, ChannelOrder], Node] = {}

    def clear(self) -> None:
        """Let go of all values: what remakes them refers to this object, and would keep the old
        weights in memory."""
        self.plain.clear()
        self.blocked.clear()
        self.flat.clear()
        self.moved.clear()

    def is_blocked(self, x: Node) -> bool:
        """True for a value that exists in blocks only."""
        return x in self.blocked and x not in self.plain

    def as_plain(self, x: Node) -> Node:
        """Return a value in the layout of the model; what a method has just made is in it."""
        if x not in self.plain and is_enlarged(x):
            assert isinstance(x, Call)
            self.plain[x] = resized(x, self.as_plain(x.args[0]))
        elif x not in self.plain and x in self.flat:
            self.plain[x] = reshape(self.flat[x], shape=tensor_type(x.type).shape, origin=x.origin)
        elif x not in self.plain and x not in self.blocked:
            self.plain[x] = x
        elif x not in self.plain:
            self.plain[x] = unpacked(self.blocked[x], tensor_type(x.type), x.origin)
        return self.plain[x]

    def as_flat(self, x: Node) -> Node:
        """Return an image [n, c, *spatial] of known sizes with its pixels as one row."""
        if x in self.flat:
            return self.flat[x]
        return reshaped(self.as_plain(x), flat_shape(tensor_type(x.type).shape))

    def as_blocked(self, x: Node) -> Blocked:
        """Return a value in blocks, packed where it is not; its channels must be known."""
        if x not in self.blocked and is_enlarged(x):
            assert isinstance(x, Call)
            grown = self.as_blocked_resize(x)
            if grown is not None:
                self.blocked[x] = grown
        if x not in self.blocked:
            order = self.order_of(x)
            packed = pack_nchwc(self.as_plain(x), block=order.block, origin=x.origin)
            self.blocked[x] = Blocked(packed, order)
        return self.blocked[x]

    def order_of(self, x: Node) -> ChannelOrder:
        """Return the order that the channels of a value have in blocks; makes no node."""
        if x in self.blocked:
            return self.blocked[x].order
        if is_enlarged(x) and keeps_channels(x):
            assert isinstance(x, Call)
            return self.order_of(x.args[0])
        type_ = tensor_type(x.type)
        return ChannelOrder.natural(channels_of(type_), block_of(self.target, type_.dtype))

    def as_blocked_resize(self, node: Call) -> Blocked | None:
        """Resize images whose channels stay; each block is a vector of every position."""
        if not keeps_channels(node):
            return None
        source = self.as_blocked(node.args[0])
        return Blocked(resized(node, source.node), source.order)

    def operand(self, x: Node, order: ChannelOrder, ndim: int) -> Node:
        """Return an operand that broadcasts with a result of `ndim` dimensions in `order`."""
        type_ = tensor_type(x.type)
        full = (1,) * (ndim - type_.ndim) + type_.shape
        is_single = order.channels == 1 and x in self.blocked
        if same_dim(full[1], 1) and not is_single:
            return reshaped(self.as_plain(x), (*full, 1))
        if isinstance(x, Constant):
            return packed_constant(pack_channels(_with_ndim(x.value, ndim), order), x)
        found = self.as_blocked(x)
        made = found.reordered(order)
        return made if made is not None else self._moved(x, order)

    def _moved(self, x: Node, order: ChannelOrder) -> Node:
        """Return a value in another order by moving its channels, once for all its users."""
        if (x, order) not in self.moved:
            self.moved[x, order] = self._move(x, order)
        return self.moved[x, order]

    def _move(self, x: Node, order: ChannelOrder) -> Node:
        if isinstance(x, Call) and x in self.blocked and is_enlarged(x):
            smaller = self.operand(x.args[0], order, tensor_type(x.type).ndim)
            return resized(x, smaller)
        if x in self.blocked and tensor_type(x.type).ndim == 4 and has_known_image(x.type):
            return _reordered(self.blocked[x], order, x.origin)
        plain = self.as_plain(x)
        if not order.is_natural:
            places = np.maximum(np.asarray(order.places), 0)
            plain = gather(plain, Constant.of(places.astype(np.int64)), axis=1, origin=x.origin)
        return pack_nchwc(plain, block=order.block, origin=x.origin)


def flat_shape(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shape of an image [n, c, *spatial] of known sizes with its pixels as one row."""
    return (*shape[:2], prod(known_sizes(shape[2:])))


def channels_of(type_: TensorType) -> int:
    """Return the extent of the channels, which must be known."""
    return known_sizes(type_.shape[1:2])[0]


def has_known_image(type_: Type) -> bool:
    """True when all extents but that of the batch are known."""
    return all(isinstance(d, int) for d in tensor_type(type_).shape[1:])


def is_enlarged(x: Node) -> bool:
    """True for a resize that makes more elements of an image: other moves come before it."""
    if not isinstance(x, Call) or x.op is not resize:
        return False
    source, out = tensor_type(x.args[0].type), tensor_type(x.type)
    return source.is_static and out.is_static and out.size > source.size


def keeps_channels(x: Node) -> bool:
    """True for a resize of signals, images or volumes along their spatial axes only."""
    assert isinstance(x, Call)
    assert isinstance(x.attrs, ResizeAttrs)
    changed = x.attrs.changed(tensor_type(x.args[0].type).shape)
    return tensor_type(x.type).ndim in IMAGES and all(axis >= 2 for axis in changed)


def resized(x: Call, source: Node) -> Node:
    """Return what the resize `x` of channels in order makes of `source` in blocks of them."""
    attrs = x.attrs
    assert isinstance(attrs, ResizeAttrs)
    blocked = tensor_type(source.type).ndim - tensor_type(x.type).ndim == 1
    made = attrs.in_blocks() if blocked else attrs
    return resize.call(made, (source,), origin=x.origin)


def unpacked(value: Blocked, type_: TensorType, origin: str) -> Node:
    """Return a value in the layout of the model, where it has the type `type_`."""
    shape = tensor_type(value.node.type).shape
    order = value.order
    if (
        order.is_natural
        and not order.has_padding_lanes
        and all(same_dim(d, 1) for d in shape[2:-1])
    ):
        return reshape(value.node, shape=type_.shape, origin=origin)
    if order.is_natural:
        return unpack_nchwc(value.node, channels=order.channels, origin=origin)
    natural = value.reordered(ChannelOrder.natural(order.channels, order.block))
    if natural is not None:
        return unpack_nchwc(natural, channels=order.channels, origin=origin)
    whole = unpack_nchwc(value.node, channels=len(order.places), origin=origin)
    return gather(whole, Constant.of(order.position_of()), axis=1, origin=origin)


def reshaped(x: Node, shape: tuple[Dim, ...]) -> Node:
    """Return a value reshaped; a constant at once."""
    if isinstance(x, Constant):
        known = TensorType(shape, x.type.dtype).static_shape
        return packed_constant(x.value.reshape(known), x)
    return reshape(x, shape=shape, origin=x.origin)


def element_offsets(value: Blocked, places: np.ndarray) -> Constant:
    """Return where in a blocked image the channels at `places` (block * b + lane) begin."""
    type_ = tensor_type(value.node.type)
    height, width = known_sizes(type_.shape[2:4])
    return Constant.of(element_of(places, height, width, value.order.block).astype(np.int32))


def _reordered(value: Blocked, order: ChannelOrder, origin: str) -> Node:
    """Return an image moved into another order; padding lanes hold copies."""
    places = value.order.places_of(order)
    found = runs_of(places, order.block)
    if value.order.block != order.block or not is_spliced(found.shape[1]):
        places = places.reshape(order.chunks, order.block)
        return reorder_nchwc(value.node, element_offsets(value, places), origin=origin)
    begins, ends = found[..., 0], found[..., 1]
    starts = np.pad(ends[:, :-1], ((0, 0), (1, 0)))
    firsts = element_offsets(value, begins).value - starts
    table = np.stack([firsts, ends], axis=-1).astype(np.int32)
    return splice_nchwc(value.node, Constant.of(table), origin=origin)


def _with_ndim(value: np.ndarray, ndim: int) -> np.ndarray:
    return value.reshape((1,) * (ndim - value.ndim) + value.shape)
