# SPDX-License-Identifier: Apache-2.0
"""Converters of sampling at positions that are data."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node
from treadle.ops import roi, vision

_MODES = {
    "bilinear": "linear",
    "bicubic": "cubic",
    "nearest": "nearest",
    "linear": "linear",
    "cubic": "cubic",
}


@converter("GridSample", since=(16, 20, 22))
def grid_sample(node: OnnxNode) -> Node:
    """Convert a sampling of an image or volume at the points of a grid."""
    mode = node.text("mode", "bilinear" if node.version < 20 else "linear")
    if mode not in _MODES:
        raise ModelError(f"the mode of GridSample is {mode!r}, not one of {', '.join(_MODES)}")
    return vision.grid_sample(
        node.input(0),
        node.input(1),
        interpolation=_MODES[mode],
        padding_mode=node.text("padding_mode", "zeros"),
        align_corners=node.flag("align_corners"),
    )


@converter("RoiAlign", since=(10, 16, 22))
def roi_align(node: OnnxNode) -> Node:
    """Convert a pooling of regions; before opset 16 coordinates are not moved by half a pixel."""
    coordinates = "output_half_pixel"
    if node.version >= 16:
        coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    mode = node.text("mode", "avg")
    if coordinates not in ("half_pixel", "output_half_pixel") or mode not in ("avg", "max"):
        raise ModelError(f"RoiAlign with mode {mode!r} and {coordinates!r} is not defined")
    return roi.roi_align(
        node.input(0),
        node.input(1),
        node.input(2),
        sizes=(node.integer("output_height", 1), node.integer("output_width", 1)),
        spatial_scale=node.number("spatial_scale", 1.0),
        sampling=node.integer("sampling_ratio", 0),
        mode=mode,
        half_pixel=coordinates == "half_pixel",
    )
