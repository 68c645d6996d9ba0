# SPDX-License-Identifier: Apache-2.0
"""A transposed convolution as its methods see it."""

from __future__ import annotations

from functools import cached_property

from treadle.graph.nodes import Call, Constant
from treadle.graph.types import tensor_type
from treadle.ops.conv import ConvTransposeAttrs, TransposedAxis, conv, transposed_axes
from treadle.optimize.blocked import IMAGES, Values, block_of
from treadle.optimize.methods.convolution import FLOATS, ConvSite
from treadle.optimize.methods.method import Site
from treadle.optimize.methods.moves import move_cycles
from treadle.optimize.methods.phases import Phases, phases_of
from treadle.optimize.methods.shared import Shared


class TransposedSite(Site):
    """A call of `conv_transpose`: data [n, c, *spatial], weights [c, filters / groups, *kernel]."""

    def __init__(self, node: Call, values: Values, shared: Shared) -> None:
        super().__init__(node, values, shared)
        self.x, self.w = node.args
        self.data, self.weights = tensor_type(self.x.type), tensor_type(self.w.type)
        assert isinstance(node.attrs, ConvTransposeAttrs)
        self.attrs = node.attrs

    @property
    def known_weights(self) -> Constant:
        """The weights, which must be known when compiled."""
        assert isinstance(self.w, Constant)
        return self.w

    @property
    def block(self) -> int:
        """How many channels lie next to each other in blocks."""
        return block_of(self.target, self.data.dtype)

    @property
    def filters(self) -> int:
        """The number of output channels."""
        return self.weights.static_shape[1] * self.attrs.groups

    @cached_property
    def axes(self) -> tuple[TransposedAxis, ...]:
        """The spatial axes, each as a convolution per phase."""
        return transposed_axes(self.attrs, self.data.shape[2:], self.weights.static_shape[2:])

    @cached_property
    def phases(self) -> Phases | str:
        """The phases as one convolution; a sentence where they are none."""
        return phases_of(self.attrs, self.data, self.weights)

    @cached_property
    def convolution(self) -> Call:
        """The convolution that makes all phases at once."""
        assert isinstance(self.phases, Phases)
        weights = self.phases.weights(self.known_weights.value)
        flipped = Constant.of(weights, origin=self.w.origin)
        return conv.call(self.phases.conv, (self.x, flipped), origin=self.origin)

    @cached_property
    def convolution_site(self) -> ConvSite:
        """That convolution as its methods see it."""
        return ConvSite(self.convolution, self.values, self.shared)

    def packing_cycles(self) -> float:
        """Return what a method that runs on blocks spends to have its input in them."""
        if self.x in self.values.blocked:
            return 0.0
        return move_cycles(self.data, self.target) / max(1, self.shared.readers[self.x])

    def interleaving_cycles(self) -> float:
        """Return what it takes to put the phases of the result in order."""
        return move_cycles(tensor_type(self.node.type), self.target)


def why_no_phases_in_blocks(site: TransposedSite) -> str | None:
    """Return why phases cannot be computed on blocks of channels; None where they can."""
    known = isinstance(site.w, Constant) and site.data.dtype in FLOATS and site.data.is_static
    if not known or site.data.ndim not in IMAGES:
        return "its type, weights or sizes are not for blocks of channels"
    if site.attrs.groups > 1:
        return "groups read different channels"
    return None
