# SPDX-License-Identifier: Apache-2.0
"""Builders of matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    dims_of,
    reshaped,
    scalar_like,
    stretched,
    transposed,
)
from treadle.graph.broadcasting import common_shape, is_literal_one
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, may_agree, tensor_type
from treadle.ops import elementwise, matmul


def product(a: Node, b: Node) -> Node:
    """Return NumPy's matmul of two values: vectors are a row on the left, a column on the right.

    The result is of the factors' type, also where that is of one byte.
    """
    left, right = dims_of(a), dims_of(b)
    if not left or not right:
        raise ModelError("a matrix product of scalars is not defined")
    rows = reshaped(a, (1, *left)) if len(left) == 1 else a
    columns = reshaped(b, (*right, 1)) if len(right) == 1 else b
    result = converted(matmul.matmul(*_stacked(rows, columns)), tensor_type(a.type).dtype)
    shape = dims_of(result)
    if len(left) == 1:
        shape = (*shape[:-2], shape[-1])
    return reshaped(result, shape[:-1] if len(right) == 1 else shape)


def _stacked(a: Node, b: Node) -> tuple[Node, Node]:
    """Return two stacks of matrices with the stacks' extents broadcast where a run decides them."""
    left, right = dims_of(a), dims_of(b)
    batch = common_shape(left[:-2], right[:-2])
    if batch is None:
        return a, b
    return stretched(a, (*batch, *left[-2:])), stretched(b, (*batch, *right[-2:]))


def linear(x: Node, weights: Node, bias: Node | None = None) -> Node:
    """Return x W' + b: x [..., k] by weights [n, k] with a bias [n], as layers store them."""
    result = product(x, transposed(weights, (1, 0)))
    return result if bias is None else elementwise.add(result, bias)


def general_product(
    a: Node, b: Node, c: Node | None = None, *, alpha: float = 1.0, beta: float = 1.0
) -> Node:
    """Return alpha * a b + beta * c of matrices, where c broadcasts to the product (BLAS gemm)."""
    result = scaled(converted(matmul.matmul(a, b), tensor_type(a.type).dtype), alpha)
    if c is None or beta == 0.0:
        return result
    if not _may_broadcast(dims_of(c), dims_of(result)):
        raise ModelError(f"C of type {c.type} does not broadcast to {result.type}")
    return elementwise.add(result, scaled(stretched(c, dims_of(result)), beta))


def _may_broadcast(shape: Sequence[Dim], whole: Sequence[Dim]) -> bool:
    if len(shape) > len(whole):
        return False
    pairs = zip(shape, whole[len(whole) - len(shape) :], strict=True)
    return all(is_literal_one(d) or may_agree(d, w) for d, w in pairs)


def scaled(x: Node, factor: float) -> Node:
    """Return x times a number; itself where that is 1."""
    return x if factor == 1.0 else elementwise.multiply(x, scalar_like(factor, x))
