# SPDX-License-Identifier: Apache-2.0
"""Orthogonal and symmetric factors of stacks of matrices: Householder's and Cholesky's.

The loops are those of Golub and Van Loan, Matrix Computations, chapters 4 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, ExprLike, call, cast, load, select
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import TensorType, TupleType, Type, known_sizes, same_dim
from treadle.loop.build import assign, declared, loop, nest, put, value_of
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
from treadle.ops.numeric import FLOATS, check_elements, check_same_elements, dims_of, in_float64
from treadle.te.operations import Tensor


def _infer_cholesky(a: Attrs, x: Type) -> Type:
    source = stack_type(x)
    if not same_dim(source.shape[1], source.shape[2]):
        raise TypeMismatch(f"{source} are no square matrices")
    return TupleType((source, TensorType(source.shape[:1], dt.INDEX)))


def _cholesky(w: Matrix, source: Buffer, failed: Buffer, n: int) -> Stmt:
    """Return the factorisation of the lower triangle of a matrix, column by column."""
    total = number("total")

    def dot(r: ExprLike, c: Expr) -> Stmt:
        start = assign(total, cast(load(source, (w.b, r, c)), WIDE))
        return seq(
            start, loop(c, lambda k: assign(total, value_of(total) - w(r, k) * w(c, k)), "k")
        )

    def column(c: Expr) -> Stmt:
        note = If(load(failed, (w.b,)) == 0, put(failed, (w.b,), c + 1))

        def below(t: Expr) -> Stmt:
            r = c + 1 + t
            return seq(dot(r, c), w.set(r, c, value_of(total) / w(c, c)), w.set(c, r, 0.0))

        return seq(
            dot(c, c),
            If(value_of(total) > 0.0, seq(), note),
            w.set(c, c, call("sqrt", value_of(total))),
            loop(n - 1 - c, below, "t"),
        )

    return declared([total], seq(put(failed, (w.b,), 0), loop(n, column, "c")))


def _compute_cholesky(a: Attrs, x: Tensor) -> list[Tensor]:
    count, n, _ = sizes_of(x)

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        return each_matrix(count, n**3, lambda b: _cholesky(Matrix(outs[0], b), ins[0], outs[1], n))

    work, failed = stage([(count, n, n), (count,)], [x], build, "cholesky", (WIDE, dt.INDEX))
    return [rounded(work, x.dtype), rounded(failed, dt.INDEX)]


def _reference_cholesky(a: Attrs, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower = np.tril(in_float64(x))
    whole = lower + np.swapaxes(np.tril(lower, -1), 1, 2)
    return np.linalg.cholesky(whole).astype(x.dtype), np.zeros(len(x), np.int64)


_ROOT = np.eye(4) * 3 + uniform((2, 4, 4), -1, 1, seed=2)
"""Matrices far from singular."""

_DEFINITE = _ROOT @ np.swapaxes(_ROOT, 1, 2)

cholesky: Operator[Attrs] = register(
    Operator(
        name="cholesky",
        infer=_infer_cholesky,
        reference=_reference_cholesky,
        compute=_compute_cholesky,
        examples=(
            Example(((2, 4, 4),), {}, (WIDE,), inputs={0: _DEFINITE}),
            Example(((2, 4, 4),), inputs={0: _DEFINITE.astype(np.float32)}),
            Example(((0, 3, 3),)),
        ),
    )
)
"""(L with L L' = A, int64[b]): of A [b, n, n] the lower triangle is read. The number is 0, or that
of the first leading block that is not positive definite."""


# ---- Q R -----------------------------------------------------------------------------------------


def _infer_reflectors(a: Attrs, x: Type) -> Type:
    source = stack_type(x)
    m, n = known_sizes(source.shape[1:])
    return TupleType((source, source.with_shape((source.shape[0], min(m, n)))))


def _reflected(w: Matrix, k: Expr, tau: Expr, first: Expr, source: Matrix, m: int, n: int) -> Stmt:
    """Return w := (I - tau v v') w from row k and column `first` on; v is below row k of `source`.

    Its element in row k is 1.
    """
    total = number("total")

    def column(t: Expr) -> Stmt:
        c = first + t

        def add(s: Expr) -> Stmt:
            r = k + 1 + s
            return assign(total, value_of(total) + source(r, k) * w(r, c))

        def subtract(s: Expr) -> Stmt:
            r = k + 1 + s
            return w.set(r, c, w(r, c) - value_of(total) * source(r, k))

        return seq(
            assign(total, w(k, c)),
            loop(m - 1 - k, add, "s"),
            assign(total, value_of(total) * tau),
            w.set(k, c, w(k, c) - value_of(total)),
            loop(m - 1 - k, subtract, "s"),
        )

    return declared([total], loop(n - first, column, "t"))


def _reflectors(w: Matrix, taus: Buffer, m: int, n: int) -> Stmt:
    """Return Householder's triangularisation of a matrix in place."""
    length, top = number("length"), number("top")

    def column(k: Expr) -> Stmt:
        def add(s: Expr) -> Stmt:
            below = w(k + 1 + s, k)
            return assign(length, value_of(length) + below * below)

        alpha = w(k, k)
        norm = call("sqrt", value_of(length) + alpha * alpha)
        beta = value_of(top)

        def scale(s: Expr) -> Stmt:
            return w.set(k + 1 + s, k, w(k + 1 + s, k) / (alpha - beta))

        tau = load(taus, (w.b, k))
        work = seq(
            assign(top, select(alpha > 0.0, -norm, norm)),
            put(taus, (w.b, k), (beta - alpha) / beta),
            loop(m - 1 - k, scale, "s"),
            _reflected(w, k, tau, k + 1, w, m, n),
            w.set(k, k, beta),
        )
        start = seq(assign(length, 0.0), loop(m - 1 - k, add, "s"))
        return seq(start, If(value_of(length) > 0.0, work, put(taus, (w.b, k), 0.0)))

    return declared([length, top], loop(min(m, n), column, "k"))


def _compute_reflectors(a: Attrs, x: Tensor) -> list[Tensor]:
    count, m, n = sizes_of(x)

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def one(b: Expr) -> Stmt:
            w = Matrix(outs[0], b)
            return seq(w.copied(ins[0], m, n), _reflectors(w, outs[1], m, n))

        return each_matrix(count, m * n * min(m, n), one)

    shapes = [(count, m, n), (count, min(m, n))]
    made = stage(shapes, [x], build, "reflectors", (WIDE, WIDE))
    return [rounded(t, x.dtype) for t in made]


def _reference_reflectors(a: Attrs, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count, m, n = x.shape
    work, taus = in_float64(x).copy(), np.zeros((count, min(m, n)))
    for w, tau in zip(work, taus, strict=True):
        for k in range(min(m, n)):
            below, alpha = w[k + 1 :, k], w[k, k]
            if not below.any():
                continue
            beta = -np.copysign(np.hypot(alpha, np.linalg.norm(below)), alpha)
            tau[k] = (beta - alpha) / beta
            v = np.concatenate([[1], below / (alpha - beta)])
            w[k:, k + 1 :] -= tau[k] * np.outer(v, v @ w[k:, k + 1 :])
            w[k, k], w[k + 1 :, k] = beta, v[1:]
    return work.astype(x.dtype), taus.astype(x.dtype)


reflectors: Operator[Attrs] = register(
    Operator(
        name="reflectors",
        infer=_infer_reflectors,
        reference=_reference_reflectors,
        compute=_compute_reflectors,
        examples=(
            Example(((2, 5, 3),), {}, (WIDE,)),
            Example(((1, 2, 4),), rtol=1e-4, atol=1e-5),
            Example(((0, 2, 2),)),
            Example(((2, 0, 3),)),
        ),
    )
)
"""(R on and above the diagonal, reflectors below it; their factors [b, min(m, n)]).

A = Q R, where Q is the product of I - tau v v' in order; v is 1 on the diagonal."""


def _infer_product(a: Attrs, x: Type, taus: Type) -> Type:
    source, factors = stack_type(x), check_elements(taus, FLOATS, "the factors")
    check_same_elements(source, factors)
    m, n, k = known_sizes((*source.shape[1:], *factors.shape[1:]))
    if not m >= n >= k or not same_dim(source.shape[0], factors.shape[0]):
        raise TypeMismatch(
            f"the reflectors {source} with factors {factors} make no matrix with orthogonal columns"
        )
    return source


def _compute_product(a: Attrs, x: Tensor, taus: Tensor) -> list[Tensor]:
    count, m, n = sizes_of(x)
    (rank,) = known_sizes(dims_of(taus)[1:])

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def one(b: Expr) -> Stmt:
            q, v = Matrix(outs[0], b), Matrix(outs[1], b)
            start = nest((m, n), lambda r, c: q.set(r, c, cast(r == c, WIDE)), "r")

            def step(t: Expr) -> Stmt:
                k = rank - 1 - t
                tau = cast(load(ins[1], (b, k)), WIDE)
                return _reflected(q, k, tau, k, v, m, n)

            return seq(start, v.copied(ins[0], m, n), loop(rank, step, "k"))

        return each_matrix(count, m * n * rank, one)

    made = stage([(count, m, n)] * 2, [x, taus], build, "orthogonal", (WIDE, WIDE))
    return [*made, rounded(made[0], x.dtype)]


def _reference_product(a: Attrs, x: np.ndarray, taus: np.ndarray) -> np.ndarray:
    _, m, n = x.shape
    results: list[Any] = []
    for w, tau in zip(in_float64(x), in_float64(taus), strict=True):
        q = np.eye(m, n)
        for k in reversed(range(len(tau))):
            v = np.concatenate([np.zeros(k), [1], w[k + 1 :, k]])
            q -= tau[k] * np.outer(v, v @ q)
        results.append(q)
    return np.array(results).reshape(x.shape).astype(x.dtype)


product_of_reflectors: Operator[Attrs] = register(
    Operator(
        name="product_of_reflectors",
        infer=_infer_product,
        reference=_reference_product,
        compute=_compute_product,
        examples=(
            Example(((2, 5, 3), (2, 3)), {}, (WIDE,) * 2),
            Example(((1, 4, 4), (1, 2)), rtol=1e-4, atol=1e-5),
            Example(((0, 2, 2), (0, 2))),
        ),
    )
)
"""The first columns [b, m, n] of the product of reflectors, which stand below the diagonal."""
