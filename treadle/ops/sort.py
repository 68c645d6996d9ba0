# SPDX-License-Identifier: Apache-2.0
"""The largest or smallest elements along an axis, in order; whole sorts are the case of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.cost.sorting import keeps_best
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, ExprLike, cast, load
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.size_rules import SizeRule
from treadle.graph.types import (
    Dim,
    TensorType,
    TupleType,
    Type,
    known_sizes,
    known_true,
    product_of,
    tensor_type,
)
from treadle.loop.build import assign, counter, declared, loop, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.merge_sort import MergeSort
from treadle.ops.numeric import ANY, HALVES, check_axis, check_elements, dims_of
from treadle.ops.schedules.stages import is_much
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class TopkAttrs(Attrs):
    """How many elements to take along `axis`; the largest come first, or the smallest."""

    k: Dim = 1
    axis: int = 0
    largest: bool = True


def _infer(a: TopkAttrs, x: Type) -> Type:
    source = check_elements(x, ANY)
    extent = source.shape[check_axis(a.axis, source.ndim)]
    k = nodes.convert(a.k)
    if known_true(k < 0) or known_true(k > extent):
        raise TypeMismatch(f"k={a.k} elements cannot be taken from axis {a.axis} of {source}")
    shape = (*source.shape[: a.axis], a.k, *source.shape[a.axis + 1 :])
    return TupleType((source.with_shape(shape), TensorType(shape, dt.INDEX)))


def _rules(a: TopkAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    yield SizeRule("within", a.k, tensor_type(x).shape[a.axis], a.axis)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A tensor seen as `count` rows of `extent` elements along one axis."""

    shape: tuple[Dim, ...]
    axis: int

    @property
    def extent(self) -> Dim:
        return self.shape[self.axis]

    @property
    def others(self) -> tuple[Dim, ...]:
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    @property
    def count(self) -> Dim:
        return product_of(self.others)

    def index(self, row: Expr, element: Expr) -> list[ExprLike]:
        """Return where element `element` of row `row` is."""
        at: list[ExprLike] = []
        rest = row
        for extent in reversed(self.others):
            at.insert(0, rest % extent)
            rest = rest // extent
        return [*at[: self.axis], element, *at[self.axis :]]

    def row_of(self, index: Sequence[Expr]) -> ExprLike:
        """Return the row that the element at `index` belongs to."""
        others = (*index[: self.axis], *index[self.axis + 1 :])
        row: ExprLike = 0
        for i, extent in zip(others, self.others, strict=True):
            row = i if isinstance(row, int) else row * extent + i
        return row


def precedes(a: Expr, b: Expr, largest: bool) -> Expr:
    """True when `a` must stand before `b`; a NaN counts as the largest value."""
    if a.dtype in HALVES:
        a, b = cast(a, "float32"), cast(b, "float32")
    if a.dtype == "bool":
        a, b = cast(a, "uint8"), cast(b, "uint8")
    first, second = (a, b) if largest else (b, a)
    wins = first > second
    if dt.is_float(a.dtype):
        wins = wins | (te.isnan(first) & ~te.isnan(second))
    return wins


def _passes(extent: int) -> int:
    return max(extent - 1, 0).bit_length()


def _by_rows(
    x: Tensor,
    shape: Sequence[Dim],
    rows: _Rows,
    row_of: Callable[[Buffer, Buffer], Callable[[Expr], Stmt]],
) -> Tensor:
    """Return int64 positions of a shape; row_of(x, positions) makes the statement of one row."""

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        many = is_much(rows.shape)
        row = row_of(ins[0], outs[0])
        return loop(rows.count, row, "row", "parallel" if many else "serial")

    made = te.extern([shape], [x], build, "positions", dt.INDEX)
    assert isinstance(made, tuple)  # a list of shapes gives a tuple
    return made[0]


def sorted_positions(x: Tensor, rows: _Rows, k: int, largest: bool) -> Tensor:
    """Return int64[rows, 2, extent]: plane `_passes(extent) % 2` starts with the first k in order.

    A stable merge sort of positions, bottom up, between the two planes. A run never keeps more
    than the k elements that can still be among the first k, so few of many cost little.
    """
    shape = [rows.count, 2, rows.extent]
    return _by_rows(x, shape, rows, lambda a, b: _Merge(a, b, rows, k, largest).row)


