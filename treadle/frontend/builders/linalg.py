# SPDX-License-Identifier: Apache-2.0
"""Builders of linear algebra on matrices [..., m, n]: factors, systems, determinants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    dims_of,
    element_type,
    in_float32,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.movement import concatenated, sliced
from treadle.frontend.builders.reduce import product, total
from treadle.graph.nodes import Constant, Node, TupleItem
from treadle.graph.types import Dim, broadcast_shapes, known_sizes, product_of
from treadle.ops import elementwise as ew
from treadle.ops import elimination, indexing, movement, orthogonal


def stacked(x: Node, inner: int = 2) -> Node:
    """Return [..., m, n] as [b, m, n]; with `inner` 1, [..., n] as [b, n]."""
    lead, rest = dims_of(x)[:-inner], dims_of(x)[-inner:]
    return reshaped(x, (product_of(lead), *rest))


def square_size(x: Node) -> int:
    """Return how many rows and columns matrices have. Raises: TypeMismatch unless they are square.

    The operators of stacks refuse what is not square.
    """
    return known_sizes(dims_of(x)[-1:], f"the matrices of {x.type}")[0]


def matrix_transpose(x: Node) -> Node:
    """Return matrices with rows and columns exchanged."""
    rank = len(dims_of(x))
    return transposed(x, (*range(rank - 2), rank - 1, rank - 2))


def lu(x: Node) -> tuple[Node, Node]:
    """Return L and U in one matrix, and int64[..., min(m, n)]: the rows exchanged with each."""
    both = elimination.lu(stacked(x))
    lead, (m, n) = dims_of(x)[:-2], known_sizes(dims_of(x)[-2:])
    pivots = reshaped(TupleItem.of(both, 1), (*lead, min(m, n)))
    return reshaped(TupleItem.of(both, 0), dims_of(x)), pivots


def rows_in_order(pivots: Node, size: int) -> Node:
    """Return int64[..., size]: where the rows come from when each is exchanged as pivots say."""
    lead = dims_of(pivots)[:-1]
    made = elimination.permutation_of_swaps(stacked(pivots, 1), size=size)
    return reshaped(made, (*lead, size))


def reordered(x: Node, rows: Node) -> Node:
    """Return [..., m, n] with rows from the places that int64[..., m] says."""
    places = broadcast(reshaped(rows, (*dims_of(rows), 1)), dims_of(x))
    return indexing.gather_elements(x, places, axis=len(dims_of(x)) - 2)


def solved_triangle(a: Node, b: Node, *, lower: bool, unit: bool = False) -> Node:
    """Return X with A X = B for a triangle of A [..., n, n] and B [..., n, k], which broadcast."""
    lead = common_lead(dims_of(a)[:-2], dims_of(b)[:-2])
    left = broadcast(a, (*lead, *dims_of(a)[-2:]))
    right = broadcast(b, (*lead, *dims_of(b)[-2:]))
    made = elimination.solve_triangular(stacked(left), stacked(right), lower=lower, unit=unit)
    return reshaped(made, dims_of(right))


def solved_by_factors(factors: Node, pivots: Node, b: Node) -> Node:
    """Return X with A X = B, for what `lu` gives for A."""
    lead = common_lead(dims_of(factors)[:-2], dims_of(b)[:-2])
    right = broadcast(b, (*lead, *dims_of(b)[-2:]))
    size = square_size(factors)
    rows = broadcast(rows_in_order(pivots, size), (*lead, size))
    below = solved_triangle(factors, reordered(right, rows), lower=True, unit=True)
    return solved_triangle(factors, below, lower=False)


def solved_transposed(factors: Node, pivots: Node, b: Node) -> Node:
    """Return X with A' X = B, for what `lu` gives for A."""
    lead = common_lead(dims_of(factors)[:-2], dims_of(b)[:-2])
    right = broadcast(b, (*lead, *dims_of(b)[-2:]))
    size = square_size(factors)
    other = matrix_transpose(factors)
    above = solved_triangle(other, right, lower=True)
    made = solved_triangle(other, above, lower=False, unit=True)
    rows = broadcast(inverse_order(rows_in_order(pivots, size)), (*lead, size))
    return reordered(made, rows)


