# SPDX-License-Identifier: Apache-2.0
"""The distinct elements of a vector, or the distinct slices of a tensor along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.expr.nodes import Expr, convert, load
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import Dim, TensorType, TupleType, Type
from treadle.loop.build import assign, counter, declared, loop, nest, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.merge_sort import MergeSort
from treadle.ops.numeric import ANY, check_axis, check_elements, dims_of
from treadle.ops.select import SCALAR, fill_rest, padded
from treadle.ops.sort import precedes
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class UniqueAttrs(Attrs):
    """The axis whose slices are compared; in ascending order, or in that of their appearance."""

    axis: int = 0
    ascending: bool = True


def _infer(a: UniqueAttrs, x: Type) -> Type:
    source = check_elements(x, ANY)
    each = TensorType((source.shape[check_axis(a.axis, source.ndim)],), dt.INDEX)
    return TupleType((each, each, each, SCALAR))


@dataclass(frozen=True, slots=True)
class Slices:
    """A tensor seen as `extent` slices along an axis, ordered element by element.

    A NaN is larger than any number and equal to every NaN; the zeros are equal.
    """

    x: Buffer
    axis: int
    extents: tuple[Dim, ...]

    @property
    def extent(self) -> Dim:
        """The number of slices."""
        return self.extents[self.axis]

    def compare(self, a: Expr, b: Expr, result: Buffer) -> Stmt:
        """Return what sets `result` to -1, 0 or 1: slice `a` stands before, with or after `b`."""

        def step(*i: Expr) -> Stmt:
            def element(slice_: Expr) -> Expr:
                return load(self.x, (*i[: self.axis], slice_, *i[self.axis :]))

            first, second = element(a), element(b)
            order = If(
                precedes(first, second, False),
                assign(result, -1),
                If(precedes(second, first, False), assign(result, 1)),
            )
            return If(value_of(result) == 0, order)

        inner = (*self.extents[: self.axis], *self.extents[self.axis + 1 :])
        return seq(assign(result, 0), nest(inner, step, "e"))


def _compute(a: UniqueAttrs, x: Tensor) -> list[Tensor]:
    extents = dims_of(x)
    extent = extents[a.axis]

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        return _Groups(Slices(ins[0], a.axis, extents), outs, a.ascending).build()

    shapes: list[tuple[Dim, ...]] = [(extent,), (extent,), (extent,), (), (2, extent), (extent,)]
    made = te.extern(shapes, [x], build, "unique", (dt.INDEX,) * len(shapes))
    assert isinstance(made, tuple)  # a list of shapes gives a tuple
    return list(made[:4])  # the rest are temporaries


class _Groups:
    """The loop nest: sort, walk the runs of equal slices, number them in the wanted order."""

    def __init__(self, slices: Slices, outs: Sequence[Buffer], ascending: bool) -> None:
        self.slices = slices
        self.first, self.inverse, self.counts, self.total, self.order, self.head = outs
        self.ascending = ascending
        self.extent = convert(slices.extent)

    def build(self) -> Stmt:
        found, result, plane = counter("found"), counter("result"), counter("plane")
        sort = MergeSort(self.order, self.extent, self.slices.compare, plane)
        start = loop(
            self.extent,
            lambda j: seq(put(self.order, (0, j), j), put(self.counts, (j,), 0)),
            "j",
        )
        number = self._by_value if self.ascending else self._by_position
        count = loop(self.extent, self._count, "j")
        return declared(
            [found, result, plane],
            seq(
                start,
                sort.build(),
                self._heads(sort, result),
                assign(found, 0),
                number(sort, found),
                count,
                put(self.total, (), value_of(found)),
                fill_rest(self.first, value_of(found), self.extent),
            ),
        )

    def _heads(self, sort: MergeSort, result: Buffer) -> Stmt:
        """Note for every slice the first one that equals it."""

        def step(t: Expr) -> Stmt:
            here, before = sort.sorted(t), sort.sorted(t - 1)
            follow = seq(
                self.slices.compare(before, here, result),
                If(
                    value_of(result) == 0,
                    put(self.head, (here,), load(self.head, (before,))),
                    put(self.head, (here,), here),
                ),
            )
            return If(t > 0, follow, put(self.head, (here,), here))

        return loop(self.extent, step, "t")

    def _by_value(self, sort: MergeSort, found: Buffer) -> Stmt:
        return loop(self.extent, lambda t: self._number(sort.sorted(t), found), "t")

    def _by_position(self, sort: MergeSort, found: Buffer) -> Stmt:
        return loop(self.extent, lambda j: self._number(j, found), "j")

    def _number(self, slice_: Expr, found: Buffer) -> Stmt:
        """Give the next number to a slice that equals none before it."""
        new = seq(
            put(self.first, (value_of(found),), slice_),
            put(self.inverse, (slice_,), value_of(found)),
            assign(found, value_of(found) + 1),
        )
        return If(load(self.head, (slice_,)) == slice_, new)

    def _count(self, j: Expr) -> Stmt:
        number = load(self.inverse, (load(self.head, (j,)),))
        return seq(
            put(self.inverse, (j,), number),
            put(self.counts, (load(self.inverse, (j,)),), load(self.counts, (number,)) + 1),
        )


def _reference(a: UniqueAttrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
    slices = np.moveaxis(x, a.axis, 0)
    slices = slices.reshape(len(slices), prod(slices.shape[1:]))
    if dt.is_float(x.dtype.name):
        slices = slices.astype(np.float64)
    rows = [[_key(v) for v in row] for row in slices.tolist()]
    first: dict[tuple[object, ...], int] = {}
    for k, row in enumerate(rows):
        first.setdefault(tuple(row), k)
    keys = sorted(first) if a.ascending else list(first)
    number = {key: n for n, key in enumerate(keys)}
    inverse = np.array([number[tuple(row)] for row in rows], np.int64)
    counts = np.bincount(inverse, minlength=len(rows)).astype(np.int64)
    positions = np.array([first[key] for key in keys], np.int64)
    return padded(positions, len(rows)), inverse, counts, np.array(len(keys), np.int64)


def _key(value: float) -> tuple[bool, float]:
    return (True, 0) if value != value else (False, value)


_FLOATS = np.array([2, np.nan, -0.0, 1, 0.0, np.nan, np.inf, 1, -np.inf], np.float32)

unique: Operator[UniqueAttrs] = register(
    Operator(
        name="unique",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=UniqueAttrs,
        examples=(
            Example(((9,),), {}, ("int32",), -2, 2),
            Example(((9,),), {"ascending": False}, ("int64",), -2, 2),
            Example(((9,),), inputs={0: _FLOATS}),
            Example(((9,),), {"ascending": False}, inputs={0: _FLOATS}),
            Example(((6, 2),), {}, ("uint8",), 0, 1),
            Example(((2, 7, 2),), {"axis": 1, "ascending": False}, ("bool",)),
            Example(((2, 5),), {"axis": 1}, ("int8",), -1, 0),
            Example(((33,),), {}, ("float16",), -1, 1),
            Example(((1,),), {}, ("bfloat16",)),
            Example(((0,),)),
            Example(((3, 0),)),
        ),
    )
)
"""(first positions, number of every slice, slices per number, how many are distinct)."""