@dataclass(frozen=True, slots=True)
class _Merge:
    """The loop nest that sorts the positions of one row."""

    x: Buffer
    order: Buffer
    rows: _Rows
    k: int
    largest: bool

    def row(self, row: Expr) -> Stmt:
        """Return the sort of row `row`: positions in their own order, then one merge per pass."""
        start = loop(self.rows.extent, lambda j: put(self.order, (row, 0, j), j), "j")
        assert isinstance(self.rows.extent, int)
        passes = _passes(self.rows.extent)
        return seq(start, loop(passes, lambda p: self._pass(row, p), "step"))

    def _pass(self, row: Expr, step: Expr) -> Stmt:
        width = nodes.convert(1) << step
        blocks = (self.rows.extent + 2 * width - 1) // (2 * width)
        return loop(blocks, lambda b: self._block(row, step, width, b), "block")

    def _block(self, row: Expr, step: Expr, width: Expr, block: Expr) -> Stmt:
        n, kept = self.rows.extent, nodes.minimum(width, self.k)
        start = block * 2 * width
        middle = nodes.minimum(start + width, n)
        ends = (nodes.minimum(start + kept, n), nodes.minimum(middle + kept, n))
        runs = counter("left"), counter("right")
        total = nodes.minimum(nodes.minimum(2 * width, self.k), ends[0] - start + ends[1] - middle)
        body = loop(total, lambda t: self._take(row, step, start + t, runs, ends), "t")
        return declared(runs, seq(assign(runs[0], start), assign(runs[1], middle), body))

    def _take(
        self,
        row: Expr,
        step: Expr,
        to: Expr,
        runs: tuple[Buffer, Buffer],
        ends: tuple[Expr, Expr],
    ) -> Stmt:
        """Return the step that moves the better head of two runs to the merged run."""
        left, right = value_of(runs[0]), value_of(runs[1])
        better = precedes(self._value(row, step, right), self._value(row, step, left), self.largest)
        keep = te.if_then_else(
            left < ends[0], te.if_then_else(right < ends[1], ~better, True), False
        )
        return If(
            keep,
            seq(self._move(row, step, left, to), assign(runs[0], left + 1)),
            seq(self._move(row, step, right, to), assign(runs[1], right + 1)),
        )

    def _move(self, row: Expr, step: Expr, source: Expr, to: Expr) -> Stmt:
        return put(self.order, (row, (step + 1) % 2, to), load(self.order, (row, step % 2, source)))

    def _value(self, row: Expr, step: Expr, run: Expr) -> Expr:
        element = load(self.order, (row, step % 2, run))
        return load(self.x, self.rows.index(row, element))


def all_positions(x: Tensor, rows: _Rows, largest: bool) -> Tensor:
    """Return int64[rows, 1, extent]: the positions of all elements of every row in order.

    A row may have any number of elements, which only a run knows.
    """

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        positions, order = outs

        def row(r: Expr) -> Stmt:
            def compare(a: Expr, b: Expr, result: Buffer) -> Stmt:
                first, second = (load(ins[0], rows.index(r, e)) for e in (a, b))
                late = precedes(second, first, largest)
                return If(late, assign(result, 1), assign(result, 0))

            plane = counter("plane")
            sort = MergeSort(order, nodes.convert(rows.extent), compare, plane, (r,))
            start = loop(rows.extent, lambda j: put(order, (r, 0, j), j), "j")
            end = loop(rows.extent, lambda j: put(positions, (r, 0, j), sort.sorted(j)), "j")
            return declared([plane], seq(start, sort.build(), end))

        return loop(rows.count, row, "row", "parallel" if is_much(rows.shape) else "serial")

    shapes = [[rows.count, 1, rows.extent], [rows.count, 2, rows.extent]]
    made = te.extern(shapes, [x], build, "positions", (dt.INDEX, dt.INDEX))
    assert isinstance(made, tuple)  # a list of shapes gives a tuple
    return made[0]  # the other is a temporary


def first_positions(x: Tensor, rows: _Rows, k: int, largest: bool) -> Tensor:
    """Return int64[rows, 1, k]: the positions of the first k elements in order.

    Every element is held against the last of the k best so far, and only a better one is put in its
    place: about k * log(n / k) of n elements in random order.
    """
    shape = [rows.count, 1, k]
    return _by_rows(x, shape, rows, lambda a, b: _Best(a, b, rows, k, largest).row)


