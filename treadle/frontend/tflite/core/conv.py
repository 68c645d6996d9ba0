# SPDX-License-Identifier: Apache-2.0
"""Converters of convolutions: plain, depthwise, transposed, of images and volumes.

Filters are [channels, ..., inputs]; those of depthwise convolutions [1, ..., channels], those of
volumes [..., inputs, channels].
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    dims_of,
    element_type,
    shape_of,
    transposed,
)
from treadle.frontend.builders.conv import convolved, transposed_convolved, with_bias
from treadle.frontend.builders.windows import (
    Window,
    padded_to_same,
    window_of,
)
from treadle.frontend.tflite.layout import channels_first, channels_last
from treadle.frontend.tflite.model import Quantization
from treadle.frontend.tflite.node import TfliteNode, converter, in_float32
from treadle.frontend.tflite.quantized import (
    centred_tensor,
    clipped_integers,
    dequantized_tensor,
    requantized_total,
    rows_quantized,
)
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes
from treadle.ops import elementwise


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution of data [n, c, ...]: how its window slides, and where its weights are.

    `weights` [channels, c / groups, ...] are as they are stored, `scales` their real numbers per
    channel, where they are quantised.
    """

    node: TfliteNode
    x: Node
    weights: Node
    window: Window
    groups: int
    how: Quantization | None

    def of(self, x: Node, weights: Node) -> Node:
        """Return the convolution of some data by some weights."""
        return convolved(x, weights, self.window, self.groups)


