# SPDX-License-Identifier: Apache-2.0
"""Converters of reductions, of the largest or smallest index, and of running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.frontend.builders import reduce as builders
from treadle.frontend.builders.reduce import Axes, Reduction
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node
from treadle.ops import cumulative

REDUCTIONS: Mapping[str, tuple[Reduction, tuple[int, ...]]] = {
    "ReduceL1": (builders.sum_of_magnitudes, (1, 11, 13, 18)),
    "ReduceL2": (builders.euclidean_norm, (1, 11, 13, 18)),
    "ReduceLogSum": (builders.log_sum, (1, 11, 13, 18, 28)),
    "ReduceLogSumExp": (builders.log_sum_exp, (1, 11, 13, 18, 28)),
    "ReduceMax": (builders.largest, (1, 11, 12, 13, 18, 20)),
    "ReduceMean": (builders.mean, (1, 11, 13, 18)),
    "ReduceMin": (builders.smallest, (1, 11, 12, 13, 18, 20)),
    "ReduceProd": (builders.product, (1, 11, 13, 18)),
    "ReduceSum": (builders.total, (1, 11, 13)),
    "ReduceSumSquare": (builders.sum_of_squares, (1, 11, 13, 18)),
}

_AXES_INPUT = {"ReduceSum": 13}
"""The opset from which the axes are an input; 18 for all others."""


def _register_table() -> None:
    for name, (reduction, since) in REDUCTIONS.items():
        converter(name, since=since)(_reduction(reduction))


def _reduction(reduction: Reduction) -> Callable[[OnnxNode], Node]:
    def convert(node: OnnxNode) -> Node:
        x, ndim = node.input(0), node.type(0).ndim
        keepdims = node.flag("keepdims", True)
        axes, keeps = _axes(node), _keeps_without_axes(node)
        if not axes and not keeps:
            axes = tuple(range(ndim))
        return reduction(x, node.axes(axes or (), ndim), keepdims)

    return convert


def _axes(node: OnnxNode) -> Axes | None:
    if node.version < _AXES_INPUT.get(node.op, 18):
        return node.integers("axes")
    return node.constant_ints(1, "axes") if node.has_input(1) else None


def _keeps_without_axes(node: OnnxNode) -> bool:
    """True when a reduction without axes combines nothing (the element-wise part remains)."""
    if node.version < _AXES_INPUT.get(node.op, 18):
        return False
    return node.flag("noop_with_empty_axes")


@converter("ArgMax", "ArgMin", since=(1, 11, 12, 13))
def extreme_index(node: OnnxNode) -> Node:
    """Convert the index of the largest or smallest element along an axis."""
    return builders.extreme_index(
        node.input(0),
        node.axis(node.integer("axis", 0), node.type(0).ndim),
        is_largest=node.op == "ArgMax",
        keepdims=node.flag("keepdims", True),
        select_last=node.flag("select_last_index") if node.version >= 12 else False,
    )


@converter("CumSum", since=(11, 14))
@converter("CumProd", since=(26,))
def running(node: OnnxNode) -> Node:
    """Convert a running sum or product along an axis."""
    op = cumulative.cumsum if node.op == "CumSum" else cumulative.cumprod
    return op(
        node.input(0),
        axis=node.axis(int(node.constant_scalar(1, "axis")), node.type(0).ndim),
        exclusive=node.flag("exclusive"),
        reverse=node.flag("reverse"),
    )


_register_table()
