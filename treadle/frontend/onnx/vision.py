# SPDX-License-Identifier: Apache-2.0
"""Converters of sampling at positions that are data."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node
from treadle.ops import vision

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