@converter("CONV_2D")
def conv_2d(node: TfliteNode) -> Node:
    """Convert a convolution of images; fewer inputs per filter than channels are groups."""
    _check_ranks(node, 4)
    x, w = channels_first(node.input(0)), transposed(node.input(1), (0, 3, 1, 2))
    channels, per_group = known_sizes((dims_of(x)[1], dims_of(w)[1]))
    if not per_group or channels % per_group:
        raise ModelError(f"{channels} channels do not divide into groups of {per_group}")
    window = _window(node, x, shape_of(w)[2:])
    how = node.tensor(1).quantization
    return _convolved(_Convolution(node, x, w, window, channels // per_group, how))


@converter("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(node: TfliteNode) -> Node:
    """Convert a convolution of every channel by filters of its own."""
    _check_ranks(node, 4)
    x, w = channels_first(node.input(0)), transposed(node.input(1), (3, 0, 1, 2))
    groups, filters, count = known_sizes((dims_of(x)[1], dims_of(w)[0], dims_of(w)[1]))
    if count != 1 or not groups or filters % groups:
        raise ModelError(f"{node.type(1)} are no filters of {groups} channels each")
    how = node.tensor(1).quantization
    moved = None if how is None else replace(how, axis=0)
    return _convolved(_Convolution(node, x, w, _window(node, x, shape_of(w)[2:]), groups, moved))


@converter("CONV_3D")
def conv_3d(node: TfliteNode) -> Node:
    """Convert a convolution of volumes."""
    _check_ranks(node, 5)
    x, w = channels_first(node.input(0)), transposed(node.input(1), (4, 3, 0, 1, 2))
    how = node.tensor(1).quantization
    return _convolved(_Convolution(node, x, w, _window(node, x, shape_of(w)[2:]), 1, how))


def _check_ranks(node: TfliteNode, ndim: int) -> None:
    if node.rank(0) != ndim or node.rank(1) != ndim:
        raise ModelError(f"{node.op} takes data and filters of rank {ndim}")


def _window(node: TfliteNode, x: Node, kernel: tuple[int, ...]) -> Window:
    """Return how a kernel slides over data [n, c, ...]."""
    axes = "dhw"[-len(kernel) :]
    strides = [node.options.integer(f"stride_{a}") for a in axes]
    dilations = [node.options.integer(f"dilation_{a}_factor") for a in axes]
    window = window_of(kernel, strides, dilations)
    if node.padding == "VALID":
        return window
    return padded_to_same(window, dims_of(x)[2:], odd_first=False)


def _convolved(c: _Convolution) -> Node:
    """Return a convolution with bias and activation, by integers where the data are quantised."""
    if c.node.is_quantized(0):
        if element_type(c.x) == "int16":
            return _through_floats(c)
        return channels_last(_by_integers(c))
    if c.how is not None and c.groups == 1 and element_type(c.weights) == "int8":
        return channels_last(_activated(c.node, _hybrid(c)))
    weights = c.weights if c.how is None else dequantized_tensor(c.weights, c.how)
    total = c.of(c.x, converted(in_float32(weights), element_type(c.x)))
    return channels_last(_activated(c.node, _biased(c.node, total)))


def _biased(node: TfliteNode, total: Node) -> Node:
    bias = node.optional_real(2)
    return with_bias(total, None if bias is None else converted(bias, element_type(total)))


def _activated(node: TfliteNode, x: Node) -> Node:
    return node.activated(x)


def _through_floats(c: _Convolution) -> Node:
    """Return a convolution of 16-bit data, whose products do not fit into 32 bits."""
    how = c.node.tensor(0).quantization
    assert how is not None
    weights = c.weights if c.how is None else dequantized_tensor(c.weights, c.how)
    total = _biased(c.node, c.of(dequantized_tensor(c.x, how), weights))
    return c.node.stored(channels_last(_activated(c.node, total)))


def _by_integers(c: _Convolution) -> Node:
    """Return a quantised convolution [n, c, ...] as the file stores it."""
    data, result = c.node.tensor(0).quantization, c.node.result().quantization
    if data is None or c.how is None or result is None or data.is_per_channel:
        raise ModelError(f"{c.node.op} lacks the scale of its data, filters or result")
    total = c.of(centred_tensor(c.x, data), centred_tensor(c.weights, c.how))
    total = with_bias(total, _integer_bias(c.node, 2))
    spatial = (1,) * len(c.window.kernel)
    scales = data.scales[0].astype("float64") * c.how.scales
    dtype = c.node.result().dtype
    made = requantized_total(total, scales, (-1, *spatial), result, dtype)
    return clipped_integers(made, c.node.activation, result, dtype)


def _integer_bias(node: TfliteNode, index: int) -> Node | None:
    bias = node.optional(index)
    if bias is not None and element_type(bias) not in ("int32", "int64"):
        raise ModelError(f"the bias of {node.op} is {bias.type}, not integers")
    return None if bias is None else converted(bias, "int32")


def _hybrid(c: _Convolution) -> Node:
    """Return a convolution of floats by 8-bit filters: each image is quantised by its own range."""
    assert c.how is not None
    rows, scale = rows_quantized(c.x, 1, asymmetric=c.how.is_per_channel)
    total = converted(c.of(rows, centred_tensor(c.weights, c.how)), "float32")
    spatial = (1,) * len(c.window.kernel)
    filters = Constant.of(c.how.scales.reshape((-1, *spatial) if c.how.is_per_channel else ()))
    return _biased(c.node, elementwise.multiply(elementwise.multiply(total, scale), filters))


@converter("TRANSPOSE_CONV")
def transpose_conv(node: TfliteNode) -> Node:
    """Convert a transposed convolution to a given shape; filters are [c, h, w, inputs]."""
    if node.rank(2) != 4 or node.rank(1) != 4:
        raise ModelError(f"{node.op} takes images and filters of rank 4")
    x, w = channels_first(node.input(2)), transposed(node.input(1), (3, 0, 1, 2))
    wanted = node.sizes(0, "shape of the result")
    window = window_of(shape_of(w)[2:], [node.options.integer(f"stride_{a}") for a in "hw"])
    window, extra = _for_output(node, window, dims_of(x)[2:], wanted[1:3])
    return _transposed_convolved(node, x, w, window, extra)


def _for_output(
    node: TfliteNode, window: Window, spatial: tuple[Dim, ...], wanted: tuple[Dim, ...]
) -> tuple[Window, tuple[int, ...]]:
    """Return the window that gives images of the `wanted` size, and what it lacks at their end."""
    if node.padding == "SAME":
        given = padded_to_same(window, wanted, odd_first=False)
        window = replace(given, before=known_sizes(given.before), after=known_sizes(given.after))
    before, after = window.known_pads
    sizes = zip(known_sizes(spatial), known_sizes(wanted), window.strides, window.extents,
                before, after, strict=True)  # fmt: skip
    lacks = [w - ((d - 1) * s + e - b - a) for d, w, s, e, b, a in sizes]
    ends = tuple(a - lack if lack < 0 else a for a, lack in zip(after, lacks, strict=True))
    return replace(window, after=ends), tuple(max(lack, 0) for lack in lacks)


def _transposed_convolved(
    node: TfliteNode, x: Node, w: Node, window: Window, extra: tuple[int, ...]
) -> Node:
    data, how = node.tensor(2).quantization, node.tensor(1).quantization
    result = node.result().quantization
    if not node.is_quantized(2) or element_type(x) == "int16":
        moved = None if how is None else replace(how, axis=1)
        weights = w if moved is None else dequantized_tensor(w, moved)
        images = x if data is None else dequantized_tensor(x, data)
        total = transposed_convolved(images, in_float32(weights), window, 1, extra)
        bias = node.optional_real(3)
        return node.stored(channels_last(node.activated(with_bias(total, bias))))
    if data is None or how is None or result is None:
        raise ModelError(f"{node.op} lacks the scale of its data, filters or result")
    integers = centred_tensor(w, replace(how, axis=1))
    total = transposed_convolved(centred_tensor(x, data), integers, window, 1, extra)
    total = with_bias(total, _integer_bias(node, 3))
    scales = data.scales[0].astype("float64") * how.scales
    made = requantized_total(total, scales, (-1, 1, 1), result, node.result().dtype)
    clipped = clipped_integers(made, node.activation, result, node.result().dtype)
    return channels_last(clipped)
