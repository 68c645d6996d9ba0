# SPDX-License-Identifier: Apache-2.0
"""Probabilities of classes from those of their pairs.

The algorithm is the second one of Wu, Lin and Weng, "Probability estimates for multi-class
classification by pairwise coupling" (2004), with the steps and the tolerance of libsvm, so that
classifiers give the digits of those that were exported.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, ExprLike, call, cast, load, maximum
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import TensorType, Type, same_dim
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
from treadle.ops.numeric import in_float64
from treadle.te.operations import Tensor

_ROUNDS = 100
"""How often all probabilities are corrected, or once for each class where those are more."""
_TOLERANCE = 0.005
"""How far the equations of all classes together may be off."""


def _infer(a: Attrs, pairs: Type) -> Type:
    source = stack_type(pairs)
    count, rows, columns = source.shape
    if not same_dim(rows, columns) or columns == 0:
        raise TypeMismatch(f"pairs of classes are [n, classes, classes], not {source}")
    return TensorType((count, columns), source.dtype)


def _quadratic_form(pairs: Buffer, q: Matrix, k: int) -> Stmt:
    """Return what writes Q: the sum of r_st^2 over s at (t, t), -r_st r_ts at (t, s)."""

    def r(s: Expr, t: Expr) -> Expr:
        return cast(load(pairs, (q.b, s, t)), WIDE)

    def row(t: Expr) -> Stmt:
        def column(s: Expr) -> Stmt:
            other = q.set(t, t, q(t, t) + r(s, t) * r(s, t))
            return If(s != t, seq(other, q.set(t, s, -(r(s, t) * r(t, s)))))

        return seq(q.set(t, t, 0.0), loop(k, column, "s"))

    return loop(k, row, "t")


class _Row:
    """The probabilities p of a row, Q p, and p'Q p; `step` corrects them once for every class."""

    def __init__(self, outs: Sequence[Buffer], b: Expr, k: int) -> None:
        self.p, self.qp, self.b, self.k = outs[0], outs[1], b, k
        self.q = Matrix(outs[2], b)
        self.pqp, self.error, self.diff = number("pqp"), number("error"), number("diff")

    def at(self, buffer: Buffer, t: ExprLike) -> Expr:
        return load(buffer, (self.b, t))

    def _products(self) -> Stmt:
        """Return what computes Q p and p'Q p anew."""

        def row(t: Expr) -> Stmt:
            def column(s: Expr) -> Stmt:
                more = self.at(self.qp, t) + self.q(t, s) * self.at(self.p, s)
                return put(self.qp, (self.b, t), more)

            add = value_of(self.pqp) + self.at(self.p, t) * self.at(self.qp, t)
            return seq(
                put(self.qp, (self.b, t), 0.0), loop(self.k, column, "s"), assign(self.pqp, add)
            )

        return seq(assign(self.pqp, 0.0), loop(self.k, row, "t"))

    def _largest_error(self) -> Stmt:
        def seen(t: Expr) -> Stmt:
            off = call("abs", self.at(self.qp, t) - value_of(self.pqp))
            return assign(self.error, maximum(value_of(self.error), off))

        return seq(assign(self.error, 0.0), loop(self.k, seen, "t"))

    def _corrected(self, t: Expr) -> Stmt:
        d, pqp = value_of(self.diff), value_of(self.pqp)
        whole = 1.0 + d

        def scaled(s: Expr) -> Stmt:
            more = (self.at(self.qp, s) + d * self.q(t, s)) / whole
            return seq(
                put(self.qp, (self.b, s), more),
                put(self.p, (self.b, s), self.at(self.p, s) / whole),
            )

        bent = pqp + d * (d * self.q(t, t) + 2.0 * self.at(self.qp, t))
        return seq(
            assign(self.diff, (pqp - self.at(self.qp, t)) / self.q(t, t)),
            put(self.p, (self.b, t), self.at(self.p, t) + d),
            assign(self.pqp, bent / (whole * whole)),
            loop(self.k, scaled, "s"),
        )

    def solved(self) -> Stmt:
        """Return what starts with equal probabilities and corrects them until they fit."""
        done = counter("done")
        correct = If(
            value_of(self.error) < _TOLERANCE / self.k,
            assign(done, 1),
            loop(self.k, self._corrected, "t"),
        )
        step = If(value_of(done) == 0, seq(self._products(), self._largest_error(), correct))
        return declared(
            [self.pqp, self.error, self.diff, done],
            seq(
                assign(done, 0),
                loop(self.k, lambda t: put(self.p, (self.b, t), 1.0 / self.k), "t"),
                loop(max(_ROUNDS, self.k), lambda _: step, "round"),
            ),
        )


def _compute(a: Attrs, pairs: Tensor) -> list[Tensor]:
    count, k, _ = sizes_of(pairs)

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        def one(b: Expr) -> Stmt:
            row = _Row(outs, b, k)
            return seq(_quadratic_form(ins[0], row.q, k), row.solved())

        return each_matrix(count, k * k * k, one)

    shapes = [(count, k), (count, k), (count, k, k)]
    made = stage(shapes, [pairs], build, "coupled", (WIDE, WIDE, WIDE))
    return [*made, rounded(made[0], pairs.dtype)]


def _coupled(r: np.ndarray) -> np.ndarray:
    """Return the probabilities of the classes of one row."""
    k = len(r)
    q = -r * r.T
    np.fill_diagonal(q, (r * r).sum(axis=0) - np.diag(r) ** 2)
    p = np.full(k, 1 / k)
    for _ in range(max(_ROUNDS, k)):
        qp = q @ p
        pqp = p @ qp
        if np.abs(qp - pqp).max() < _TOLERANCE / k:
            break
        for t in range(k):
            diff = (pqp - qp[t]) / q[t, t]
            p[t] += diff
            pqp = (pqp + diff * (diff * q[t, t] + 2 * qp[t])) / (1 + diff) ** 2
            qp, p = (qp + diff * q[t]) / (1 + diff), p / (1 + diff)
    return p


def _reference(a: Attrs, pairs: np.ndarray) -> np.ndarray:
    rows = [_coupled(r) for r in in_float64(pairs)]
    return np.array(rows).reshape(pairs.shape[:2]).astype(pairs.dtype)


def _example(rows: int, k: int, seed: int) -> np.ndarray:
    r = np.triu(uniform((rows, k, k), 0.02, 0.98, seed), 1)
    return np.asarray(r + np.tril(1 - np.swapaxes(r, 1, 2), -1))


coupled_probabilities: Operator[Attrs] = register(
    Operator(
        name="coupled_probabilities",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        examples=(
            Example(((3, 4, 4),), {}, (WIDE,), inputs={0: _example(3, 4, 1)}),
            Example(((5, 3, 3),), inputs={0: _example(5, 3, 2).astype(np.float32)}),
            Example(((2, 2, 2),), {}, (WIDE,), inputs={0: _example(2, 2, 3)}),
            Example(((0, 3, 3),)),
        ),
    )
)
"""Probabilities of classes [n, classes] from r[n, s, t], that of class s where only s and t may be;
the diagonal does not count."""