def inverse_order(rows: Node) -> Node:
    """Return the permutations that undo permutations int64[..., n]."""
    from_each = reshaped(rows, (*dims_of(rows), 1))
    extent = dims_of(rows)[-1]
    hits = ew.equal(matrix_transpose(from_each), reshaped(counted(extent), (extent, 1)))
    numbers = ew.multiply(converted(hits, "int64"), counted(extent))
    return total(numbers, (len(dims_of(rows)),), False)


def common_lead(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the extents that leading axes broadcast to."""
    return broadcast_shapes(tuple(a), tuple(b))


def identity(like: Node, rows: int, columns: int) -> Constant:
    """Return a matrix with ones on its diagonal, of the element type of `like`."""
    return Constant.of(np.eye(rows, columns), element_type(like))


def diagonal(x: Node) -> Node:
    """Return the diagonals [..., min(m, n)] of matrices."""
    lead, (m, n) = dims_of(x)[:-2], known_sizes(dims_of(x)[-2:])
    flat = reshaped(x, (*lead, m * n))
    return sliced(flat, [AxisRange(len(lead), 0, min(m, n) * n, n + 1)])


def swap_sign(pivots: Node, dtype: str) -> Node:
    """Return [...]: 1 for an even number of exchanges of rows, else -1."""
    axis = len(dims_of(pivots)) - 1
    moved = ew.not_equal(pivots, counted(dims_of(pivots)[axis]))
    count = total(converted(moved, "int64"), (axis,), False)
    odd = ew.mod(count, scalar_like(2, count))
    one = scalar_like(1, count)
    return converted(ew.subtract(one, ew.add(odd, odd)), dtype)


def determinant(x: Node) -> Node:
    """Return the determinants [...] of square matrices."""
    wide, kind = in_float32(x)
    square_size(x)
    factors, pivots = lu(wide)
    axis = len(dims_of(pivots)) - 1
    whole = product(diagonal(factors), (axis,), False)
    return converted(ew.multiply(whole, swap_sign(pivots, element_type(wide))), kind)


def cholesky(x: Node, *, upper: bool) -> tuple[Node, Node]:
    """Return the triangle L with L L' = A (or U with U' U = A), int64[...]: 0 where A has one.

    Of A the same triangle is read.
    """
    source = matrix_transpose(x) if upper else x
    both = orthogonal.cholesky(stacked(source))
    made = reshaped(TupleItem.of(both, 0), dims_of(x))
    return matrix_transpose(made) if upper else made, reshaped(
        TupleItem.of(both, 1), dims_of(x)[:-2]
    )


def reflectors(x: Node) -> tuple[Node, Node]:
    """Return R with Householder's reflectors below it, and their factors [..., min(m, n)]."""
    both = orthogonal.reflectors(stacked(x))
    lead, (m, n) = dims_of(x)[:-2], known_sizes(dims_of(x)[-2:])
    return (
        reshaped(TupleItem.of(both, 0), dims_of(x)),
        reshaped(TupleItem.of(both, 1), (*lead, min(m, n))),
    )


def product_of_reflectors(x: Node, factors: Node, columns: int) -> Node:
    """Return so many columns of the product of reflectors, which stand below the diagonal of x."""
    lead, (m, n) = dims_of(x)[:-2], known_sizes(dims_of(x)[-2:])
    axis = len(lead) + 1
    more = broadcast(scalar_like(0, x), (*lead, m, max(columns - n, 0)))
    cut = sliced(concatenated([x, more], axis), [AxisRange(axis, 0, columns)])
    made = orthogonal.product_of_reflectors(stacked(cut), stacked(factors, 1))
    return reshaped(made, (*lead, m, columns))


def triangle(x: Node, *, upper: bool, k: int = 0) -> Node:
    """Return the triangle of matrices above or below diagonal `k`, zeros elsewhere."""
    return movement.trilu(x, upper=upper, k=k)


def part(x: Node, rows: int, columns: int) -> Node:
    """Return the first rows and columns of matrices."""
    rank = len(dims_of(x))
    return sliced(x, [AxisRange(rank - 2, 0, rows), AxisRange(rank - 1, 0, columns)])
