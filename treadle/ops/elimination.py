# SPDX-License-Identifier: Apache-2.0
"""L U factors of stacks of matrices by elimination, and the solution of triangular systems.

The loops are those of Golub and Van Loan, Matrix Computations, chapter 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, call, cast, load, minimum
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import TensorType, TupleType, Type, known_sizes, same_dim
from treadle.loop.build import assign, counter, declared, loop, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.example_numbers import uniform
from treadle.ops.matrix_stack import (
    WIDE,
    Matrix,
    each_matrix,
    number,
    rounded,
    sizes_of,
    stack_type,
    stage,
)
from treadle.ops.numeric import check_elements, check_same_elements, dims_of, in_float64
from treadle.te.operations import Tensor


def _infer_lu(a: Attrs, x: Type) -> Type:
    source = stack_type(x)
    count, m, n = source.shape
    (rank,) = known_sizes([min(known_sizes((m, n)))])
    return TupleType((source, TensorType((count, rank), dt.INDEX)))


def _eliminated(w: Matrix, pivots: Buffer, m: int, n: int) -> Stmt:
    """Return the elimination of a matrix in place, largest pivot of a column first."""
    pivot = counter("pivot")

    def column(k: Expr) -> Stmt:
        def sought(t: Expr) -> Stmt:
            larger = call("abs", w(k + 1 + t, k)) > call("abs", w(value_of(pivot), k))
            return If(larger, assign(pivot, k + 1 + t))

        def below(t: Expr) -> Stmt:
            r = k + 1 + t

            def left(c: Expr) -> Stmt:
                at = k + 1 + c
                return w.set(r, at, w(r, at) - w(r, k) * w(k, at))

            return seq(w.set(r, k, w(r, k) / w(k, k)), loop(n - 1 - k, left, "c"))

        return seq(
            assign(pivot, k),
            loop(m - 1 - k, sought, "t"),
            put(pivots, (w.b, k), value_of(pivot)),
            If(value_of(pivot) > k, _swapped(w, k, value_of(pivot), n)),
            If(w(k, k) != 0.0, loop(m - 1 - k, below, "t")),
        )

    return declared([pivot], loop(min(m, n), column, "k"))


def _swapped(w: Matrix, k: Expr, r: Expr, n: int) -> Stmt:
    kept = number("kept")

    def moved(c: Expr) -> Stmt:
        return seq(assign(kept, w(k, c)), w.set(k, c, w(r, c)), w.set(r, c, value_of(kept)))

    return declared([kept], loop(n, moved, "c"))


def _compute_lu(a: Attrs, x: Tensor) -> list[Tensor]:
    count, m, n = sizes_of(x)

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def one(b: Expr) -> Stmt:
            w = Matrix(outs[0], b)
            return seq(w.copied(ins[0], m, n), _eliminated(w, outs[1], m, n))

        return each_matrix(count, m * n * min(m, n), one)

    shapes = [(count, m, n), (count, min(m, n))]
    work, pivots = stage(shapes, [x], build, "eliminated", (WIDE, dt.INDEX))
    return [rounded(work, x.dtype), rounded(pivots, dt.INDEX)]


def _reference_lu(a: Attrs, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count, m, n = x.shape
    work, pivots = in_float64(x).copy(), np.zeros((count, min(m, n)), np.int64)
    for b, w in enumerate(work):
        for k in range(min(m, n)):
            p = k + int(np.argmax(np.abs(w[k:, k])))
            pivots[b, k] = p
            w[[k, p]] = w[[p, k]]
            if w[k, k] != 0:
                w[k + 1 :, k] /= w[k, k]
                w[k + 1 :, k + 1 :] -= np.outer(w[k + 1 :, k], w[k, k + 1 :])
    return work.astype(x.dtype), pivots


lu: Operator[Attrs] = register(
    Operator(
        name="lu",
        infer=_infer_lu,
        reference=_reference_lu,
        compute=_compute_lu,
        examples=(
            Example(((2, 5, 5),), rtol=1e-4),
            Example(((3, 4, 2),), {}, (WIDE,)),
            Example(((1, 2, 4),), {}, (WIDE,)),
            Example(((1, 2, 2),), inputs={0: np.array([[[1, 2], [2, 4]]], np.float32)}),
            Example(((0, 2, 2),)),
            Example(((2, 0, 0),)),
        ),
    )
)
"""(L below the diagonal and U in one matrix, pivots int64[b, min(m, n)]): rows k and pivot k were
exchanged in step k; L has ones on its diagonal. A column of zeros stays as it is."""


@dataclass(frozen=True, slots=True)
class PermutationAttrs(Attrs):
    """How many rows there are."""

    size: int


def _infer_permutation(a: PermutationAttrs, pivots: Type) -> Type:
    source = check_elements(pivots, (dt.INDEX,))
    return TensorType((source.shape[0], a.size), dt.INDEX)


def _compute_permutation(a: PermutationAttrs, pivots: Tensor) -> Tensor:
    count, swaps = dims_of(pivots)

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def one(b: Expr) -> Stmt:
            kept = counter("kept")

            def swap(k: Expr) -> Stmt:
                last = Const.of(a.size - 1)
                other = minimum(call("abs", load(ins[0], (b, k))), last)
                return seq(
                    assign(kept, load(outs[0], (b, k))),
                    put(outs[0], (b, k), load(outs[0], (b, other))),
                    put(outs[0], (b, other), value_of(kept)),
                )

            start = loop(a.size, lambda r: put(outs[0], (b, r), r), "r")
            return declared([kept], seq(start, loop(swaps, swap, "k")))

        return loop(count, one, "b")

    return stage([(count, a.size)], [pivots], build, "permutation", (dt.INDEX,))[0]


def _reference_permutation(a: PermutationAttrs, pivots: np.ndarray) -> np.ndarray:
    rows = np.tile(np.arange(a.size), (len(pivots), 1))
    for row, swaps in zip(rows, pivots, strict=True):
        for k, p in enumerate(swaps):
            row[[k, p]] = row[[p, k]]
    return rows


permutation_of_swaps: Operator[PermutationAttrs] = register(
    Operator(
        name="permutation_of_swaps",
        infer=_infer_permutation,
        reference=_reference_permutation,
        compute=_compute_permutation,
        attrs_type=PermutationAttrs,
        examples=(
            Example(((2, 3),), {"size": 4}, (dt.INDEX,), inputs={
                0: np.array([[2, 2, 3], [0, 3, 2]])}),
            Example(((1, 0),), {"size": 2}, (dt.INDEX,)),
        ),
    )
)  # fmt: skip
"""int64[b, size]: where each row comes from when row k and row pivots[k] are exchanged in turn."""


# ---- triangles -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TriangleAttrs(Attrs):
    """Which triangle of the matrix counts, and whether ones stand for its diagonal."""

    lower: bool = True
    unit: bool = False


def _infer_triangle(a: TriangleAttrs, matrix: Type, right: Type) -> Type:
    square, sides = stack_type(matrix), stack_type(right, "the right-hand side")
    check_same_elements(square, sides)
    fits = same_dim(square.shape[0], sides.shape[0]) and same_dim(square.shape[1], sides.shape[1])
    if not fits or not same_dim(square.shape[1], square.shape[2]):
        raise TypeMismatch(f"the system {square} does not go with {sides}")
    return sides


def _compute_triangle(a: TriangleAttrs, matrix: Tensor, right: Tensor) -> list[Tensor]:
    count, n, columns = sizes_of(right)

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def one(b: Expr) -> Stmt:
            x = Matrix(outs[0], b)

            def row(t: Expr) -> Stmt:
                r = t if a.lower else n - 1 - t

                def known(s: Expr) -> Stmt:
                    j = s if a.lower else n - 1 - s
                    factor = cast(load(ins[0], (b, r, j)), WIDE)
                    return loop(columns, lambda c: x.set(r, c, x(r, c) - factor * x(j, c)), "c")

                pivot = cast(load(ins[0], (b, r, r)), WIDE)
                divide = loop(columns, lambda c: x.set(r, c, x(r, c) / pivot), "c")
                return seq(loop(t, known, "s"), *([] if a.unit else [divide]))

            return seq(x.copied(ins[1], n, columns), loop(n, row, "t"))

        return each_matrix(count, n * n * columns, one)

    (work,) = stage([(count, n, columns)], [matrix, right], build, "solved", (WIDE,))
    return [work, rounded(work, right.dtype)]


def _reference_triangle(a: TriangleAttrs, matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    part = np.tril(in_float64(matrix)) if a.lower else np.triu(in_float64(matrix))
    if a.unit:
        part[:, range(part.shape[1]), range(part.shape[1])] = 1
    return np.asarray(np.linalg.solve(part, in_float64(right))).astype(right.dtype)


_SYSTEM = np.eye(4) * 3 + uniform((2, 4, 4), -1, 1, seed=2)
"""Matrices far from singular: their diagonals outweigh the rest of each row."""

solve_triangular: Operator[TriangleAttrs] = register(
    Operator(
        name="solve_triangular",
        infer=_infer_triangle,
        reference=_reference_triangle,
        compute=_compute_triangle,
        attrs_type=TriangleAttrs,
        examples=(
            Example(((2, 4, 4), (2, 4, 3)), {}, (WIDE,) * 2, inputs={0: _SYSTEM}),
            Example(((2, 4, 4), (2, 4, 1)), {"lower": False}, (WIDE,) * 2, inputs={0: _SYSTEM}),
            Example(
                ((2, 4, 4), (2, 4, 2)),
                {"lower": False, "unit": True},
                inputs={0: _SYSTEM.astype(np.float32)},
            ),
            Example(((0, 2, 2), (0, 2, 3))),
        ),
    )
)
"""The solution X of A X = B for a triangle of A [b, n, n] and right-hand sides B [b, n, k]."""
