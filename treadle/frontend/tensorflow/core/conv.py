# SPDX-License-Identifier: Apache-2.0
"""Converters of convolutions: plain, depthwise, transposed, of images and volumes."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, operands, per_channel
from treadle.frontend.builders.images import (
    Sliding,
    images_convolved,
    images_convolved_depthwise,
    images_convolved_transposed,
)
from treadle.frontend.builders.layout import in_one_layout
from treadle.frontend.tensorflow.node import TfNode, converter
from treadle.graph.nodes import Node
from treadle.graph.types import Dim
from treadle.ops import elementwise


def sliding_of(node: TfNode, axes: int) -> Sliding:
    """Return how a window moves over `axes` spatial axes, as the attributes say."""
    is_first = node.attributes.text("data_format", "N").startswith("NC")
    strides = _spatial(node, "strides", axes, is_first)
    dilations = _spatial(node, "dilations", axes, is_first)
    padding = node.attributes.text("padding")
    if padding not in ("SAME", "VALID", "EXPLICIT"):
        raise ModelError(f"the padding of {node.op} is {padding!r}")
    before, after = (0,) * axes, (0,) * axes
    if padding == "EXPLICIT":
        pairs = node.attributes.integers("explicit_paddings")
        if len(pairs) != 2 * (axes + 2):
            raise ModelError(f"the padding {list(pairs)} does not fit {node.type(0)}")
        places = range(2, axes + 2) if is_first else range(1, axes + 1)
        before = tuple(pairs[2 * k] for k in places)
        after = tuple(pairs[2 * k + 1] for k in places)
    return Sliding(strides, dilations, padding == "SAME", before, after, is_first)


def _spatial(node: TfNode, name: str, axes: int, is_first: bool) -> tuple[int, ...]:
    """Return the entries of the spatial axes of an attribute, 1 where it is left out."""
    values = node.attributes.integers(name) or (1,) * (axes + 2)
    if len(values) != axes + 2:
        raise ModelError(f"the {name} {list(values)} of {node.op} do not fit {axes + 2} axes")
    inside = values[2:] if is_first else values[1:-1]
    others = values[:2] if is_first else (values[0], values[-1])
    if others != (1, 1):
        raise ModelError(f"the {name} {list(values)} of {node.op} move over images or channels")
    return tuple(inside)


@converter("Conv2D")
def conv_2d(node: TfNode) -> Node:
    """Convert a convolution of images."""
    return images_convolved(node.input(0), node.input(1), sliding_of(node, 2))


@converter("Conv3D")
def conv_3d(node: TfNode) -> Node:
    """Convert a convolution of volumes."""
    return images_convolved(node.input(0), node.input(1), sliding_of(node, 3))


@converter("Conv")
def conv(node: TfNode) -> Node:
    """Convert a convolution of as many axes as the data have, its attributes those of them."""
    if node.attributes.integer("batch_dims", 1) != 1 or node.attributes.integer("groups", 1) != 1:
        raise ModelError("a convolution with several batch axes, or of groups, is not supported")
    is_first = node.attributes.text("data_format", "CHANNELS_LAST") == "CHANNELS_FIRST"
    padding, pairs = node.attributes.text("padding"), node.attributes.integers("explicit_paddings")
    axes = node.rank(0) - 2
    sliding = Sliding(
        node.attributes.integers("strides"),
        node.attributes.integers("dilations") or None,
        padding == "SAME",
        tuple(pairs[::2]) if padding == "EXPLICIT" else (0,) * axes,
        tuple(pairs[1::2]) if padding == "EXPLICIT" else (0,) * axes,
        is_first,
    )
    return images_convolved(node.input(0), node.input(1), sliding)


@converter("DepthwiseConv2dNative")
def depthwise_conv_2d(node: TfNode) -> Node:
    """Convert a convolution of every channel by filters of its own."""
    return images_convolved_depthwise(node.input(0), node.input(1), sliding_of(node, 2))


def _transposed(node: TfNode, axes: int) -> Node:
    sliding = sliding_of(node, axes)
    wanted: Sequence[Dim] = node.sizes(0, "shape of the result")
    if len(wanted) != axes + 2 or node.rank(2) != axes + 2:
        raise ModelError(f"{node.op} takes images and filters of rank {axes + 2}")
    spatial = sliding.spatial(wanted)
    return images_convolved_transposed(node.input(2), node.input(1), sliding, spatial)


@converter("Conv2DBackpropInput")
def transposed_conv_2d(node: TfNode) -> Node:
    """Convert a transposed convolution of images to a given shape."""
    return _transposed(node, 2)


@converter("Conv3DBackpropInputV2")
def transposed_conv_3d(node: TfNode) -> Node:
    """Convert a transposed convolution of volumes to a given shape."""
    return _transposed(node, 3)


@converter("BiasAdd", "BiasAddV1")
def bias_add(node: TfNode) -> Node:
    """Convert a value added to every channel."""
    x, bias = node.input(0), node.input(1)
    if node.attributes.text("data_format").startswith("NC") and len(dims_of(x)) > 2:
        return elementwise.add(x, per_channel(bias, x))
    return in_one_layout(lambda a, b: elementwise.add(*operands(a, b)), x, bias)
