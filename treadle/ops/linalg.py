# SPDX-License-Identifier: Apache-2.0
"""Linear algebra on stacks of small matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, call, cast, load
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import Dim, Type, known_sizes, product_of
from treadle.loop.build import ZERO, assign, counter, declared, loop, nest, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.numeric import FLOATS, accumulator, check_elements, dims_of, in_float64
from treadle.ops.schedules.stages import MANY_ELEMENTS
from treadle.te.operations import Tensor


def _infer(a: Attrs, x: Type) -> Type:
    source = check_elements(x, FLOATS)
    shape = source.shape
    rows = known_sizes(shape[-2:], f"the matrices of {source}")
    if len(rows) < 2 or rows[0] != rows[1]:
        raise TypeMismatch(f"a determinant takes square matrices, not {source}")
    return source.with_shape(shape[:-2])


@dataclass(frozen=True, slots=True)
class _Elimination:
    """The loop nest that eliminates one matrix, in place, largest pivot of a column first."""

    source: Buffer
    work: Buffer
    out: Buffer
    size: int

    def matrix(self, b: Expr) -> Stmt:
        """Return the elimination of matrix `b`, whose pivots multiply to its determinant."""
        n = self.size

        def copied(r: Expr, c: Expr) -> Stmt:
            value = cast(load(self.source, (b, r, c)), self.work.dtype)
            return put(self.work, (b, r, c), value)

        start = seq(nest((n, n), copied, "r"), put(self.out, (b,), Const.of(1, self.out.dtype)))
        return seq(start, loop(n, lambda k: self._column(b, k), "k"))

    def _at(self, b: Expr, r: Expr, c: Expr) -> Expr:
        return load(self.work, (b, r, c))

    def _times(self, b: Expr, factor: Expr) -> Stmt:
        return put(self.out, (b,), load(self.out, (b,)) * factor)

    def _column(self, b: Expr, k: Expr) -> Stmt:
        n, pivot = self.size, counter("pivot")

        def sought(t: Expr) -> Stmt:
            r, best = k + 1 + t, value_of(pivot)
            larger = call("abs", self._at(b, r, k)) > call("abs", self._at(b, best, k))
            return If(larger, assign(pivot, r))

        first = self._at(b, k, k)
        below = loop(n - 1 - k, lambda t: self._row(b, k, k + 1 + t), "t")
        return declared(
            [pivot],
            seq(
                assign(pivot, k),
                loop(n - 1 - k, sought, "t"),
                If(value_of(pivot) > k, self._swapped(b, k, value_of(pivot))),
                self._times(b, first),
                If(first != 0.0, below),
            ),
        )

    def _swapped(self, b: Expr, k: Expr, r: Expr) -> Stmt:
        kept = Buffer("kept", self.work.dtype, (Const.of(1),), "local")

        def moved(c: Expr) -> Stmt:
            return seq(
                put(kept, (ZERO,), self._at(b, k, c)),
                put(self.work, (b, k, c), self._at(b, r, c)),
                put(self.work, (b, r, c), load(kept, (ZERO,))),
            )

        minus = Const.of(-1.0, self.out.dtype)
        return declared([kept], seq(loop(self.size, moved, "c"), self._times(b, minus)))

    def _row(self, b: Expr, k: Expr, r: Expr) -> Stmt:
        """Return the subtraction of a multiple of row `k` from row `r`, right of column `k`."""

        def left(t: Expr) -> Stmt:
            c = k + 1 + t
            factor = self._at(b, r, k) / self._at(b, k, k)
            return put(self.work, (b, r, c), self._at(b, r, c) - factor * self._at(b, k, c))

        return loop(self.size - 1 - k, left, "t")


def _compute(a: Attrs, x: Tensor) -> list[Tensor]:
    *lead, n, _ = dims_of(x)
    assert isinstance(n, int)  # as inferred
    count, wide = product_of(lead), accumulator(x.dtype)
    flat = te.compute_one((count, n, n), lambda b, r, c: x[(*_unravelled(b, lead), r, c)], "flat")

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        elimination = _Elimination(ins[0], outs[0], outs[1], n)
        many = not isinstance(count, int) or (count * n**3 >= MANY_ELEMENTS and count > 1)
        return loop(count, elimination.matrix, "b", "parallel" if many else "serial")

    made = te.extern([(count, n, n), (count,)], [flat], build, "eliminated", wide)
    assert isinstance(made, tuple)  # a list of shapes gives a tuple

    def result(*i: Expr) -> Expr:
        row: Any = 0
        for at, extent in zip(i, lead, strict=True):
            row = row * extent + at
        return cast(made[1][(row,)], x.dtype)

    return [flat, *made, te.compute_one(tuple(lead), result, "det")]


def _unravelled(flat: Expr, extents: Sequence[Dim]) -> list[Expr]:
    at: list[Expr] = []
    for extent in reversed(extents):
        at.insert(0, flat % extent)
        flat = flat // extent
    return at


det: Operator[Attrs] = register(
    Operator(
        name="det",
        infer=_infer,
        reference=lambda a, x: np.asarray(np.linalg.det(in_float64(x)), x.dtype),
        compute=_compute,
        examples=(
            Example(((3, 3),), rtol=1e-4),
            Example(((1, 1),)),
            Example(((0, 0),)),
            Example(((2, 3, 7, 7),), rtol=1e-3, atol=1e-4),
            Example(((0, 2, 2),)),
            Example(((2, 2),), inputs={0: np.array([[0, 1], [1, 0]], np.float32)}),
            Example(((2, 2),), inputs={0: np.array([[1, 2], [2, 4]], np.float32)}),
            Example(((4, 5, 5),), {}, ("float64",)),
            Example(((2, 3, 3),), {}, ("float16",), rtol=1e-3, atol=1e-3),
        ),
    )
)
"""The determinants of matrices [..., n, n], by elimination with partial pivoting."""
