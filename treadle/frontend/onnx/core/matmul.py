# SPDX-License-Identifier: Apache-2.0
"""Converters of matrix products and of sums of products in index notation."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.basic import transposed
from treadle.frontend.builders.einsum import einsum
from treadle.frontend.builders.linalg import determinant as det
from treadle.frontend.builders.matmul import general_product, product
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node


@converter("MatMul", since=(1, 9, 13))
def matrix_product(node: OnnxNode) -> Node:
    """Convert a matrix product with NumPy's rules for vectors and stacks of matrices."""
    return product(node.input(0), node.input(1))


@converter("Det", since=(11, 22))
def determinant(node: OnnxNode) -> Node:
    """Convert the determinants of a stack of matrices."""
    return det(node.input(0))


@converter("Gemm", since=(1, 6, 7, 9, 11, 13))
def gemm(node: OnnxNode) -> Node:
    """Convert alpha * A' B' + beta * C."""
    a, b = node.input(0), node.input(1)
    if node.type(0).ndim != 2 or node.type(1).ndim != 2:
        raise ModelError(f"Gemm multiplies matrices, not {node.type(0)} and {node.type(1)}")
    if node.version < 7:
        node.flag("broadcast")
    a = transposed(a, (1, 0)) if node.flag("transA") else a
    b = transposed(b, (1, 0)) if node.flag("transB") else b
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    return general_product(a, b, node.optional(2), alpha=alpha, beta=beta)


@converter("Einsum", since=(12, 28))
def sum_of_products(node: OnnxNode) -> Node:
    """Convert a sum of products written in index notation."""
    return einsum(node.text("equation"), node.all_inputs())
