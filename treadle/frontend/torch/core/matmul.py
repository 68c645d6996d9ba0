# SPDX-License-Identifier: Apache-2.0
"""Converters of matrix products."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders import reduce
from treadle.frontend.builders.basic import (
    converted,
    counted,
    dims_of,
    element_type,
    operands,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.matmul import general_product, linear, product
from treadle.frontend.builders.quantize import centred
from treadle.frontend.torch.node import AtenNode, Operand, aten, operand, sum_dtype, transformers
from treadle.graph.nodes import Node
from treadle.graph.types import product_of
from treadle.ops import elementwise as ew
from treadle.ops.grouped_matmul import grouped_matmul


@aten("mm", "bmm", "matmul", "mv", "dot")
def matrix_product(node: AtenNode, a: Node, b: Node) -> Node:
    """Convert a product of matrices, stacks of them, or vectors."""
    return product(a, b)


@aten("_int_mm")
def integer_product(node: AtenNode, a: Node, b: Node) -> Node:
    """Convert a product of matrices of bytes, summed in 32 bits."""
    return product(centred(a, None, -2), centred(b, None, -1))


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


@aten("addbmm")
def addbmm(
    node: AtenNode, c: Node, a: Node, b: Node, beta: Operand = 1, alpha: Operand = 1
) -> Node:
    """Convert beta * c + alpha * the sum of products of pairs: one product of longer rows."""
    count, rows, depth = dims_of(a)
    _, _, columns = dims_of(b)
    whole = product_of([count, depth])
    left = reshaped(transposed(a, (1, 0, 2)), (rows, whole))
    return baddbmm(node, c, left, reshaped(b, (whole, columns)), beta, alpha)


def _sum(c: Node, made: Node, beta: Operand, alpha: Operand) -> Node:
    kind = element_type(made)
    scaled = made if alpha == 1 else ew.multiply(made, operand(alpha, kind))
    if beta == 0:
        return scaled
    added = converted(c, kind)
    return ew.add(added if beta == 1 else ew.multiply(added, operand(beta, kind)), scaled)


@aten("_grouped_mm")
def grouped_mm(
    node: AtenNode,
    a: Node,
    b: Node,
    offs: Node | None = None,
    bias: Node | None = None,
    out_dtype: str | None = None,
) -> Node:
    """Convert products of stacks where one factor is a matrix whose rows or columns are grouped."""
    if len(dims_of(a)) == len(dims_of(b)) == 2:
        raise ModelError("a grouped product that sums over groups is not supported")
    if offs is None:
        made = product(a, b)
    elif len(dims_of(a)) == 2:
        made = _by_groups(a, b, offs)
    else:
        made = transposed(_by_groups(transposed(b, (1, 0)), transposed(a, (0, 2, 1)), offs), (1, 0))
    made = converted(made, node.dtype())
    return made if bias is None else ew.add(*operands(made, converted(bias, node.dtype())))


@transformers("grouped_mm_fallback")
def grouped_mm_fallback(node: AtenNode, x: Node, weight: Node, offs: Node) -> Node:
    """Convert rows, of which those before offs[0] are of the first group, by their matrices."""
    return _by_groups(x, weight, offs)


def _by_groups(rows: Node, matrices: Node, ends: Node) -> Node:
    """Return [m, k] rows by [g, k, n] matrices: group j ends at row ends[j]; then come zeros."""
    (count, _), (groups,) = dims_of(rows), dims_of(ends)
    place = reshaped(counted(count), (count, 1))
    is_past = ew.greater_equal(*operands(place, converted(ends, "int64")))
    group = reduce.total(converted(is_past, "int64"), (1,), False)
    made = grouped_matmul(rows, matrices, group)
    is_row = ew.less(*operands(reshaped(group, (count, 1)), operand(groups, "int64")))
    return ew.where(*operands(is_row, made, scalar_like(0, made)))
