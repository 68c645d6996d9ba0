# SPDX-License-Identifier: Apache-2.0
"""Builders of reductions over axes; over no axes each is its element-wise part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from treadle import dtype as dt
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import (
    checked,
    converted,
    dims_of,
    element_type,
    transposed,
)
from treadle.frontend.builders.layout import common_first
from treadle.graph.nodes import Call, Node
from treadle.graph.types import product_of, tensor_type
from treadle.ops import elementwise
from treadle.ops import reduce as reductions

Axes: TypeAlias = tuple[int, ...]

Reduction: TypeAlias = Callable[[Node, Axes, bool], Node]
"""reduction(x, axes, keepdims): axes count from the front, reduced ones stay with extent 1."""


def _plain(op: Callable[..., Call]) -> Reduction:
    """Return a reduction by `op`; over no axes it is the identity."""
    return lambda x, axes, keepdims: op(x, axes=axes, keepdims=keepdims) if axes else x


total: Reduction = _plain(reductions.sum_)
"""The sum."""

mean: Reduction = _plain(reductions.mean)
"""The mean."""

product: Reduction = _plain(reductions.prod)
"""The product."""


def sum_of_magnitudes(x: Node, axes: Axes, keepdims: bool) -> Node:
    """Return the 1-norm."""
    return total(elementwise.abs(x), axes, keepdims)


def sum_of_squares(x: Node, axes: Axes, keepdims: bool) -> Node:
    """Return the square of the 2-norm."""
    return total(elementwise.multiply(x, x), axes, keepdims)


def euclidean_norm(x: Node, axes: Axes, keepdims: bool) -> Node:
    """Return the 2-norm."""
    wide, dtype = _float(x)
    return converted(elementwise.sqrt(sum_of_squares(wide, axes, keepdims)), dtype)


def log_sum(x: Node, axes: Axes, keepdims: bool) -> Node:
    """Return the logarithm of the sum."""
    wide, dtype = _float(x)
    return converted(elementwise.log(total(wide, axes, keepdims)), dtype)


def log_sum_exp(x: Node, axes: Axes, keepdims: bool) -> Node:
    """Return log(sum(exp(x))) shifted by the maximum, so that nothing overflows."""
    wide, dtype = _float(x)
    if 0 in map(int_value, dims_of(x)):
        return converted(elementwise.log(total(elementwise.exp(wide), axes, keepdims)), dtype)
    peak = _plain(reductions.max_)(wide, axes, True)
    finite = elementwise.clip(peak, min=-3.0e38, max=3.0e38)
    shifted = elementwise.exp(elementwise.subtract(wide, finite))
    logarithm = elementwise.log(total(shifted, axes, keepdims))
    shift = finite if keepdims else total(finite, axes, False)
    return converted(elementwise.add(logarithm, shift), dtype)


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


largest: Reduction = _extreme(reductions.max_)
"""The largest element; of truth values whether any is true."""

smallest: Reduction = _extreme(reductions.min_)
"""The smallest element; of truth values whether all are true."""


def extreme_index(
    x: Node, axis: int, *, is_largest: bool, keepdims: bool, select_last: bool = False
) -> Node:
    """Return the index of the largest or smallest element; a run over an empty axis is refused."""
    dims = dims_of(x)
    others = product_of(dims[:axis] + dims[axis + 1 :])
    op = reductions.argmax if is_largest else reductions.argmin
    filled = checked(x, "filled", dims[axis], others, axis)
    return op(filled, axis=axis, keepdims=keepdims, select_last=select_last)


def images_reduced(x: Node, reduce: Reduction, axes: Axes, keepdims: bool) -> Node:
    """Return a reduction, that of whole images [n, h, w, c] with their channels first."""
    made = common_first([x]) if len(dims_of(x)) == 4 else None
    if made is None or axes != (1, 2) or element_type(x) == "bool":
        return reduce(x, axes, keepdims)
    pooled = reduce(made[0], (2, 3), keepdims)
    return transposed(pooled, (0, 2, 3, 1)) if keepdims else pooled
