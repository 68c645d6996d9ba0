# SPDX-License-Identifier: Apache-2.0
"""Converters of linear algebra: factors of matrices, systems, inverses, determinants.

A matrix without an inverse gives infinities or NaN where torch raises an error; torch.compile runs
torch's check of the failures that are counted here.
"""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders import linalg
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    dims_of,
    element_type,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.matmul import product
from treadle.frontend.builders.reduce import product as product_along
from treadle.frontend.builders.reduce import smallest, total
from treadle.frontend.torch.node import AtenNode, aten, operand
from treadle.graph.nodes import Node
from treadle.graph.types import known_sizes
from treadle.ops import elementwise as ew


def _no_failure(node: AtenNode, index: int) -> Node:
    """Return the result that says which matrices have no factors: none."""
    return broadcast(operand(0, node.dtype(index)), node.dims(index))


def _failures(node: AtenNode, index: int, factors: Node) -> Node:
    """Return the result that says which matrices L and U cannot solve.

    0, or the number of the first pivot that is 0, counted from 1.
    """
    pivots = linalg.diagonal(factors)
    (size,) = known_sizes(dims_of(pivots)[-1:], "the matrices")
    if size == 0:
        return _no_failure(node, index)
    numbers = ew.add(counted(size), operand(1, "int64"))
    is_zero = ew.equal(pivots, scalar_like(0, pivots))
    places = ew.where(is_zero, numbers, operand(size + 1, "int64"))
    first = smallest(places, (len(dims_of(pivots)) - 1,), False)
    found = ew.where(ew.less(operand(size, "int64"), first), operand(0, "int64"), first)
    return converted(found, node.dtype(index))


def _from_one(pivots: Node, dtype: str) -> Node:
    """Return numbers of rows as LAPACK counts them, from 1."""
    return converted(ew.add(pivots, scalar_like(1, pivots)), dtype)


def _from_zero(pivots: Node) -> Node:
    wide = converted(pivots, "int64")
    return ew.subtract(wide, scalar_like(1, wide))


# ---- L U, systems, inverses ----------------------------------------------------------------------


@aten("linalg_lu_factor_ex", "linalg_lu_factor")
def lu_factor(
    node: AtenNode, a: Node, *, pivot: bool = True, check_errors: bool = False
) -> list[Node]:
    """Convert L and U in one matrix, with the rows that were exchanged."""
    _demand_pivots(pivot)
    factors, pivots = linalg.lu(a)
    made = [factors, _from_one(pivots, node.dtype(1))]
    return made if len(node.result) == 2 else [*made, _failures(node, 2, factors)]


def _demand_pivots(pivot: bool) -> None:
    if not pivot:
        raise ModelError("factors of a matrix without pivoting are not supported")


@aten("linalg_lu")
def lu(node: AtenNode, a: Node, *, pivot: bool = True) -> list[Node]:
    """Convert P, L and U with A = P L U."""
    _demand_pivots(pivot)
    return _unpacked(*linalg.lu(a))


