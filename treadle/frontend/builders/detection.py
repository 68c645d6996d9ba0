# SPDX-License-Identifier: Apache-2.0
"""Builders of the choice among overlapping boxes, with as many rows as there may be."""

from __future__ import annotations

from treadle.frontend.builders.basic import counted, cut_columns, dims_of, reshaped, scalar_like
from treadle.graph.nodes import Constant, Node, TupleItem
from treadle.ops import elementwise, nms


def best_boxes(
    boxes: Node, scores: Node, limit: int, overlap: Node, lowest: Node
) -> tuple[Node, Node]:
    """Return int64[classes * limit, 3] of (batch, class, box), best first, and how many there are.

    `boxes` are [boxes, 4], `scores` [classes, boxes].
    """
    call = nms.non_max_suppression(
        reshaped(boxes, (1, *dims_of(boxes))),
        reshaped(scores, (1, *dims_of(scores))),
        Constant.of(limit, "int64"),
        overlap,
        lowest,
        room=limit,
    )
    return TupleItem.of(call, 0), TupleItem.of(call, 1)


def where_counted(count: Node, x: Node) -> Node:
    """Return the first `count` rows of `x`, zeros behind them."""
    rows = dims_of(x)[0]
    inside = elementwise.less(counted(rows), reshaped(count, (1,)))
    shape = (rows, *(1,) * (len(dims_of(x)) - 1))
    return elementwise.where(reshaped(inside, shape), x, scalar_like(0, x))


def chosen_column(rows: Node, count: Node, column: int) -> Node:
    """Return a column of the chosen (batch, class, box), 0 behind the last of them."""
    column_of = reshaped(cut_columns(rows, column, column + 1), (dims_of(rows)[0],))
    return where_counted(count, column_of)
