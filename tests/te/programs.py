# SPDX-License-Identifier: Apache-2.0
"""Random tensor expressions over symbolic sizes: everything derives from one seed.

The same program is made with symbols, to be scheduled and compiled, and with numbers in their
place, to be evaluated. No choice depends on the numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from treadle import te
from treadle.dtype import to_numpy
from treadle.expr.nodes import Expr, ExprLike, Var, int_value
from treadle.te.operations import ComputeOp, Tensor

SYMBOLS = 3
TYPICAL = 6
"""What a symbol is taken for when a program is kept small."""
MOST_ELEMENTS = 400


@dataclass(frozen=True)
class Dim:
    """An extent and about how large it is."""

    expr: ExprLike
    about: int

    def __add__(self, other: int) -> Dim:
        return Dim(self.expr + other, self.about + other)

    def __mul__(self, other: int) -> Dim:
        return Dim(self.expr * other, self.about * other)

    def times(self, other: Dim) -> Dim:
        return Dim(self.expr * other.expr, self.about * other.about)

    def halved(self) -> Dim:
        return Dim((self.expr + 1) // 2, (self.about + 1) // 2)


@dataclass(frozen=True)
class Value:
    tensor: Tensor
    dims: tuple[Dim, ...]


@dataclass
class Program:
    """Placeholders and results; `sizes` are the symbols, none where numbers stand for them."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    sizes: list[Var] = field(default_factory=list)

    @property
    def args(self) -> list[Tensor | Var]:
        return [*self.inputs, *self.outputs]


def make_program(seed: int, numbers: Sequence[int] | None = None) -> Program:
    """Return program `seed`, over symbols or over `numbers` in their place."""
    return _Maker(random.Random(seed), numbers).make()


def random_arrays(program: Program, seed: int) -> list[np.ndarray]:
    """Return small whole numbers for the inputs of a program over numbers: sums are exact."""
    numbers = np.random.default_rng(seed)
    shapes = [[int_value(d) or 0 for d in t.shape] for t in program.inputs]
    return [
        np.asarray(numbers.integers(-2, 3, shape), to_numpy(t.dtype))
        for shape, t in zip(shapes, program.inputs, strict=True)
    ]