@aten("lu_unpack")
def lu_unpack(
    node: AtenNode,
    factors: Node,
    pivots: Node,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> list[Node | None]:
    """Convert P, L and U from what `lu_factor` gives."""
    p, low, high = _unpacked(factors, _from_zero(pivots))
    kept = [low, high] if unpack_data else [None, None]
    return [p if unpack_pivots else None, *kept]


def _unpacked(factors: Node, pivots: Node) -> list[Node]:
    m, n = known_sizes(dims_of(factors)[-2:], "the matrices")
    rank = min(m, n)
    rows = linalg.rows_in_order(pivots, m)
    whole = broadcast(linalg.identity(factors, m, m), (*dims_of(rows), m))
    p = linalg.matrix_transpose(linalg.reordered(whole, rows))
    below = linalg.triangle(linalg.part(factors, m, rank), upper=False, k=-1)
    low = ew.add(below, broadcast(linalg.identity(factors, m, rank), dims_of(below)))
    return [p, low, linalg.triangle(linalg.part(factors, rank, n), upper=True)]


@aten("linalg_lu_solve")
def lu_solve(
    node: AtenNode,
    factors: Node,
    pivots: Node,
    b: Node,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> Node:
    """Convert X with A X = B, or X A = B, or with A transposed, for the factors of A."""
    swaps = _from_zero(pivots)
    solve = linalg.solved_transposed if adjoint == left else linalg.solved_by_factors
    if left:
        return solve(factors, swaps, b)
    return linalg.matrix_transpose(solve(factors, swaps, linalg.matrix_transpose(b)))


@aten("_linalg_solve_ex")
def solve(
    node: AtenNode, a: Node, b: Node, *, left: bool = True, check_errors: bool = False
) -> list[Node]:
    """Convert X with A X = B, or X A = B; a vector B is one column."""
    factors, pivots = linalg.lu(a)
    is_vector = len(dims_of(b)) == 1 or dims_of(b) == dims_of(a)[:-1]
    right = reshaped(b, (*dims_of(b), 1)) if is_vector else b
    if left:
        made = linalg.solved_by_factors(factors, pivots, right)
    else:
        sides = linalg.matrix_transpose(right)
        made = linalg.matrix_transpose(linalg.solved_transposed(factors, pivots, sides))
    whole = reshaped(made, node.dims(0))
    return [whole, factors, _from_one(pivots, node.dtype(2)), _failures(node, 3, factors)]


@aten("linalg_inv_ex")
def inverse(node: AtenNode, a: Node, *, check_errors: bool = False) -> list[Node]:
    """Convert the inverse."""
    size = linalg.square_size(a)
    right = broadcast(linalg.identity(a, size, size), dims_of(a))
    factors, pivots = linalg.lu(a)
    made = linalg.solved_by_factors(factors, pivots, right)
    return [made, _failures(node, 1, factors)]


@aten("_linalg_det")
def determinant(node: AtenNode, a: Node) -> list[Node]:
    """Convert the determinant, and the factors that it is computed from."""
    factors, pivots = linalg.lu(a)
    return [linalg.determinant(a), factors, _from_one(pivots, node.dtype(2))]


@aten("_linalg_slogdet")
def log_determinant(node: AtenNode, a: Node) -> list[Node]:
    """Convert sign and logarithm of the determinant, and the factors they are computed from."""
    factors, pivots = linalg.lu(a)
    axis = (len(dims_of(pivots)) - 1,)
    values = linalg.diagonal(factors)
    sign = ew.multiply(
        product_along(ew.sign(values), axis, False), linalg.swap_sign(pivots, element_type(a))
    )
    size = total(ew.log(ew.abs(values)), axis, False)
    return [sign, size, factors, _from_one(pivots, node.dtype(3))]


# ---- triangles -----------------------------------------------------------------------------------


@aten("linalg_solve_triangular")
def solve_triangular(
    node: AtenNode, a: Node, b: Node, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Node:
    """Convert X with A X = B, or X A = B, for a triangle of A."""
    if left:
        return linalg.solved_triangle(a, b, lower=not upper, unit=unitriangular)
    sides = linalg.matrix_transpose(b)
    made = linalg.solved_triangle(
        linalg.matrix_transpose(a), sides, lower=upper, unit=unitriangular
    )
    return linalg.matrix_transpose(made)


@aten("triangular_solve")
def triangular_solve(
    node: AtenNode,
    b: Node,
    a: Node,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> list[Node]:
    """Convert X with A X = B for a triangle of A, which may be transposed; and A."""
    matrix = linalg.matrix_transpose(a) if transpose else a
    is_lower = upper == transpose
    made = linalg.solved_triangle(matrix, b, lower=is_lower, unit=unitriangular)
    return [made, broadcast(a, node.dims(1))]


# ---- Cholesky ------------------------------------------------------------------------------------


@aten("linalg_cholesky_ex")
def cholesky_ex(
    node: AtenNode, a: Node, *, upper: bool = False, check_errors: bool = False
) -> list[Node]:
    """Convert the triangle whose square a matrix is, and where there is none."""
    made, failed = linalg.cholesky(a, upper=upper)
    return [made, converted(failed, node.dtype(1))]


@aten("cholesky")
def cholesky(node: AtenNode, a: Node, upper: bool = False) -> Node:
    """Convert the triangle whose square a matrix is."""
    return linalg.cholesky(a, upper=upper)[0]


@aten("cholesky_solve")
def cholesky_solve(node: AtenNode, b: Node, a: Node, upper: bool = False) -> Node:
    """Convert X with L L' X = B."""
    return _solved_by_root(linalg.matrix_transpose(a) if upper else a, b)


def _solved_by_root(low: Node, b: Node) -> Node:
    half = linalg.solved_triangle(low, b, lower=True)
    return linalg.solved_triangle(linalg.matrix_transpose(low), half, lower=False)


@aten("cholesky_inverse")
def cholesky_inverse(node: AtenNode, a: Node, upper: bool = False) -> Node:
    """Convert the inverse of L L'."""
    size = linalg.square_size(a)
    right = broadcast(linalg.identity(a, size, size), dims_of(a))
    return _solved_by_root(linalg.matrix_transpose(a) if upper else a, right)


# ---- Q R -----------------------------------------------------------------------------------------


@aten("geqrf")
def geqrf(node: AtenNode, a: Node) -> list[Node]:
    """Convert R, with Householder's reflectors below it, and their factors."""
    return list(linalg.reflectors(a))


@aten("linalg_householder_product")
def householder_product(node: AtenNode, a: Node, tau: Node) -> Node:
    """Convert the product of reflectors."""
    return linalg.product_of_reflectors(a, tau, known_sizes(dims_of(a)[-1:])[0])


@aten("ormqr")
def ormqr(
    node: AtenNode, a: Node, tau: Node, other: Node, left: bool = True, transpose: bool = False
) -> Node:
    """Convert Q C, C Q, or those with Q transposed, for the product Q of reflectors."""
    q = linalg.product_of_reflectors(a, tau, known_sizes(dims_of(a)[-2:-1])[0])
    q = linalg.matrix_transpose(q) if transpose else q
    return product(q, other) if left else product(other, q)


@aten("linalg_qr")
def qr(node: AtenNode, a: Node, mode: str = "reduced") -> list[Node]:
    """Convert Q with orthogonal columns and the triangle R; in mode "r" Q is empty."""
    m, n = known_sizes(dims_of(a)[-2:], "the matrices")
    made, factors = linalg.reflectors(a)
    rank = m if mode == "complete" else min(m, n)
    r = linalg.triangle(linalg.part(made, rank, n), upper=True)
    if mode == "r":
        return [broadcast(operand(0, node.dtype(0)), node.dims(0)), r]
    return [linalg.product_of_reflectors(made, factors, rank), r]
