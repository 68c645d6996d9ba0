# SPDX-License-Identifier: Apache-2.0
"""Converters of convolutions and transposed convolutions."""

from __future__ import annotations

from math import prod

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, per_channel, reshaped, shape_of
from treadle.frontend.onnx.core.movement import padded
from treadle.frontend.onnx.core.window import (
    padded_window,
    per_axis,
    read_kernel,
    read_pads,
    split_pads,
)
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, may_agree
from treadle.ops import conv as convolution
from treadle.ops import elementwise


@converter("Conv", since=(1, 11, 22))
def conv(node: OnnxNode) -> Node:
    """Convert a convolution; its bias becomes an addition."""
    return _with_bias(node, convolved(node, node.input(0), node.input(1)))


def convolved(node: OnnxNode, x: Node, w: Node) -> Node:
    """Return the convolution of `x` by `w` with the window that the attributes of `node` say."""
    weights = _factor_shapes(node, x, w)[1]
    x, window = padded_window(node, x, read_kernel(node, weights[2:]), 0.0)
    before, after = window.before, window.after
    if min((*before, *after), default=0) < 0:
        x = padded(x, (0, 0, *(min(p, 0) for p in before)), (0, 0, *(min(p, 0) for p in after)))
        before, after = (tuple(max(p, 0) for p in pads) for pads in (before, after))
    return convolution.conv(
        x,
        w,
        strides=window.strides,
        pads_before=before,
        pads_after=after,
        dilations=window.dilations,
        groups=node.integer("group", 1),
    )


@converter("ConvTranspose", since=(1, 11, 22))
def conv_transpose(node: OnnxNode) -> Node:
    """Convert a transposed convolution; pads may follow from the wanted output shape."""
    weights = _factor_shapes(node, node.input(0), node.input(1))[1]
    n = len(weights) - 2
    kernel = read_kernel(node, weights[2:])
    strides, dilations = per_axis(node, "strides", n), per_axis(node, "dilations", n)
    extra = node.integers("output_padding") or (0,) * n
    if len(extra) != n or min(extra) < 0:
        raise ModelError(f"output_padding {list(extra)} must be a number for each of {n} axes")
    mode, pads = read_pads(node, n)
    wanted = node.integers("output_shape")
    full: list[int] = []
    if wanted is not None:
        spatial = known_sizes(node.dims(0)[2:])
        window = zip(spatial, strides, kernel, dilations, extra, strict=True)
        full = [(d - 1) * s + (k - 1) * g + 1 + e for d, s, k, g, e in window]
    if wanted is not None:
        sizes = wanted[-n:]
        if len(wanted) not in (n, n + 2):
            raise ModelError(f"output_shape {list(wanted)} must have {n} entries")
        pads = split_pads([f - w for f, w in zip(full, sizes, strict=True)], _side(mode))
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        spans = zip(kernel, strides, dilations, extra, strict=True)
        totals = [max((k - 1) * g + 1 + e - s, 0) for k, s, g, e in spans]
        pads = split_pads(totals, mode)
    result = convolution.conv_transpose(
        node.input(0),
        node.input(1),
        strides=strides,
        pads_before=pads[:n],
        pads_after=pads[n:],
        dilations=dilations,
        groups=node.integer("group", 1),
        output_padding=extra,
    )
    return _with_bias(node, result)


@converter("Col2Im", since=(18,))
def blocks_to_image(node: OnnxNode) -> Node:
    """Convert a sum of overlapping blocks, as a transposed convolution that spreads each entry."""
    image, block = node.constant_ints(1, "image shape"), node.constant_ints(2, "block shape")
    n = len(image)
    strides, dilations = per_axis(node, "strides", n), per_axis(node, "dilations", n)
    pads = node.integers("pads") or (0,) * (2 * n)
    if len(block) != n or len(pads) != 2 * n or min((*block, *image), default=1) < 1:
        raise ModelError(f"image {image}, block {block} and pads {pads} do not fit each other")
    batch, columns, count = node.dims(0)
    (columns,) = known_sizes((columns,))
    taps = prod(block)
    extents = [(k - 1) * d + 1 for k, d in zip(block, dilations, strict=True)]
    spare = [i + pads[k] + pads[k + n] - extents[k] for k, i in enumerate(image)]
    windows = [s // stride + 1 for s, stride in zip(spare, strides, strict=True)]
    if columns % taps or not may_agree(prod(windows), count) or min(spare) < 0:
        raise ModelError(f"{node.type(0)} are not the blocks {block} of an image {image}")
    left = [s - (w - 1) * t for s, w, t in zip(spare, windows, strides, strict=True)]
    channels = columns // taps
    spread = np.eye(taps, dtype=to_numpy(node.type(0).dtype)).reshape(taps, 1, *block)
    return convolution.conv_transpose(
        reshaped(node.input(0), (batch, columns, *windows)),
        Constant.of(np.tile(spread, (channels, 1, *(1,) * n))),
        strides=strides,
        pads_before=pads[:n],
        pads_after=pads[n:],
        dilations=dilations,
        groups=channels,
        output_padding=tuple(left),
    )


def _side(mode: str) -> str:
    """Return where the odd element of a padding goes when an output shape is asked for."""
    return "SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER"


def _factor_shapes(node: OnnxNode, x: Node, w: Node) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    data, weights = dims_of(x), shape_of(w)
    if len(weights) < 3 or len(weights) != len(data):
        raise ModelError(f"{node.op} takes data [n, c, ...], not {x.type} by {w.type}")
    return data, weights


def _with_bias(node: OnnxNode, result: Node) -> Node:
    bias = node.optional(2)
    if bias is None:
        return result
    return elementwise.add(result, per_channel(bias, node.type(0).ndim))
