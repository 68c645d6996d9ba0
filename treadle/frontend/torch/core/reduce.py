# SPDX-License-Identifier: Apache-2.0
"""Converters of reductions over axes, and of running totals."""

from __future__ import annotations

from collections.abc import Sequence

from treadle import dtype as dt
from treadle.frontend.builders import reduce
from treadle.frontend.builders.basic import converted, dims_of, element_type, reshaped, scalar_like
from treadle.frontend.torch.node import AtenNode, aten, operand
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import product_of
from treadle.ops import cumulative
from treadle.ops import elementwise as ew

Axes = int | Sequence[int] | None


@aten("sum", "sum.dim_IntList")
def total(
    node: AtenNode, x: Node, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Node:
    """Convert a sum, in the type of the result."""
    return reduce.total(converted(x, node.dtype()), node.axes(dim, x), keepdim)


@aten("mean", "mean.dim")
def mean(
    node: AtenNode, x: Node, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Node:
    """Convert a mean, in the type of the result."""
    return reduce.mean(converted(x, node.dtype()), node.axes(dim, x), keepdim)


@aten("prod", "prod.dim_int")
def prod(
    node: AtenNode, x: Node, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Node:
    """Convert a product, in the type of the result; of truth values whether all hold."""
    if node.dtype() == "bool":
        return reduce.smallest(converted(x, "bool"), node.axes(dim, x), keepdim)
    return reduce.product(converted(x, node.dtype()), node.axes(dim, x), keepdim)


@aten("amax", "max")
def amax(node: AtenNode, x: Node, dim: Axes = None, keepdim: bool = False) -> Node:
    """Convert the largest element."""
    return reduce.largest(x, node.axes(dim, x), keepdim)


@aten("amin", "min")
def amin(node: AtenNode, x: Node, dim: Axes = None, keepdim: bool = False) -> Node:
    """Convert the smallest element."""
    return reduce.smallest(x, node.axes(dim, x), keepdim)


@aten("any", "any.dim", "any.dims")
def any_(node: AtenNode, x: Node, dim: Axes = None, keepdim: bool = False) -> Node:
    """Convert whether any element is not zero."""
    found = reduce.largest(converted(x, "bool"), node.axes(dim, x), keepdim)
    return converted(found, node.dtype())


@aten("all", "all.dim", "all.dims")
def all_(node: AtenNode, x: Node, dim: Axes = None, keepdim: bool = False) -> Node:
    """Convert whether no element is zero."""
    found = reduce.smallest(converted(x, "bool"), node.axes(dim, x), keepdim)
    return converted(found, node.dtype())


@aten("max.dim", "min.dim")
def extreme(node: AtenNode, x: Node, dim: int, keepdim: bool = False) -> list[Node]:
    """Convert the largest or smallest element along an axis, and where it is first."""
    is_largest = node.op == "aten.max.dim"
    pick = reduce.largest if is_largest else reduce.smallest
    return [pick(x, node.axes(dim, x), keepdim), _index(node, x, dim, keepdim, is_largest)]


@aten("argmax", "argmin")
def extreme_index(node: AtenNode, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    """Convert the place of the first largest or smallest element, of all where no axis is given."""
    return _index(node, x, dim, keepdim, node.op == "aten.argmax.default")


def _index(node: AtenNode, x: Node, dim: int | None, keepdim: bool, is_largest: bool) -> Node:
    data = converted(x, "uint8") if element_type(x) == "bool" else x
    shape = dims_of(data)
    if not shape:
        return Constant.of(0, "int64")
    if dim is None:
        flat = reshaped(data, (product_of(shape),))
        found = reduce.extreme_index(flat, 0, is_largest=is_largest, keepdims=False)
        return reshaped(found, (1,) * len(shape)) if keepdim else found
    axis = node.axis(dim, data)
    return reduce.extreme_index(data, axis, is_largest=is_largest, keepdims=keepdim)


@aten("var.correction", "var_mean.correction", "std.correction")
def variance(
    node: AtenNode,
    x: Node,
    dim: Axes = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Node | list[Node]:
    """Convert the variance, the deviation, or the variance with the mean."""
    axes, dtype = node.axes(dim, x), element_type(x)
    wide = converted(x, "float32") if dt.bits(dtype) == 16 else x
    mean = reduce.mean(wide, axes, True)
    centred = ew.subtract(wide, mean)
    squares = reduce.sum_of_squares(centred, axes, keepdim)
    count = count_less(wide, axes, 1 if correction is None else correction)
    made = converted(ew.divide(squares, count), dtype)
    if node.op.startswith("aten.std"):
        return converted(ew.sqrt(ew.divide(squares, count)), dtype)
    if node.op.startswith("aten.var."):
        return made
    return [made, converted(reduce.mean(wide, axes, keepdim), dtype)]


def count_less(x: Node, axes: Sequence[int], correction: float) -> Node:
    """Return how many elements are reduced less a correction, at least 0, as a float."""
    count = operand(product_of([dims_of(x)[a] for a in axes]), element_type(x))
    return ew.maximum(ew.subtract(count, scalar_like(correction, x)), scalar_like(0, x))


@aten("logsumexp")
def logsumexp(node: AtenNode, x: Node, dim: Axes, keepdim: bool = False) -> Node:
    """Convert log(sum(exp(x)))."""
    return reduce.log_sum_exp(converted(x, node.dtype()), node.axes(dim, x), keepdim)


@aten("cumsum")
def cumsum(node: AtenNode, x: Node, dim: int, dtype: str | None = None) -> Node:
    """Convert running sums, in the type of the result."""
    wide = converted(x, node.dtype())
    return cumulative.cumsum(wide, axis=node.axis(dim, x)) if dims_of(x) else wide


@aten("cumprod")
def cumprod(node: AtenNode, x: Node, dim: int, dtype: str | None = None) -> Node:
    """Convert running products, in the type of the result."""
    wide = converted(x, node.dtype())
    return cumulative.cumprod(wide, axis=node.axis(dim, x)) if dims_of(x) else wide
