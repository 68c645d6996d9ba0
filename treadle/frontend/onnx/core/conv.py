# SPDX-License-Identifier: Apache-2.0
"""Converters of convolutions and transposed convolutions."""

from __future__ import annotations

from dataclasses import replace

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, shape_of
from treadle.frontend.builders.conv import (
    convolved,
    image_of_blocks,
    transposed_convolved,
    window_for_output,
    with_bias,
)
from treadle.frontend.builders.windows import Window, with_total_padding
from treadle.frontend.onnx.core.window import read_kernel, read_pads, read_steps, read_window
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node
from treadle.graph.types import known_sizes


@converter("Conv", since=(1, 11, 22))
def conv(node: OnnxNode) -> Node:
    """Convert a convolution; its bias becomes an addition."""
    return with_bias(convolved_as_read(node, node.input(0), node.input(1)), node.optional(2))


def convolved_as_read(node: OnnxNode, x: Node, w: Node) -> Node:
    """Return the convolution of `x` by `w` with the window that the attributes of `node` say."""
    window = read_window(node, x, _kernel_of(node, x, w))
    return convolved(x, w, window, node.integer("group", 1))


@converter("ConvTranspose", since=(1, 11, 22))
def conv_transpose(node: OnnxNode) -> Node:
    """Convert a transposed convolution; pads may follow from the wanted output shape."""
    x, w = node.input(0), node.input(1)
    kernel = read_kernel(node, _kernel_of(node, x, w))
    n = len(kernel)
    extra = node.integers("output_padding") or (0,) * n
    if len(extra) != n or min(extra) < 0:
        raise ModelError(f"output_padding {list(extra)} must be a number for each of {n} axes")
    window = _padded_for_output(node, read_steps(node, kernel), extra)
    result = transposed_convolved(x, w, window, node.integer("group", 1), extra)
    return with_bias(result, node.optional(2))


def _padded_for_output(node: OnnxNode, window: Window, extra: tuple[int, ...]) -> Window:
    """Return the window of a transposed convolution with the padding that the node asks for."""
    n = len(window.kernel)
    mode, before, after = read_pads(node, n)
    wanted = node.integers("output_shape")
    if wanted is not None:
        if len(wanted) not in (n, n + 2):
            raise ModelError(f"output_shape {list(wanted)} must have {n} entries")
        spatial = known_sizes(node.dims(0)[2:])
        odd_first = mode != "SAME_UPPER"
        return window_for_output(window, spatial, wanted[-n:], extra, odd_first=odd_first)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        spans = zip(window.extents, window.strides, extra, strict=True)
        totals = [max(e + more - s, 0) for e, s, more in spans]
        return with_total_padding(window, totals, odd_first=mode == "SAME_LOWER")
    return replace(window, before=before, after=after)


@converter("Col2Im", since=(18,))
def blocks_to_image(node: OnnxNode) -> Node:
    """Convert a sum of overlapping blocks."""
    image, block = node.constant_ints(1, "image shape"), node.constant_ints(2, "block shape")
    n, pads = len(image), node.integers("pads") or (0,) * (2 * len(image))
    if len(block) != n or len(pads) != 2 * n:
        raise ModelError(f"image {image}, block {block} and pads {pads} do not fit each other")
    window = replace(read_steps(node, block), before=pads[:n], after=pads[n:])
    return image_of_blocks(node.input(0), image, window)


def _kernel_of(node: OnnxNode, x: Node, w: Node) -> tuple[int, ...]:
    """Return the spatial shape of weights, which must be of the rank of the data."""
    weights = shape_of(w)
    if len(weights) < 3 or len(weights) != len(dims_of(x)):
        raise ModelError(f"{node.op} takes data [n, c, ...], not {x.type} by {w.type}")
    return weights[2:]
