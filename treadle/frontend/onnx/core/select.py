# SPDX-License-Identifier: Apache-2.0
"""Converters of selections whose size depends on data: what is not zero, distinct, or best."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, reshaped
from treadle.frontend.builders.selection import Selection, compressed, distinct, flat, nonzero
from treadle.frontend.onnx.node import OnnxNode, Result, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import nms


@converter("NonZero", since=(9, 13))
def non_zero(node: OnnxNode) -> Node:
    """Convert the coordinates of what is not zero, one row per axis."""
    return nonzero(node.input(0), node.measure)


@converter("Compress", since=(9, 11, 28))
def compress(node: OnnxNode) -> Node:
    """Convert the slices along an axis (or elements) for which a condition holds."""
    if node.type(1).ndim != 1:
        raise ModelError(f"the condition must be a vector, not {node.type(1)}")
    x, axis = _along_axis(node)
    return compressed(x, node.input(1), axis, node.measure)


def _along_axis(node: OnnxNode) -> tuple[Node, int]:
    """Return the input and an axis of it; without one the input as a vector."""
    x = node.input(0)
    if "axis" not in node.attributes:
        return flat(x), 0
    return x, node.axis(node.integer("axis"), node.type(0).ndim)


@converter("Unique", since=(11, 28))
def unique_elements(node: OnnxNode) -> Result:
    """Convert the distinct elements, or slices along an axis, in ascending or first order."""
    x, axis = _along_axis(node)
    return distinct(x, axis, node.measure, ascending=node.flag("sorted", True))


@converter("NonMaxSuppression", since=(10, 11))
def non_max_suppression(node: OnnxNode) -> Node:
    """Convert the best of overlapping boxes per class; without a limit there are none."""
    boxes, scores = node.input(0), node.input(1)
    limit = _number(node, 2, 0, "int64")
    overlap, lowest = _number(node, 3, 0.0, "float32"), _number(node, 4, 0.0, "float32")
    room = node.type(0).shape[1]
    if isinstance(limit, Constant):
        most = max(int(limit.value), 0)
        room = min(room, most) if isinstance(room, int) else room if most else 0
    centered = node.flag("center_point_box")
    filtered = node.has_input(4)
    call = nms.non_max_suppression(
        boxes, scores, limit, overlap, lowest, room=room, centered=centered, filtered=filtered
    )
    return Selection(call, node.measure).first(0)


def _number(node: OnnxNode, index: int, default: float, dtype: str) -> Node:
    if not node.has_input(index):
        return Constant.of(default, dtype)
    return converted(reshaped(node.input(index), ()), dtype)
