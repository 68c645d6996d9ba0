# SPDX-License-Identifier: Apache-2.0
"""Converters of sampling at positions that are data."""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import reshaped, transposed
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import matmul, roi, vision

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


@converter("AffineGrid", since=(20,))
def affine_grid(node: OnnxNode) -> Node:
    """Convert a grid of points, each coordinate from -1 to 1, under one affine map per image.

    The map's rows are those of the coordinates (x, y and, for volumes, z): what grid_sample takes.
    """
    theta, shape = node.type(0), node.constant_ints(1, "size of the grid")
    axes = len(shape) - 2
    if axes not in (2, 3) or theta.shape[1:] != (axes, axes + 1):
        raise ModelError(
            f"maps of {theta} do not go with a grid of {list(shape)}",
            hint="maps are [N, 2, 3] for a size [N, C, H, W], [N, 3, 4] for [N, C, D, H, W]",
        )
    extents, corners = shape[2:], node.flag("align_corners")
    lines = [_line(n, corners) for n in extents]
    places = np.meshgrid(*lines, indexing="ij")[::-1]  # x is the last axis
    points = np.stack([p.reshape(-1) for p in (*places, np.ones(extents))], axis=1)
    rows = Constant.of(points.astype(dt.to_numpy(theta.dtype)))
    moved = matmul.matmul(rows, transposed(node.input(0), (0, 2, 1)))
    return reshaped(moved, (node.dims(0)[0], *extents, axes))


def _line(count: int, corners: bool) -> np.ndarray:
    """Return `count` positions between -1 and 1: the ends among them, or middles of equal parts."""
    if corners:
        return np.linspace(-1.0, 1.0, count)
    return (2 * np.arange(count) + 1) / max(count, 1) - 1


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
