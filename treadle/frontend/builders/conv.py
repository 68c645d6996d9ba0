# SPDX-License-Identifier: Apache-2.0
"""Builders of convolutions: plain, transposed, and of blocks that are summed to an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, per_channel, reshaped
from treadle.frontend.builders.movement import padded
from treadle.frontend.builders.windows import (
    Window,
    padded_to_same,
    padded_where_symbolic,
    with_total_padding,
)
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, may_agree, tensor_type
from treadle.ops import conv, elementwise


def convolved(x: Node, w: Node, window: Window, groups: int = 1) -> Node:
    """Return the convolution of x [n, c, ...] by w [channels, c / groups, ...]."""
    x, window = padded_where_symbolic(x, window, 0.0)
    before, after = window.known_pads
    if min((*before, *after), default=0) < 0:
        x = padded(x, (0, 0, *(min(p, 0) for p in before)), (0, 0, *(min(p, 0) for p in after)))
        before, after = (tuple(max(p, 0) for p in pads) for pads in (before, after))
    return conv.conv(
        x,
        w,
        strides=window.strides,
        pads_before=before,
        pads_after=after,
        dilations=window.dilations,
        groups=groups,
    )


def with_bias(x: Node, bias: Node | None) -> Node:
    """Return x [n, c, ...] plus a bias [c], where there is one."""
    return x if bias is None else elementwise.add(x, per_channel(bias, x))


def transposed_convolved(
    x: Node, w: Node, window: Window, groups: int = 1, output_padding: Sequence[int] = ()
) -> Node:
    """Return the transposed convolution of x [n, c, ...] by w [c, channels / groups, ...].

    Padding of the window cuts elements off the result, `output_padding` adds some after it.
    """
    before, after = window.known_pads
    return conv.conv_transpose(
        x,
        w,
        strides=window.strides,
        pads_before=before,
        pads_after=after,
        dilations=window.dilations,
        groups=groups,
        output_padding=tuple(output_padding) or (0,) * len(window.kernel),
    )


def window_for_output(
    window: Window,
    spatial: Sequence[int],
    wanted: Sequence[int],
    output_padding: Sequence[int],
    *,
    odd_first: bool,
) -> Window:
    """Return the window with which a transposed convolution of `spatial` gives `wanted` extents."""
    axes = zip(spatial, window.strides, window.extents, output_padding, strict=True)
    whole = [(d - 1) * s + e + extra for d, s, e, extra in axes]
    totals = [f - w for f, w in zip(whole, wanted, strict=True)]
    return with_total_padding(window, totals, odd_first=odd_first)


def transposed_to(
    window: Window, spatial: Sequence[Dim], wanted: Sequence[Dim], *, is_same: bool
) -> tuple[Window, tuple[int, ...]]:
    """Return the window that spreads `spatial` to `wanted` extents, and what it lacks at their end.

    With `is_same` it is the adjoint of a window padded to ceil(wanted / stride) places.
    """
    if is_same:
        given = padded_to_same(window, wanted, odd_first=False)
        window = replace(given, before=known_sizes(given.before), after=known_sizes(given.after))
    before, after = window.known_pads
    axes = zip(known_sizes(spatial), known_sizes(wanted), window.strides, window.extents,
               before, after, strict=True)  # fmt: skip
    lacks = [w - ((d - 1) * s + e - b - a) for d, w, s, e, b, a in axes]
    ends = tuple(a - lack if lack < 0 else a for a, lack in zip(after, lacks, strict=True))
    return replace(window, after=ends), tuple(max(lack, 0) for lack in lacks)


def image_of_blocks(x: Node, image: Sequence[int], window: Window) -> Node:
    """Return the sum of overlapping blocks [n, c * elements, blocks] as an image [n, c, *image].

    It is a transposed convolution whose kernels spread the elements of a block: what PyTorch calls
    `fold`, the adjoint of cutting an image into windows.
    """
    n = len(image)
    before, after = window.known_pads
    if len(window.kernel) != n or min((*window.kernel, *image), default=1) < 1:
        raise ModelError(f"an image {list(image)} and blocks {list(window.kernel)} do not fit")
    batch, columns, count = dims_of(x)
    (columns,) = known_sizes((columns,))
    elements = prod(window.kernel)
    spare = [i + before[k] + after[k] - window.extents[k] for k, i in enumerate(image)]
    windows = [s // stride + 1 for s, stride in zip(spare, window.strides, strict=True)]
    if columns % elements or not may_agree(prod(windows), count) or min(spare) < 0:
        raise ModelError(f"{x.type} are not the blocks {window.kernel} of an image {tuple(image)}")
    left = [s - (w - 1) * t for s, w, t in zip(spare, windows, window.strides, strict=True)]
    channels = columns // elements
    spread = np.eye(elements, dtype=to_numpy(tensor_type(x.type).dtype))
    kernels = np.tile(spread.reshape(elements, 1, *window.kernel), (channels, 1, *(1,) * n))
    blocks = reshaped(x, (batch, columns, *windows))
    return transposed_convolved(blocks, Constant.of(kernels), window, channels, left)
