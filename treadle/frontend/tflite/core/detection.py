# SPDX-License-Identifier: Apache-2.0
"""Converters that choose among overlapping boxes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    cut_columns,
    dims_of,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.detection import best_boxes, chosen_column, where_counted
from treadle.frontend.tflite.flexbuffer import numbers_of
from treadle.frontend.tflite.node import Result, TfliteNode, converter
from treadle.graph.nodes import Constant, Node, TupleItem
from treadle.graph.types import known_sizes
from treadle.ops import elementwise, indexing, movement, sort
from treadle.ops import reduce as reductions

_MOST_DETECTIONS = 1 << 16


def _just_below(value: float) -> Constant:
    """Return the float32 below a threshold that scores may reach."""
    return Constant.of(np.nextafter(np.float32(value), np.float32(-np.inf)), "float32")


@converter("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(node: TfliteNode) -> Result:
    """Convert the choice of the best of overlapping boxes: as many rows as there may be."""
    limit = int(node.constant_number(2, "number of boxes"))
    if not 0 < limit <= _MOST_DETECTIONS:
        raise ModelError(f"{node.op} of {limit} boxes is not supported")
    overlap = converted(reshaped(node.input(3), ()), "float32")
    lowest = converted(reshaped(node.input(4), ()), "float32")
    if node.op == "NON_MAX_SUPPRESSION_V5" and node.constant_number(5, "sigma") != 0:
        raise ModelError("suppression by lower scores (a sigma above 0) is not supported")
    scores = node.real(1)
    rows, count = best_boxes(
        node.real(0), reshaped(scores, (1, *dims_of(scores))), limit, overlap, lowest
    )
    places = chosen_column(rows, count, 2)
    made = [converted(places, "int32"), converted(count, "int32")]
    if node.op == "NON_MAX_SUPPRESSION_V5":
        made.insert(1, where_counted(count, indexing.gather(scores, places, axis=0)))
    return made


@converter("CUSTOM.TFLite_Detection_PostProcess")
def detection_post_process(node: TfliteNode) -> Result:
    """Convert boxes relative to anchors, and scores of classes, to the best detections."""
    options = numbers_of(node.custom_options)
    most, classes = _wanted(options, "max_detections"), _wanted(options, "num_classes")
    boxes = _decoded(node, options)
    scores = reshaped(node.real(1), dims_of(node.input(1))[1:])
    count, columns = known_sizes(dims_of(scores))
    scores = cut_columns(scores, columns - classes, columns)  # the background is in front
    overlap = Constant.of(options.get("nms_iou_threshold", 0.5), "float32")
    lowest = _just_below(options.get("nms_score_threshold", 0.0))
    most = min(most, count * classes)
    if options.get("use_regular_nms", 0):
        per_class = min(int(options.get("detections_per_class", 100)), count)
        found = _best_per_class(boxes, scores, (per_class, most), overlap, lowest)
    else:
        if options.get("max_classes_per_detection", 1) != 1:
            raise ModelError("several classes per detection are not supported")
        found = _best_of_all(boxes, scores, most, overlap, lowest)
    return [_padded(x, node.result(k).shape) for k, x in enumerate(found)]


def _wanted(options: Mapping[str, float], name: str) -> int:
    value = int(options.get(name, 0))
    if not 0 < value <= _MOST_DETECTIONS:
        raise ModelError(f"the custom option {name} is {value}")
    return value


def _decoded(node: TfliteNode, options: Mapping[str, float]) -> Node:
    """Return the corners (y, x, y, x) of boxes [boxes, 4]."""
    given = node.real(0)
    if len(dims_of(given)) != 3 or dims_of(given)[0] != 1:
        raise ModelError(f"{node.op} takes boxes [1, boxes, 4], not {given.type}")
    shifts, anchors = reshaped(given, dims_of(given)[1:]), node.real(2)
    scales = [options.get(f"{name}_scale", 1.0) for name in "yxhw"]
    if 0.0 in scales:
        raise ModelError("a scale of the boxes is 0")
    shifts = elementwise.divide(cut_columns(shifts, 0, 4), Constant.of(np.array(scales, "float32")))
    middles, extents = cut_columns(anchors, 0, 2), cut_columns(anchors, 2, 4)
    middle = elementwise.add(elementwise.multiply(cut_columns(shifts, 0, 2), extents), middles)
    extent = elementwise.multiply(elementwise.exp(cut_columns(shifts, 2, 4)), extents)
    half = elementwise.multiply(extent, scalar_like(0.5, extent))
    return movement.concat(
        elementwise.subtract(middle, half), elementwise.add(middle, half), axis=1
    )


def _best_of_all(boxes: Node, scores: Node, most: int, overlap: Node, lowest: Node) -> list[Node]:
    """Return boxes, classes, scores and number of the best, each box by its best class."""
    best = reductions.max_(scores, axes=(1,), keepdims=False)
    classes = reductions.argmax(scores, axis=1, keepdims=False)
    rows, count = best_boxes(boxes, reshaped(best, (1, *dims_of(best))), most, overlap, lowest)
    places = chosen_column(rows, count, 2)
    made = [indexing.gather(x, places, axis=0) for x in (boxes, classes, best)]
    return [*(where_counted(count, x) for x in made), count]


def _best_per_class(
    boxes: Node, scores: Node, limits: tuple[int, int], overlap: Node, lowest: Node
) -> list[Node]:
    """Return boxes, classes, scores and number of the best, chosen for every class alone."""
    rows, count = best_boxes(boxes, transposed(scores, (1, 0)), limits[0], overlap, lowest)
    most = min(limits[1], known_sizes(dims_of(rows)[:1])[0])
    classes, places = chosen_column(rows, count, 1), chosen_column(rows, count, 2)
    pairs = movement.concat(*(reshaped(x, (*dims_of(x), 1)) for x in (places, classes)), axis=1)
    found = indexing.gather_nd(scores, pairs)
    inside = elementwise.less(counted(dims_of(rows)[0]), reshaped(count, (1,)))
    ranked = elementwise.where(inside, found, scalar_like(-np.inf, found))
    both = sort.topk(ranked, k=most, axis=0)
    order, number = TupleItem.of(both, 1), elementwise.minimum(count, Constant.of(most, "int64"))
    chosen = [indexing.gather(x, order, axis=0) for x in (places, classes, found)]
    corners = indexing.gather(boxes, chosen[0], axis=0)
    return [*(where_counted(number, x) for x in (corners, *chosen[1:])), number]


def _padded(x: Node, shape: tuple[int, ...]) -> Node:
    """Return float32 detections in the shape that the file says, zeros where there are none."""
    x = converted(x, "float32")
    if not dims_of(x):
        return reshaped(x, (1,))
    (count,) = known_sizes(dims_of(x)[:1])
    wanted = shape[1] if len(shape) > 1 and shape[1] > count else count
    rest = dims_of(x)[1:]
    if wanted > count:
        x = movement.concat(
            x, broadcast(Constant.of(0.0, "float32"), (wanted - count, *rest)), axis=0
        )
    return reshaped(x, (1, wanted, *rest))
