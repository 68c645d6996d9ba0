# SPDX-License-Identifier: Apache-2.0
"""Converters of choices whose number depends on data: what is not zero, distinct, or best."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of, reshaped, transposed
from treadle.frontend.builders.detection import best_boxes, chosen_column, where_counted
from treadle.frontend.builders.selection import distinct, nonzero
from treadle.frontend.tensorflow.node import Result, TfNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import indexing, select

_MOST_BOXES = 1 << 16


@converter("Where")
def where(node: TfNode) -> Node:
    """Convert the coordinates of what is not zero, one row per element."""
    return transposed(nonzero(node.input(0), node.measure), (1, 0))


@converter("Unique", "UniqueV2", "UniqueWithCounts")
def unique(node: TfNode) -> Result:
    """Convert the distinct elements of a vector in order of their first place."""
    axis = 0
    if node.op == "UniqueV2" and dims_of(node.input(1)) != (0,):
        axis = node.constant_axis(1, node.rank(0))
    values, _, places, counts = distinct(node.input(0), axis, node.measure, ascending=False)
    dtype = node.dtype("out_idx", "int32")
    made = [values, converted(places, dtype), converted(counts, dtype)]
    return made if node.op == "UniqueWithCounts" else made[:2]


_SUPPRESSIONS = ("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3",
                 "NonMaxSuppressionV4", "NonMaxSuppressionV5")  # fmt: skip


@converter(*_SUPPRESSIONS)
def non_max_suppression(node: TfNode) -> Result:
    """Convert the choice of the best of overlapping boxes."""
    limit = int(node.constant_number(2, "number of boxes"))
    if not 0 < limit <= _MOST_BOXES:
        raise ModelError(f"{node.op} of {limit} boxes is not supported")
    scores = node.input(1)
    rows, count = best_boxes(
        node.input(0),
        reshaped(scores, (1, *dims_of(scores))),
        limit,
        _threshold(node, 3, node.attributes.number("iou_threshold", 0.5)),
        _threshold(node, 4, float("-inf")),
    )
    if node.op == "NonMaxSuppressionV5" and node.constant_number(5, "sigma") != 0:
        raise ModelError("suppression by lower scores (a sigma above 0) is not supported")
    places = converted(chosen_column(rows, count, 2), "int32")
    if node.op not in ("NonMaxSuppressionV4", "NonMaxSuppressionV5"):
        return select.head(places, size=node.measure(count))
    number = converted(count, "int32")
    best = where_counted(count, indexing.gather(scores, places, axis=0))
    made = [places, number] if node.op == "NonMaxSuppressionV4" else [places, best, number]
    if node.attributes.flag("pad_to_max_output_size"):
        return made
    size = node.measure(count)
    return [select.head(m, size=size) if dims_of(m) else m for m in made]


def _threshold(node: TfNode, index: int, default: float) -> Node:
    if not node.has_input(index):
        return Constant.of(default, "float32")
    return converted(reshaped(node.input(index), ()), "float32")
