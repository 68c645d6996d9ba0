# SPDX-License-Identifier: Apache-2.0
"""Converters of image scaling."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.layout import channels_first, channels_last
from treadle.frontend.builders.resize import Sampling, corner_coordinates, resized, target_by_sizes
from treadle.frontend.tflite.node import TfliteNode, converter
from treadle.frontend.tflite.quantized import on_integers
from treadle.graph.nodes import Node


@converter("RESIZE_BILINEAR")
def resize_bilinear(node: TfliteNode) -> Node:
    """Convert an interpolation between the four pixels around a place."""
    coordinates = _coordinates(node, "half_pixel")
    sampling = Sampling("linear", coordinates)
    if node.keeps_scale():
        return on_integers(lambda x: _resized(node, x, sampling), node.input(0))
    return node.stored(_resized(node, node.real(0), sampling))


@converter("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(node: TfliteNode) -> Node:
    """Convert a choice of the nearest pixel: of integers as they are."""
    coordinates = _coordinates(node, "tf_half_pixel_for_nn")
    rounding = "round_prefer_ceil" if coordinates == "align_corners" else "floor"
    return node.moved(_resized(node, node.input(0), Sampling("nearest", coordinates, rounding)))


def _coordinates(node: TfliteNode, half_pixel: str) -> str:
    flag = node.options.flag
    return corner_coordinates(flag("align_corners"), flag("half_pixel_centers"), half_pixel)


def _resized(node: TfliteNode, x: Node, sampling: Sampling) -> Node:
    sizes = node.sizes(1, "size of the result")
    if node.rank(0) != 4 or len(sizes) != 2:
        raise ModelError(f"{node.op} takes images [n, h, w, c] and two sizes")
    images = channels_first(x)
    return channels_last(
        resized(images, target_by_sizes(images, {2: sizes[0], 3: sizes[1]}), sampling)
    )
