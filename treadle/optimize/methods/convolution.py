# SPDX-License-Identifier: Apache-2.0
"""A convolution as its methods see it, and what several of them share: padding, whole blocks."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property
from math import prod

from treadle.dtype import itemsize
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.operator import POINTWISE, Fusion, Operator
from treadle.graph.types import tensor_type
from treadle.ops.conv import ConvAttrs, conv_axes
from treadle.ops.lowered.conv_nchwc import BlockedConvAttrs
from treadle.ops.movement import pad
from treadle.ops.window import WindowAxis
from treadle.optimize.blocked import (
    IMAGES,
    Blocked,
    Values,
    block_of,
    channels_of,
    has_known_image,
    reshaped,
)
from treadle.optimize.channel_order import ChannelOrder
from treadle.optimize.methods.layout_moves import Following, copy_cycles, known, move_cycles
from treadle.optimize.methods.method import Site
from treadle.optimize.methods.shared import Shared

FLOATS = ("float32", "float64")


class ConvSite(Site):
    """A call of `conv`: data [n, c, *spatial] and weights [filters, c / groups, *kernel]."""

    def __init__(self, node: Call, values: Values, shared: Shared) -> None:
        super().__init__(node, values, shared)
        self.x, self.w = node.args
        self.data, self.weights = tensor_type(self.x.type), tensor_type(self.w.type)
        assert isinstance(node.attrs, ConvAttrs)
        self.attrs = node.attrs

    @property
    def known_weights(self) -> Constant:
        """The weights, which must be known when compiled."""
        assert isinstance(self.w, Constant)
        return self.w

    @cached_property
    def window(self) -> tuple[WindowAxis, ...]:
        """How the window moves along every spatial axis, defaults filled in."""
        return conv_axes(self.attrs, self.data.shape[2:], self.kernel)

    @property
    def groups(self) -> int:
        """How many groups of channels there are that nothing in common is read of."""
        return self.attrs.groups

    @property
    def filters(self) -> int:
        """The number of output channels."""
        return self.weights.static_shape[0]

    @property
    def per_group(self) -> int:
        """The number of input channels of a group."""
        return self.weights.static_shape[1]

    @property
    def kernel(self) -> tuple[int, ...]:
        """The extents of the window."""
        return self.weights.static_shape[2:]

    @property
    def block(self) -> int:
        """How many channels lie next to each other in blocks."""
        return block_of(self.target, self.data.dtype)

    @property
    def is_padded_by_its_kernel(self) -> bool:
        """True where the kernel that makes the input can write it with zeros around it.

        That is one with a schedule of its own, of which nothing else reads the result.
        """
        x = self.x
        users = self.shared.users
        while isinstance(x, Call) and isinstance(x.op, Operator) and len(users.get(x, ())) == 1:
            if x.op.fusion is Fusion.ANCHOR:
                return True
            calls = [a for a in x.args if isinstance(a, Call)]
            if x.op.fusion not in POINTWISE or not calls:
                return False
            x = calls[0]
        return False

    @cached_property
    def image(self) -> tuple[int, int, int]:
        """Return how many images there are, and rows and columns of results of each.

        Depths count as images, signals as images of one column, what is not known as typical.
        """
        n, _, *sizes = tensor_type(self.node.type).shape
        *deep, height, width = sizes if len(sizes) > 1 else (*sizes, 1)
        depth = prod(map(known, deep))
        return (n if isinstance(n, int) else 1) * depth, known(height), known(width)

    @cached_property
    def input_order(self) -> ChannelOrder:
        """The order of the input's channels in blocks; of a few each is a block of its own."""
        if self.has_few_channels:
            return ChannelOrder.natural(channels_of(self.data), 1)
        return self.values.order_of(self.x)

    @property
    def has_few_channels(self) -> bool:
        """True for an image that need not be packed, as each of its channels can be a block."""
        return channels_of(self.data) < self.block and not self.values.is_blocked(self.x)

    def blocked_input(self) -> Blocked:
        """Return the input in blocks, in `input_order`."""
        if self.has_few_channels:
            apart = reshaped(self.values.as_plain(self.x), (*self.data.shape, 1))
            return Blocked(apart, self.input_order)
        return self.values.as_blocked(self.x)

    def blocking_cycles(self) -> float:
        """Return what a method that runs on blocks of channels spends on layouts.

        All convolutions that read the input share its packed form.
        """
        leaves = copy_cycles(self._following.unpacked, self.target)
        if self.has_few_channels or self.x in self.values.blocked:
            return leaves
        return leaves + move_cycles(self.data, self.target) / max(1, self.shared.readers[self.x])

    def padding_bytes(self) -> int:
        """Return the bytes of the zeros that fill the last blocks of channels and filters.

        Few channels are not packed, and groups are left out: methods lay theirs out differently.
        """
        if why_not_in_blocks(self) is not None or self.groups > 1:
            return 0
        inputs = 1 if self.has_few_channels else self.block
        filled = prod(
            -(-n // b) * b for n, b in ((self.filters, self.block), (self.per_group, inputs))
        )
        zeros = filled - self.filters * self.per_group
        return zeros * prod(self.kernel) * itemsize(self.weights.dtype)

    def unblocking_cycles(self) -> float:
        """Return what a method spends on layouts that runs in that of the model."""
        leaves = self.values.is_blocked(self.x) * move_cycles(self.data, self.target)
        return leaves + copy_cycles(self._following.packed, self.target)

    def padding_cycles(self) -> float:
        """Return what it takes to write the input with its padding, where there is any.

        On blocks of channels the kernel does so that makes the input.
        """
        if not any(a.before or a.after for a in self.window):
            return 0.0
        return move_cycles(self.data, self.target)

    @property
    def _following(self) -> Following:
        return self.shared.following.get(self.node, Following())


def why_not_in_blocks(site: ConvSite) -> str | None:
    """Return why a convolution cannot run on blocks of channels; None where it can."""
    types = {site.data.dtype, site.weights.dtype, tensor_type(site.node.type).dtype}
    is_image = site.data.ndim in IMAGES and len(types) == 1 and site.data.dtype in FLOATS
    if not isinstance(site.w, Constant) or not is_image:
        kinds = f"images of {' or '.join(FLOATS)} with weights known when compiled"
        return f"blocks of channels are for {kinds}"
    if not isinstance(site.data.shape[1], int):
        return "the number of channels is not known"
    return None


def why_not_in_groups(site: ConvSite) -> str | None:
    """Return why groups cannot run apart from each other on blocks; None where they can."""
    if site.data.ndim != 4 or not has_known_image(site.data):
        return "groups are for images of known sizes"
    return None


def padded(
    x: Node, attrs: ConvAttrs, window: tuple[WindowAxis, ...], origin: str
) -> tuple[Node, ConvAttrs]:
    """Return data in blocks with its padding as an operator of its own, and attributes without."""
    before, after = tuple(a.before for a in window), tuple(a.after for a in window)
    if not any((*before, *after)):
        return x, attrs
    none = (0,) * len(window)
    made = pad(x, before=(0, 0, *before, 0), after=(0, 0, *after, 0), origin=origin)
    return made, replace(attrs, pads_before=none, pads_after=none)


def leaving_out(attrs: ConvAttrs, inputs: ChannelOrder) -> BlockedConvAttrs:
    """Return the attributes of a convolution that skips the padding lanes that end its input."""
    given = {f.name: getattr(attrs, f.name) for f in fields(attrs)}
    return BlockedConvAttrs(**given, unused=inputs.unused)
