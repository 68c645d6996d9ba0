# SPDX-License-Identifier: Apache-2.0
"""Converters of reductions, the places of extremes, and running sums."""

from __future__ import annotations

from math import prod

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted
from treadle.frontend.builders.reduce import (
    Reduction,
    extreme_index,
    images_reduced,
    largest,
    mean,
    product,
    smallest,
    total,
)
from treadle.frontend.tflite.node import Result, TfliteNode, converter
from treadle.frontend.tflite.pointwise import sum_in_steps
from treadle.graph.nodes import Node, TupleItem
from treadle.ops import cumulative, sort


def _reduction(op: str, reduce: Reduction, *, is_real: bool) -> None:
    """Register a reduction over the axes that the second input lists."""

    @converter(op)
    def convert(node: TfliteNode) -> Node:
        x = node.real(0) if is_real else node.input(0)
        ndim = node.rank(0)
        axes = tuple(sorted({node.axis(a, ndim) for a in node.constant_ints(1, "axes")}))
        integers = _of_integers(node, axes) if op in ("MEAN", "SUM") else None
        if integers is not None:
            return integers
        made = images_reduced(x, reduce, axes, node.options.flag("keep_dims"))
        return node.stored(made) if is_real else node.moved(made)


def _of_integers(node: TfliteNode, axes: tuple[int, ...]) -> Node | None:
    """Return a mean or sum of quantised elements by integers alone, None where one is of floats."""
    sizes = [node.dims(0)[a] for a in axes]
    known = [s for s in sizes if isinstance(s, int) and s > 0]
    if not axes or len(known) < len(sizes):
        return None
    keepdims = node.options.flag("keep_dims")
    return sum_in_steps(node, prod(known), lambda x: images_reduced(x, total, axes, keepdims))


_reduction("MEAN", mean, is_real=True)
_reduction("SUM", total, is_real=True)
_reduction("REDUCE_PROD", product, is_real=True)
_reduction("REDUCE_MAX", largest, is_real=False)
_reduction("REDUCE_MIN", smallest, is_real=False)
_reduction("REDUCE_ANY", largest, is_real=False)
_reduction("REDUCE_ALL", smallest, is_real=False)


@converter("ARG_MAX", "ARG_MIN")
def arg_extreme(node: TfliteNode) -> Node:
    """Convert the place of the first largest or smallest element along an axis."""
    (axis,) = node.constant_ints(1, "axis")
    made = extreme_index(
        node.input(0),
        node.axis(axis, node.rank(0)),
        is_largest=node.op == "ARG_MAX",
        keepdims=False,
    )
    return converted(made, node.result().dtype)


@converter("CUMSUM")
def cumulative_sum(node: TfliteNode) -> Node:
    """Convert a running sum along an axis."""
    (axis,) = node.constant_ints(1, "axis")
    return cumulative.cumsum(
        node.input(0),
        axis=node.axis(axis, node.rank(0)),
        exclusive=node.options.flag("exclusive"),
        reverse=node.options.flag("reverse"),
    )


@converter("TOPK_V2")
def top_k(node: TfliteNode) -> Result:
    """Convert the largest elements of the last axis in order, and their places."""
    (count,) = node.constant_ints(1, "number of elements")
    axis = node.rank(0) - 1
    if axis < 0 or count < 0:
        raise ModelError(f"{count} elements of {node.type(0)} are none")
    both = sort.topk(node.input(0), k=count, axis=axis)
    return [node.moved(TupleItem.of(both, 0)), converted(TupleItem.of(both, 1), "int32")]
