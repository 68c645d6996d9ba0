# SPDX-License-Identifier: Apache-2.0
"""Converters of reductions, the places of extremes, running sums, and sums by segment."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted
from treadle.frontend.builders.reduce import (
    Reduction,
    euclidean_norm,
    extreme_index,
    images_reduced,
    largest,
    mean,
    product,
    smallest,
    total,
)
from treadle.frontend.tensorflow.node import Result, TfNode, converter
from treadle.graph.nodes import Node, TupleItem
from treadle.ops import cumulative, sort

_REDUCTIONS: dict[str, Reduction] = {
    "Mean": mean,
    "Sum": total,
    "Prod": product,
    "Max": largest,
    "Min": smallest,
    "Any": largest,
    "All": smallest,
    "EuclideanNorm": euclidean_norm,
}


def _register(op: str, reduce: Reduction) -> None:
    """Register a reduction over the axes that the second input lists."""

    @converter(op)
    def convert(node: TfNode) -> Node:
        axes = tuple(sorted({node.axis(a, node.rank(0)) for a in node.constant_ints(1, "axes")}))
        return images_reduced(node.input(0), reduce, axes, node.attributes.flag("keep_dims"))


for _op, _reduction in _REDUCTIONS.items():
    _register(_op, _reduction)


@converter("ArgMax", "ArgMin")
def arg_extreme(node: TfNode) -> Node:
    """Convert the place of the first largest or smallest element along an axis."""
    axis = node.constant_axis(1, node.rank(0))
    made = extreme_index(node.input(0), axis, is_largest=node.op == "ArgMax", keepdims=False)
    return converted(made, node.dtype("output_type", "int64"))


@converter("Cumsum")
def running(node: TfNode) -> Node:
    """Convert a running sum along an axis."""
    return cumulative.cumsum(
        node.input(0),
        axis=node.constant_axis(1, node.rank(0)),
        exclusive=node.attributes.flag("exclusive"),
        reverse=node.attributes.flag("reverse"),
    )


@converter("TopK", "TopKV2")
def top_k(node: TfNode) -> Result:
    """Convert the largest elements of the last axis in order, and their places."""
    is_old = node.op == "TopK"
    count = node.attributes.integer("k") if is_old else int(node.constant_number(1, "number"))
    axis = node.rank(0) - 1
    if axis < 0 or count < 0:
        raise ModelError(f"{count} elements of {node.type(0)} are none")
    both = sort.topk(node.input(0), k=count, axis=axis)
    places = converted(TupleItem.of(both, 1), node.dtype("index_type", "int32"))
    return [TupleItem.of(both, 0), places]
