# SPDX-License-Identifier: Apache-2.0
"""Converters of image scaling."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted
from treadle.frontend.builders.layout import channels_first, channels_last
from treadle.frontend.builders.resize import Sampling, corner_coordinates, resized, target_by_sizes
from treadle.frontend.tensorflow.node import TfNode, converter
from treadle.graph.nodes import Node


@converter("ResizeBilinear")
def resize_bilinear(node: TfNode) -> Node:
    """Convert an interpolation between the four pixels around a place."""
    return _resized(node, Sampling("linear", _coordinates(node, "half_pixel")), is_real=True)


@converter("ResizeNearestNeighbor")
def resize_nearest(node: TfNode) -> Node:
    """Convert a choice of the nearest pixel."""
    coordinates = _coordinates(node, "tf_half_pixel_for_nn")
    rounding = "round_prefer_ceil" if coordinates == "align_corners" else "floor"
    return _resized(node, Sampling("nearest", coordinates, rounding), is_real=False)


@converter("ResizeBicubic")
def resize_bicubic(node: TfNode) -> Node:
    """Convert an interpolation by cubic polynomials over 16 pixels."""
    is_half = node.attributes.flag("half_pixel_centers")
    sampling = Sampling(
        "cubic",
        _coordinates(node, "half_pixel"),
        cubic_coefficient=-0.5 if is_half else -0.75,
        exclude_outside=is_half,
    )
    return _resized(node, sampling, is_real=True)


def _coordinates(node: TfNode, half_pixel: str) -> str:
    flag = node.attributes.flag
    return corner_coordinates(flag("align_corners"), flag("half_pixel_centers"), half_pixel)


def _resized(node: TfNode, sampling: Sampling, *, is_real: bool) -> Node:
    sizes = node.sizes(1, "size of the result")
    if node.rank(0) != 4 or len(sizes) != 2:
        raise ModelError(f"{node.op} takes images [n, h, w, c] and two sizes")
    images = channels_first(node.input(0))
    if is_real:
        images = converted(images, "float32")
    target = target_by_sizes(images, {2: sizes[0], 3: sizes[1]})
    return channels_last(resized(images, target, sampling))