class _Maker:
    def __init__(self, chance: random.Random, numbers: Sequence[int] | None) -> None:
        self.chance = chance
        self.program = Program()
        self.dtype = chance.choice(("float32", "float32", "float64", "int32"))
        if numbers is None:
            self.program.sizes = [te.var(name) for name in "nmp"[:SYMBOLS]]
        symbols: Sequence[ExprLike] = self.program.sizes if numbers is None else numbers
        self.symbols = [Dim(s, TYPICAL + k) for k, s in enumerate(symbols)]
        self.values: list[Value] = []

    def make(self) -> Program:
        chance = self.chance
        value = self.input([self.dim() for _ in range(chance.randint(1, 3))])
        for _ in range(chance.randint(1, 4)):
            made = self.stage(chance.choice(self.values) if chance.random() < 0.15 else value)
            if made is not None:
                self.values.append(made)
                value = made
        results = [v for v in self.values if isinstance(v.tensor.op, ComputeOp)]
        if not results:
            results = [self.pointwise(value)]
        last = results[-2:] if chance.random() < 0.15 else results[-1:]
        self.program.outputs = [v.tensor for v in dict.fromkeys(last)]
        return self.program

    # -- sizes and inputs ------------------------------------------------------------------------

    def dim(self) -> Dim:
        roll, chance = self.chance.random(), self.chance
        if roll < 0.3:
            number = chance.choice((1, 2, 3, 4, 5, 8, 9, 13))
            return Dim(number, number)
        symbol = chance.choice(self.symbols)
        if roll < 0.38:
            return symbol + chance.randint(1, 3)
        return symbol * chance.choice((2, 4)) if roll < 0.43 else symbol

    def input(self, dims: Sequence[Dim]) -> Value:
        kept = tuple(dims)
        while _count(kept) > MOST_ELEMENTS:
            kept = kept[1:]
        name = f"A{len(self.program.inputs)}"
        tensor = te.placeholder([d.expr for d in kept], self.dtype, name)
        self.program.inputs.append(tensor)
        self.values.append(Value(tensor, kept))
        return self.values[-1]

    # -- stages ----------------------------------------------------------------------------------

    def stage(self, x: Value) -> Value | None:
        if not x.dims:
            return self.pointwise(x)
        kinds: list[Callable[[Value], Value | None]] = [
            self.pointwise, self.broadcast, self.pad, self.reduce, self.reduce, self.reduce,
            self.matmul, self.matmul, self.blur, self.convolved, self.transposed, self.flattened,
            self.folded, self.joined, self.sliced, self.arg_max,
        ]  # fmt: skip
        return self.chance.choice(kinds)(x)

    def new(self, dims: Sequence[Dim], body: Callable[..., object]) -> Value | None:
        if _count(dims) > MOST_ELEMENTS:
            return None
        made = te.compute([d.expr for d in dims], body, name=f"T{len(self.values)}")
        return Value(made[0] if isinstance(made, tuple) else made, tuple(dims))

    def pointwise(self, x: Value) -> Value:
        t, kind = x.tensor, self.chance.randrange(3)

        def body(*i: Expr) -> Expr:
            if kind == 0:
                return t[i] * 2 + 1
            return te.max(t[i], 0) if kind == 1 else te.if_then_else(t[i] > 1, t[i] - 3, t[i])

        made = self.new(x.dims, body)
        assert made is not None
        return made

    def broadcast(self, x: Value) -> Value | None:
        other = self.input(x.dims[-1:] if self.chance.random() < 0.6 else x.dims)
        whole = len(other.dims) == len(x.dims)
        a, b = x.tensor, other.tensor
        return self.new(x.dims, lambda *i: a[i] + (b[i] if whole else b[i[-1]]))

    def pad(self, x: Value) -> Value | None:
        before, after = self.chance.randint(0, 3), self.chance.randint(0, 3)
        axis = self.chance.randrange(len(x.dims))
        extent, t = x.dims[axis].expr, x.tensor

        def body(*i: Expr) -> Expr:
            k = i[axis] - before
            read = t[(*i[:axis], k, *i[axis + 1 :])]
            inside = te.all(k >= 0, k < extent)
            return te.if_then_else(inside, read, te.const(0, self.dtype))

        return self.new(_with(x.dims, axis, x.dims[axis] + (before + after)), body)

    def reduce(self, x: Value) -> Value | None:
        chance = self.chance
        axes = sorted(chance.sample(range(len(x.dims)), chance.randint(1, min(2, len(x.dims)))))
        r = [te.reduce_axis((0, x.dims[a].expr), f"r{a}") for a in axes]
        kept = [a for a in range(len(x.dims)) if a not in axes]
        function = chance.choice((te.sum, te.sum, te.max, te.min))
        where = r[0] % 2 < 1 if chance.random() < 0.15 else None

        def body(*i: Expr) -> Expr:
            at = dict(zip((*kept, *axes), (*i, *r), strict=True))
            return function(x.tensor[tuple(at[k] for k in range(len(at)))], axis=r, where=where)

        return self.new([x.dims[a] for a in kept], body)

    def arg_max(self, x: Value) -> Value | None:
        def combine(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> list[Expr]:
            first = te.any(a[0] > b[0], te.all(a[0] == b[0], a[1] < b[1]))
            return [te.if_then_else(first, p, q) for p, q in zip(a, b, strict=True)]

        def identity(t: str, i: str) -> tuple[Expr, Expr]:
            return te.min_value(t), te.const(1 << 20, i)

        arg = te.comm_reducer(combine, identity, name="argmax")
        k = te.reduce_axis((0, x.dims[-1].expr), "k")
        made = te.compute(
            [d.expr for d in x.dims[:-1]],
            lambda *i: arg((x.tensor[(*i, k)], k), axis=k),
            name=f"T{len(self.values)}",
        )
        top, at = made
        if self.chance.random() < 0.3:
            return Value(top, x.dims[:-1])
        return self.new(x.dims[:-1], lambda *i: top[i] + at[i].astype(self.dtype))

    def matmul(self, x: Value) -> Value | None:
        width = self.dim()
        if len(x.dims) != 2 or x.dims[1].about * width.about > MOST_ELEMENTS:
            return None
        w = self.input([x.dims[1], width])
        k = te.reduce_axis((0, x.dims[1].expr), "k")
        a, b = x.tensor, w.tensor
        return self.new([x.dims[0], width], lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))

    def blur(self, x: Value) -> Value | None:
        """Neighbours along one axis of an input that is wider than the result."""
        axis, width = self.chance.randrange(len(x.dims)), self.chance.randint(2, 3)
        wide = self.input(_with(x.dims, axis, x.dims[axis] + (width - 1)))
        if len(wide.dims) != len(x.dims):
            return None
        between = self.pointwise(wide) if self.chance.random() < 0.7 else wide
        t, u = x.tensor, between.tensor

        def body(*i: Expr) -> Expr:
            reads = [u[(*i[:axis], i[axis] + k, *i[axis + 1 :])] for k in range(width)]
            return t[i] + reads[0] + reads[-1]

        return self.new(x.dims, body)

    def convolved(self, x: Value) -> Value | None:
        """A padded convolution along the last axis, its taps a reduction."""
        taps, t, extent = self.chance.randint(2, 3), x.tensor, x.dims[-1].expr
        w = self.input([Dim(taps, taps)])
        r = te.reduce_axis((0, taps), "tap")
        padded = self.new(
            _with(x.dims, len(x.dims) - 1, x.dims[-1] + (taps - 1)),
            lambda *i: te.if_then_else(
                te.all(i[-1] >= 1, i[-1] < extent + 1),
                t[(*i[:-1], i[-1] - 1)],
                te.const(0, self.dtype),
            ),
        )
        if padded is None:
            return None
        p, weights = padded.tensor, w.tensor
        return self.new(x.dims, lambda *i: te.sum(p[(*i[:-1], i[-1] + r)] * weights[r], axis=r))

    def transposed(self, x: Value) -> Value | None:
        order = list(range(len(x.dims)))
        self.chance.shuffle(order)
        t = x.tensor
        places = [order.index(a) for a in range(len(order))]
        return self.new([x.dims[a] for a in order], lambda *i: t[tuple(i[p] for p in places)])

    def flattened(self, x: Value) -> Value | None:
        """[..., a, b] -> [..., a * b]"""
        if len(x.dims) < 2:
            return None
        t, width = x.tensor, x.dims[-1].expr
        dims = [*x.dims[:-2], x.dims[-2].times(x.dims[-1])]
        return self.new(dims, lambda *i: t[(*i[:-1], i[-1] // width, i[-1] % width)])

    def folded(self, x: Value) -> Value | None:
        """An input of [a * f] beside a value, read as [a, f] and added up."""
        factor = self.chance.randint(2, 4)
        width = x.dims[-1] * factor
        if _count([width]) > MOST_ELEMENTS:
            return None
        row = self.input([width]).tensor
        t = x.tensor
        return self.new(
            x.dims, lambda *i: t[i] + row[i[-1] * factor] + row[i[-1] * factor + (factor - 1)]
        )

    def joined(self, x: Value) -> Value | None:
        """A concatenation with itself."""
        axis = self.chance.randrange(len(x.dims))
        t, extent = x.tensor, x.dims[axis].expr

        def body(*i: Expr) -> Expr:
            k = i[axis]
            first = t[(*i[:axis], k, *i[axis + 1 :])]
            second = t[(*i[:axis], k - extent, *i[axis + 1 :])]
            return te.if_then_else(k < extent, first, second * 2)

        return self.new(_with(x.dims, axis, x.dims[axis] * 2), body)

    def sliced(self, x: Value) -> Value | None:
        """Every second along an axis."""
        axis, t = self.chance.randrange(len(x.dims)), x.tensor
        dims = _with(x.dims, axis, x.dims[axis].halved())
        return self.new(dims, lambda *i: t[(*i[:axis], i[axis] * 2, *i[axis + 1 :])])


def _with(dims: Sequence[Dim], axis: int, dim: Dim) -> tuple[Dim, ...]:
    return (*dims[:axis], dim, *dims[axis + 1 :])


def _count(dims: Sequence[Dim]) -> int:
    total = 1
    for d in dims:
        total *= d.about
    return total
