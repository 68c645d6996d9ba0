# SPDX-License-Identifier: Apache-2.0
"""Converters of matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, reshaped, scalar_like, stretched, transposed
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.broadcasting import common_shape, is_literal_one
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, may_agree
from treadle.ops import elementwise, linalg, matmul


def product(a: Node, b: Node) -> Node:
    """Return NumPy's matmul of two values: vectors are a row on the left, a column on the right."""
    left, right = dims_of(a), dims_of(b)
    if not left or not right:
        raise ModelError("a matrix product of scalars is not defined")
    rows = reshaped(a, (1, *left)) if len(left) == 1 else a
    columns = reshaped(b, (*right, 1)) if len(right) == 1 else b
    result: Node = matmul.matmul(*_stacked(rows, columns))
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


@converter("MatMul", since=(1, 9, 13))
def matrix_product(node: OnnxNode) -> Node:
    """Convert a matrix product with NumPy's rules for vectors and stacks of matrices."""
    return product(node.input(0), node.input(1))


@converter("Det", since=(11, 22))
def determinant(node: OnnxNode) -> Node:
    """Convert the determinants of a stack of matrices."""
    return linalg.det(node.input(0))


@converter("Gemm", since=(1, 6, 7, 9, 11, 13))
def gemm(node: OnnxNode) -> Node:
    """Convert alpha * A' B' + beta * C."""
    a, b = node.input(0), node.input(1)
    if node.type(0).ndim != 2 or node.type(1).ndim != 2:
        raise ModelError(f"Gemm multiplies matrices, not {node.type(0)} and {node.type(1)}")
    a = transposed(a, (1, 0)) if node.flag("transA") else a
    b = transposed(b, (1, 0)) if node.flag("transB") else b
    result = _scaled(matmul.matmul(a, b), node.number("alpha", 1.0))
    beta, c = node.number("beta", 1.0), node.optional(2)
    if node.version < 7:
        node.flag("broadcast")
    if c is None or beta == 0.0:
        return result
    if not _may_broadcast(dims_of(c), dims_of(result)):
        raise ModelError(f"C of type {c.type} does not broadcast to {result.type}")
    return elementwise.add(result, _scaled(stretched(c, dims_of(result)), beta))


def _may_broadcast(shape: Sequence[Dim], whole: Sequence[Dim]) -> bool:
    if len(shape) > len(whole):
        return False
    pairs = zip(shape, whole[len(whole) - len(shape) :], strict=True)
    return all(is_literal_one(d) or may_agree(d, w) for d, w in pairs)


def _scaled(x: Node, factor: float) -> Node:
    return x if factor == 1.0 else elementwise.multiply(x, scalar_like(factor, x))