@dataclass(frozen=True, slots=True)
class _Best:
    """The loop nest that keeps the k best positions of one row in order."""

    x: Buffer
    order: Buffer
    rows: _Rows
    k: int
    largest: bool

    def row(self, row: Expr) -> Stmt:
        """Return the walk along one row."""
        return loop(self.rows.extent, lambda j: self._offer(row, j), "j")

    def _offer(self, row: Expr, j: Expr) -> Stmt:
        last = self._is_before(row, j, nodes.convert(self.k - 1))
        wanted = te.if_then_else(j < self.k, True, last)
        filled = nodes.minimum(j, self.k - 1)
        low, high = counter("low"), counter("high")
        place = value_of(low)
        shift = loop(
            filled - place,
            lambda t: put(
                self.order, (row, 0, filled - t), load(self.order, (row, 0, filled - t - 1))
            ),
            "t",
        )
        start = seq(assign(low, 0), assign(high, nodes.minimum(j, self.k)))
        halve = loop(self.k.bit_length(), lambda _: self._halve(row, j, low, high), "step")
        store = put(self.order, (row, 0, place), j)
        return If(wanted, declared([low, high], seq(start, halve, shift, store)))

    def _halve(self, row: Expr, j: Expr, low: Buffer, high: Buffer) -> Stmt:
        """Return one step of the search for the first position that `j` stands before."""
        middle = (value_of(low) + value_of(high)) // 2
        is_before = self._is_before(row, j, middle)
        step = If(is_before, assign(high, middle), assign(low, middle + 1))
        return If(value_of(low) < value_of(high), step)

    def _is_before(self, row: Expr, j: Expr, place: Expr) -> Expr:
        there = load(self.order, (row, 0, place))
        a, b = (load(self.x, self.rows.index(row, e)) for e in (j, there))
        return precedes(a, b, self.largest)


def _compute(a: TopkAttrs, x: Tensor) -> list[Tensor]:
    shape = dims_of(x)
    rows = _Rows(shape, a.axis)
    length = rows.extent if isinstance(rows.extent, int) else None
    if isinstance(a.k, int) and a.k > 0 and keeps_best(a.k, length):
        order, plane = first_positions(x, rows, a.k, a.largest), 0
    elif isinstance(a.k, int) and isinstance(rows.extent, int):
        order, plane = sorted_positions(x, rows, a.k, a.largest), _passes(rows.extent) % 2
    else:
        order, plane = all_positions(x, rows, a.largest), 0

    def position(*i: Expr) -> Expr:
        return order[(rows.row_of(i), plane, i[a.axis])]

    taken = (*shape[: a.axis], a.k, *shape[a.axis + 1 :])
    indices = te.compute_one(taken, position, "topk.indices")
    values = te.compute_one(
        taken, lambda *i: x[(*i[: a.axis], position(*i), *i[a.axis + 1 :])], "topk.values"
    )
    return [values, indices]


def _reference(a: TopkAttrs, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    keys = np.moveaxis(x, a.axis, -1)
    if dt.is_float(x.dtype.name):
        keys = keys.astype(np.float64)
    (count,) = known_sizes([a.k], "k")
    order = _stable_order(keys, a.largest)[..., :count]
    indices = np.moveaxis(order, -1, a.axis).astype(np.int64)
    return np.take_along_axis(x, indices, a.axis), indices


def _stable_order(keys: np.ndarray, largest: bool) -> np.ndarray:
    """Return positions in order along the last axis, equal keys by position, NaN the largest."""
    if not largest:
        return np.argsort(keys, axis=-1, kind="stable")
    last = keys.shape[-1] - 1
    return np.flip(last - np.argsort(np.flip(keys, -1), axis=-1, kind="stable"), -1)


_TIES = np.array([[2, 1, 2, np.nan, 1, -np.inf, np.nan]], np.float32)

topk: Operator[TopkAttrs] = register(
    Operator(
        name="topk",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        rules=_rules,
        attrs_type=TopkAttrs,
        examples=(
            Example(((3, 5),), {"k": 2, "axis": 1}),
            Example(((3, 5),), {"k": 5, "axis": 1, "largest": False}),
            Example(((7, 2, 3),), {"k": 4}),
            Example(((2, 9, 3),), {"k": 3, "axis": 1}, ("int32",), -2, 2),
            Example(((1, 100),), {"k": 7, "axis": 1}),
            Example(((40, 130),), {"k": 1, "axis": 1}),
            Example(((2, 1100),), {"k": 1099, "axis": 1}, ("int16",), 0, 40),
            Example(((2, 300),), {"k": 270, "axis": 1}, ("int16",), 0, 40),
            Example(((6,),), {"k": 6}, ("uint64",), 0, 3),
            Example(((6,),), {"k": 3, "largest": False}, ("int8",), -3, 3),
            Example(((8,),), {"k": 8}, ("float16",)),
            Example(((8,),), {"k": 8}, ("bool",)),
            Example(((1,),), {"k": 1}),
            Example(((4, 3),), {"k": 0, "axis": 1}),
            Example(((0, 3),), {"k": 2, "axis": 1}),
            Example(((1, 7),), {"k": 7, "axis": 1}, inputs={0: _TIES}),
            Example(((1, 7),), {"k": 7, "axis": 1, "largest": False}, inputs={0: _TIES}),
        ),
    )
)
"""(values, positions), equal values by position, NaN as the largest value."""
