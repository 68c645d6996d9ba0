# SPDX-License-Identifier: Apache-2.0
"""Converters of convolutions: plain, depthwise, transposed, of images and volumes.

Filters are [channels, ..., inputs]; those of depthwise convolutions [1, ..., channels], those of
volumes [..., inputs, channels].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    dims_of,
    element_type,
    shape_of,
    transposed,
)
from treadle.frontend.builders.conv import convolved, transposed_convolved, transposed_to, with_bias
from treadle.frontend.builders.layout import channels_first, channels_last
from treadle.frontend.builders.windows import (
    Window,
    padded_to_same,
    window_of,
)
from treadle.frontend.tflite.fixed_point import joined_total, requantized_total
from treadle.frontend.tflite.model import Quantization
from treadle.frontend.tflite.node import TfliteNode, converter, in_float32, integer_bias
from treadle.frontend.tflite.quantized import (
    centred_halves,
    centred_tensor,
    dequantized_tensor,
    product_scales,
    rows_quantized,
)
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes
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


def _by_integers(c: _Convolution) -> Node:
    """Return a quantised convolution [n, c, ...] as the file stores it."""
    return _requantized(c.node, c.x, c.weights, c.how, data=0, compute=c.of)


def _requantized(
    node: TfliteNode,
    x: Node,
    weights: Node,
    how: Quantization | None,
    data: int,
    compute: Callable[[Node, Node], Node],
) -> Node:
    """Return a quantised convolution of input `data`, which is followed by the bias, as stored."""
    given, result = node.tensor(data).quantization, node.result().quantization
    if given is None or how is None or result is None or given.is_per_channel:
        raise ModelError(f"{node.op} lacks the scale of its data, filters or result")
    integers = centred_tensor(weights, how)
    bias = integer_bias(node, 2 if data == 0 else data + 1)
    if element_type(x) == "int16":
        parts = [compute(part, integers) for part in centred_halves(x, given)]
        total = joined_total(*parts, is_wide=bias is None or element_type(bias) == "int64")
    else:
        total = compute(centred_tensor(x, given), integers)
        bias = None if bias is None else converted(bias, "int32")
    spatial = (1,) * (len(dims_of(x)) - 2)
    scales = product_scales(given, how, is_float=element_type(x) == "uint8")
    total, dtype = with_bias(total, bias), node.result().dtype
    return requantized_total(total, scales, (-1, *spatial), result, dtype, node.activation)


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
    window, extra = transposed_to(
        window, dims_of(x)[2:], wanted[1:3], is_same=node.padding == "SAME"
    )
    return _transposed_convolved(node, x, w, window, extra)


def _transposed_convolved(
    node: TfliteNode, x: Node, w: Node, window: Window, extra: tuple[int, ...]
) -> Node:
    how = node.tensor(1).quantization
    if node.is_quantized(2):
        moved = None if how is None else replace(how, axis=1)
        made = _requantized(
            node, x, w, moved, 2, lambda a, b: transposed_convolved(a, b, window, 1, extra)
        )
        return channels_last(made)
    weights = w if how is None else dequantized_tensor(w, replace(how, axis=1))
    total = transposed_convolved(x, in_float32(weights), window, 1, extra)
    return channels_last(node.activated(with_bias(total, node.optional_real(3))))
