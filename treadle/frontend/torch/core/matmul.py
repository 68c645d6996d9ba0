# SPDX-License-Identifier: Apache-2.0
"""Converters of matrix products."""

from __future__ import annotations

from treadle.frontend.builders.basic import converted, element_type
from treadle.frontend.builders.matmul import general_product, linear, product
from treadle.frontend.torch.node import AtenNode, Operand, aten, operand, sum_dtype
from treadle.graph.nodes import Node
from treadle.ops import elementwise as ew


@aten("mm", "bmm", "matmul", "mv", "dot")
def matrix_product(node: AtenNode, a: Node, b: Node) -> Node:
    """Convert a product of matrices, stacks of them, or vectors."""
    return product(a, b)


@aten("linear")
def linear_layer(node: AtenNode, x: Node, weights: Node, bias: Node | None = None) -> Node:
    """Convert x W' + b."""
    return linear(x, weights, bias)


@aten("addmm")
def addmm(node: AtenNode, c: Node, a: Node, b: Node, beta: Operand = 1, alpha: Operand = 1) -> Node:
    """Convert beta * c + alpha * a b of matrices; halves are rounded once."""
    kind = element_type(a)
    c, a, b = (converted(v, sum_dtype(kind)) for v in (c, a, b))
    if not isinstance(alpha, (int, float)) or not isinstance(beta, (int, float)):
        return converted(_sum(c, product(a, b), beta, alpha), kind)
    return converted(general_product(a, b, c, alpha=alpha, beta=beta), kind)


@aten("baddbmm", "addmv")
def baddbmm(
    node: AtenNode, c: Node, a: Node, b: Node, beta: Operand = 1, alpha: Operand = 1
) -> Node:
    """Convert beta * c + alpha * a b of stacks of matrices; halves are rounded once."""
    kind = element_type(a)
    c, a, b = (converted(v, sum_dtype(kind)) for v in (c, a, b))
    return converted(_sum(c, product(a, b), beta, alpha), kind)


def _sum(c: Node, made: Node, beta: Operand, alpha: Operand) -> Node:
    kind = element_type(made)
    scaled = made if alpha == 1 else ew.multiply(made, operand(alpha, kind))
    if beta == 0:
        return scaled
    added = converted(c, kind)
    return ew.add(added if beta == 1 else ew.multiply(added, operand(beta, kind)), scaled)
