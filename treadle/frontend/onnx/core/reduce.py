# SPDX-License-Identifier: Apache-2.0
"""Converters of reductions, of the largest or smallest index, and of running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle import dtype as dt
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import checked, converted, dims_of
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Call, Node
from treadle.graph.types import product_of, tensor_type
from treadle.ops import cumulative, elementwise
from treadle.ops import reduce as reductions

Axes = tuple[int, ...]
Reduction = Callable[[Node, Axes, bool], Node]


def _plain(op: Callable[..., Call]) -> Reduction:
    """Return a reduction by `op`; over no axes it is the identity."""
    return lambda x, axes, keepdims: op(x, axes=axes, keepdims=keepdims) if axes else x


_sum = _plain(reductions.sum_)


def _square(x: Node) -> Node:
    return elementwise.multiply(x, x)


def _l1(x: Node, axes: Axes, keepdims: bool) -> Node:
    return _sum(elementwise.abs(x), axes, keepdims)


def _sum_square(x: Node, axes: Axes, keepdims: bool) -> Node:
    return _sum(_square(x), axes, keepdims)


def _l2(x: Node, axes: Axes, keepdims: bool) -> Node:
    wide, dtype = _float(x)
    return converted(elementwise.sqrt(_sum_square(wide, axes, keepdims)), dtype)


def _log_sum(x: Node, axes: Axes, keepdims: bool) -> Node:
    wide, dtype = _float(x)
    total = _sum(wide, axes, keepdims)
    return converted(elementwise.log(total), dtype)


def _log_sum_exp(x: Node, axes: Axes, keepdims: bool) -> Node:
    """Return log(sum(exp(x))) shifted by the maximum, so that nothing overflows."""
    wide, dtype = _float(x)
    if 0 in map(int_value, dims_of(x)):
        total = _sum(elementwise.exp(wide), axes, keepdims)
        return converted(elementwise.log(total), dtype)
    peak = _plain(reductions.max_)(wide, axes, True)
    finite = elementwise.clip(peak, min=-3.0e38, max=3.0e38)
    shifted = elementwise.exp(elementwise.subtract(wide, finite))
    total = elementwise.log(_sum(shifted, axes, keepdims))
    shift = finite if keepdims else _sum(finite, axes, False)
    return converted(elementwise.add(total, shift), dtype)


def _float(x: Node) -> tuple[Node, str]:
    """Return integers and halves as floats, and the type to go back to."""
    dtype = tensor_type(x.type).dtype
    if dt.is_float(dtype):
        return (x, dtype) if dt.bits(dtype) > 16 else (converted(x, "float32"), dtype)
    return converted(x, "float64" if dt.bits(dtype) > 32 else "float32"), dtype


def _extreme(op: Callable[..., Call]) -> Reduction:
    """Return a maximum or minimum that takes bool as 0 and 1."""

    def reduce(x: Node, axes: Axes, keepdims: bool) -> Node:
        if tensor_type(x.type).dtype != "bool":
            return _plain(op)(x, axes, keepdims)
        return converted(_plain(op)(converted(x, "uint8"), axes, keepdims), "bool")

    return reduce


REDUCTIONS: Mapping[str, tuple[Reduction, tuple[int, ...]]] = {
    "ReduceL1": (_l1, (1, 11, 13, 18)),
    "ReduceL2": (_l2, (1, 11, 13, 18)),
    "ReduceLogSum": (_log_sum, (1, 11, 13, 18, 28)),
    "ReduceLogSumExp": (_log_sum_exp, (1, 11, 13, 18, 28)),
    "ReduceMax": (_extreme(reductions.max_), (1, 11, 12, 13, 18, 20)),
    "ReduceMean": (_plain(reductions.mean), (1, 11, 13, 18)),
    "ReduceMin": (_extreme(reductions.min_), (1, 11, 12, 13, 18, 20)),
    "ReduceProd": (_plain(reductions.prod), (1, 11, 13, 18)),
    "ReduceSum": (_plain(reductions.sum_), (1, 11, 13)),
    "ReduceSumSquare": (_sum_square, (1, 11, 13, 18)),
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
    op = reductions.argmax if node.op == "ArgMax" else reductions.argmin
    axis, dims = node.axis(node.integer("axis", 0), node.type(0).ndim), node.dims(0)
    others = product_of(dims[:axis] + dims[axis + 1 :])
    return op(
        checked(node.input(0), "filled", dims[axis], others, axis),
        axis=axis,
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
