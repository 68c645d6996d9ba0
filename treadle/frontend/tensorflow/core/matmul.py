# SPDX-License-Identifier: Apache-2.0
"""Converters of matrix products."""

from __future__ import annotations

from treadle.frontend.builders.basic import converted, dims_of, transposed
from treadle.frontend.builders.einsum import einsum
from treadle.frontend.builders.matmul import product
from treadle.frontend.tensorflow.node import TfNode, converter
from treadle.graph.nodes import Node


@converter("MatMul", "SparseMatMul")
def matmul(node: TfNode) -> Node:
    """Convert a product of two matrices, each maybe transposed."""
    a = _transposed(node.input(0), node.attributes.flag("transpose_a"))
    return product(a, _transposed(node.input(1), node.attributes.flag("transpose_b")))


@converter("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(node: TfNode) -> Node:
    """Convert products of stacks of matrices, which broadcast."""
    a = _transposed(node.input(0), node.attributes.flag("adj_x"))
    b = _transposed(node.input(1), node.attributes.flag("adj_y"))
    if node.op == "BatchMatMulV3":
        dtype = node.dtype("Tout", node.type(0).dtype)
        return product(converted(a, dtype), converted(b, dtype))
    return product(a, b)


def _transposed(x: Node, is_transposed: bool) -> Node:
    """Return matrices with rows and columns exchanged, where asked for."""
    ndim = len(dims_of(x))
    if not is_transposed or ndim < 2:
        return x
    return transposed(x, (*range(ndim - 2), ndim - 1, ndim - 2))


@converter("Einsum")
def einstein_sum(node: TfNode) -> Node:
    """Convert a sum of products as an equation says."""
    return einsum(node.attributes.text("equation"), node.all_inputs())
