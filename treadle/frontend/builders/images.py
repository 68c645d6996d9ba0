# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools of images as TensorFlow and Keras have them: channels last, or first.

Filters are [..., inputs, channels]. Images stay with channels first between them (see `layout`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, reshaped, shape_of, transposed
from treadle.frontend.builders.conv import convolved, transposed_convolved, transposed_to
from treadle.frontend.builders.layout import channels_first, channels_last
from treadle.frontend.builders.windows import Window, padded_to_same, window_of
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, known_sizes


@dataclass(frozen=True, slots=True)
class Sliding:
    """How a window moves over images: entries per spatial axis.

    Padding is to ceil(size / stride) windows where `is_same`, else `before` and `after`.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...] | None = None
    is_same: bool = False
    before: tuple[int, ...] | None = None
    after: tuple[int, ...] | None = None
    is_channels_first: bool = False

    def first(self, x: Node) -> Node:
        """Return images with their channels first."""
        return x if self.is_channels_first else channels_first(x)

    def last(self, x: Node) -> Node:
        """Return images [n, c, ...] as the model has them."""
        return x if self.is_channels_first else channels_last(x)

    def spatial(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the spatial extents of the shape of images as the model has them."""
        return tuple(shape[2:] if self.is_channels_first else shape[1:-1])

    def window(self, kernel: Sequence[int], spatial: Sequence[Dim]) -> Window:
        """Return how a kernel slides over images of `spatial` extents."""
        window = window_of(kernel, self.strides, self.dilations, self.before, self.after)
        return padded_to_same(window, spatial, odd_first=False) if self.is_same else window


def _check(x: Node, w: Node, sliding: Sliding) -> None:
    ndim = len(sliding.strides) + 2
    if len(dims_of(x)) != ndim or len(dims_of(w)) != ndim:
        raise ModelError(f"a convolution of {x.type} by {w.type} takes both of rank {ndim}")


def images_convolved(x: Node, w: Node, sliding: Sliding) -> Node:
    """Return a convolution; filters of fewer inputs than there are channels are of groups."""
    _check(x, w, sliding)
    images, ndim = sliding.first(x), len(dims_of(w))
    filters = transposed(w, (ndim - 1, ndim - 2, *range(ndim - 2)))
    channels, per_group = known_sizes((dims_of(images)[1], dims_of(filters)[1]))
    if not per_group or channels % per_group:
        raise ModelError(f"{channels} channels do not divide into groups of {per_group}")
    window = sliding.window(shape_of(w)[:-2], dims_of(images)[2:])
    return sliding.last(convolved(images, filters, window, channels // per_group))


def images_convolved_depthwise(x: Node, w: Node, sliding: Sliding) -> Node:
    """Return a convolution of every channel by filters [..., channels, filters] of its own."""
    _check(x, w, sliding)
    images, ndim = sliding.first(x), len(dims_of(w))
    *kernel, channels, count = shape_of(w)
    if known_sizes(dims_of(images)[1:2]) != (channels,):
        raise ModelError(f"{w.type} are no filters of the channels of {x.type}")
    rows = reshaped(w, (*kernel, channels * count))
    filters = transposed(rows, (ndim - 2, *range(ndim - 2)))
    filters = reshaped(filters, (channels * count, 1, *kernel))
    window = sliding.window(kernel, dims_of(images)[2:])
    return sliding.last(convolved(images, filters, window, channels))


def images_convolved_transposed(x: Node, w: Node, sliding: Sliding, wanted: Sequence[Dim]) -> Node:
    """Return a transposed convolution to `wanted` extents; filters are [..., channels, inputs]."""
    _check(x, w, sliding)
    images, ndim = sliding.first(x), len(dims_of(w))
    filters = transposed(w, (ndim - 1, ndim - 2, *range(ndim - 2)))
    kernel = shape_of(w)[:-2]
    window = window_of(kernel, sliding.strides, sliding.dilations, sliding.before, sliding.after)
    window, extra = transposed_to(window, dims_of(images)[2:], wanted, is_same=sliding.is_same)
    return sliding.last(transposed_convolved(images, filters, window, 1, extra))


def images_pooled(
    x: Node, kernel: Sequence[int], sliding: Sliding, pool: Callable[[Node, Window], Node]
) -> Node:
    """Return images reduced by windows, as `pool` does to images [n, c, ...]."""
    if len(dims_of(x)) != len(kernel) + 2 or min(kernel, default=1) < 1:
        raise ModelError(f"a pool over windows of {list(kernel)} does not fit {x.type}")
    images = sliding.first(x)
    return sliding.last(pool(images, sliding.window(kernel, dims_of(images)[2:])))
