# SPDX-License-Identifier: Apache-2.0
"""What a stage reads, as numbers: extents of its axes, and how reads move with each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from treadle.dtype import INDEX, bits
from treadle.expr import nodes as ex
from treadle.expr.affine import decompose
from treadle.expr.nodes import Expr, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import uses, walk
from treadle.loop.bodies import inline_bodies
from treadle.te.operations import ComputeOp, IterVar, Reduce, Tensor
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage

Floats64 = NDArray[np.float64]

_ROUNDING = 1e-6
"""More than what is lost of whole numbers by adding up parts."""


@dataclass(frozen=True, eq=False)
class Read:
    """A tensor that a stage reads at one place.

    `steps[d][a]` is by how much the index along dimension d grows with axis a: of a quotient the
    part that it grows by on average, of a remainder as if it did not begin anew.
    """

    source: int
    """The number of the stage that makes it."""
    shape: tuple[int, ...]
    steps: tuple[tuple[float, ...], ...]
    itemsize: float
    spread: tuple[int, ...]
    """How far apart along each dimension the reads are that differ by constants alone."""
    count: int
    """How many reads of an element these are."""

    def step_in_memory(self, axis: int) -> int:
        """Return by how many elements the read moves when an axis grows by one.

        Within a block: quotients stay, remainders do not begin anew.
        """
        total, stride = 0, 1
        for d in reversed(range(len(self.shape))):
            total += int(self.steps[d][axis]) * stride
            stride *= self.shape[d]
        return total

    def uses(self, axis: int) -> bool:
        """True when the read depends on an axis."""
        return any(row[axis] for row in self.steps)

    def elements(self, tiles: Floats64) -> Floats64:
        """Return how many elements tiles read, given their extents as rows [axes, candidates]."""
        return _product(self.reach(tiles))

    def lines(self, tiles: Floats64, line_bytes: int) -> tuple[Floats64, Floats64]:
        """Return the bytes of all cache lines that tiles touch, and in how many runs they lie."""
        reach = self.reach(tiles)
        if not len(reach):
            return np.full(tiles.shape[1], float(line_bytes)), np.ones(tiles.shape[1])
        run, rows = reach[-1].copy(), np.ones(tiles.shape[1])
        is_whole = run >= self.shape[-1]
        for extent, whole in zip(reach[-2::-1], self.shape[-2::-1], strict=True):
            run = np.where(is_whole, run * extent, run)
            rows = np.where(is_whole, rows, rows * extent)
            is_whole &= extent >= whole
        touched: Floats64 = np.ceil(run * self.itemsize / line_bytes) * line_bytes
        return rows * touched, rows

    def taken(self, tiles: Floats64, page_bytes: int) -> Floats64:
        """Return the bytes of a cache that tiles take, whose places repeat with each page.

        Runs that lie a multiple of a page apart take a whole page each: they share its first place.
        """
        reach = self.reach(tiles)
        held, spots = np.full(tiles.shape[1], self.itemsize), np.full(tiles.shape[1], self.itemsize)
        stride = self.itemsize
        for extent, whole in zip(reach[::-1], self.shape[::-1], strict=True):
            is_dense = held == stride
            apart = gcd(int(stride), page_bytes) if stride >= 1 else 1
            most = np.minimum(extent, page_bytes // apart)
            held = held * extent
            spots = np.where(is_dense, held, spots * most)
            stride *= whole
        layers = held / np.minimum(spots, page_bytes)
        found: Floats64 = np.where(layers > 1, layers * page_bytes, held)
        return found

    def blocks(self, axis: int) -> int:
        """Return in blocks of how many places of an axis the tensor lies; 1: not in blocks."""
        parts = [row[axis] for row in self.steps if 0 < abs(row[axis]) < 1]
        return round(1 / abs(min(parts, key=abs))) if parts else 1

    def reach(self, tiles: Floats64) -> Floats64:
        """Return how far the reads of tiles extend: [dimensions, candidates]."""
        if not self.shape:
            return np.ones((0, tiles.shape[1]))
        steps, first, most = self._arrays
        within: Floats64 = np.minimum(first + np.floor(steps @ (tiles - 1) + _ROUNDING), most)
        return within

    @cached_property
    def _arrays(self) -> tuple[Floats64, Floats64, Floats64]:
        """The steps, the reach of one element and the shape as arrays."""
        steps = np.abs(np.array(self.steps, dtype=np.float64))
        first = 1 + np.array(self.spread, dtype=np.float64)[:, None]
        return steps, first, np.array(self.shape, dtype=np.float64)[:, None]


@dataclass(frozen=True, eq=False)
class Nest:
    """A stage as numbers: extents of its data axes, then of its reduction axes, and its reads."""

    stage: int
    extents: tuple[int, ...]
    data: int
    """How many of the axes are data axes."""
    reads: tuple[Read, ...]
    itemsize: float
    operations: int
    """Arithmetic nodes of an element, those of indices left out."""

    @property
    def points(self) -> int:
        """The number of iterations of all loops."""
        return prod(self.extents)

    @property
    def size(self) -> int:
        """The number of elements of a result."""
        return prod(self.extents[: self.data])

    @property
    def reduction(self) -> int:
        """The number of terms of an element."""
        return prod(self.extents[self.data :])


def _product(rows: Floats64) -> Floats64:
    """Return the product over the first axis: a number for each candidate."""
    found: Floats64 = np.prod(rows, axis=0)
    return found


def nests_of(schedule: Schedule) -> dict[int, Nest]:
    """Return the nest of every stage that te expresses and that is computed, by stage number."""
    bodies = inline_bodies(schedule)
    found: dict[int, Nest] = {}
    for stage in schedule.stages:
        body = bodies.get(id(stage))
        if body and isinstance(stage.op, ComputeOp):
            found[stage.number] = nest_of(stage, stage.op, body)
    return found


def nest_of(
    stage: Stage,
    op: ComputeOp,
    body: Sequence[Expr],
    data: Sequence[Expr] | None = None,
    sizes: tuple[int, ...] = (),
) -> Nest:
    """Return a stage as numbers, whose elements are `body`.

    Its data axes are those of the operation, or `data` of extents `sizes`.
    """
    axes = (*(op.axis if data is None else data), *op.reduce_axis)
    loads: dict[ex.Load, None] = {}
    operations = 0
    for node in (n for b in body for n in walk(b)):
        if isinstance(node, ex.Load) and isinstance(node.source, Tensor):
            loads[node] = None
        is_index = node.dtype in (INDEX, "bool")
        operations += isinstance(node, (ex.Binary, ex.Call, ex.Select, Reduce)) and not is_index
    if data is None:
        sizes = tuple(int_value(a.extent) or 1 for a in op.axis)
    extents = (*sizes, *(int_value(a.extent) or 1 for a in op.reduce_axis))
    itemsize = bits(op.outputs[0].dtype) / 8
    reads = tuple(_reads([*loads], stage.schedule, axes))
    return Nest(stage.number, extents, len(sizes), reads, itemsize, operations)


def _reads(loads: Sequence[ex.Load], schedule: Schedule, axes: Sequence[Expr]) -> Iterator[Read]:
    """Yield what is read; reads that differ by constants alone are one."""
    alike: dict[tuple[Tensor, tuple[tuple[float, ...], ...]], list[ex.Load]] = {}
    for load in loads:
        source = load.source
        assert isinstance(source, Tensor)
        steps = tuple(_steps(index, axes) for index in load.indices)
        alike.setdefault((source, steps), []).append(load)
    for (source, steps), own in alike.items():
        constants = [[decompose(index).const for index in load.indices] for load in own]
        spread = tuple(max(c) - min(c) for c in zip(*constants, strict=True))
        shape = tuple(int_value(d) or 1 for d in source.shape)
        itemsize = bits(source.dtype) / 8
        yield Read(schedule[source].number, shape, steps, itemsize, spread, len(own))


def _steps(index: Expr, axes: Sequence[Expr]) -> tuple[float, ...]:
    """Return by how much an index grows with each axis."""
    inside = index.leaves
    return tuple(_slope(index, axis) if axis in inside else 0 for axis in axes)


def _slope(index: Expr, axis: Expr) -> float:
    """Return by how much an expression grows with an axis, on average; 1 where it is not known."""
    found: float = 0
    for term, factor in decompose(index).terms.items():
        if term is axis:
            found += factor
        elif uses(term, axis):
            found += factor * _slope_of_term(term, axis)
    return found or 1


def _slope_of_term(term: Expr, axis: Expr) -> float:
    step = int_value(simplify(term.b)) if isinstance(term, ex.Binary) else None
    if not isinstance(term, ex.Binary) or not step or uses(term.b, axis):
        return 1
    if term.op == "floordiv":
        return _slope(term.a, axis) / step
    return _slope(term.a, axis) if term.op == "floormod" else 1


def offsets_of(load: ex.Load, axes: tuple[IterVar, ...]) -> list[tuple[IterVar | None, int]] | None:
    """Return (axis, constant) of every index where all are such sums of one axis; else None."""
    found: list[tuple[IterVar | None, int]] = []
    for index in load.indices:
        affine = decompose(index)
        used = [a for a in axes if affine.terms.get(a) == 1]
        if len(affine.terms) > 1 or len(used) != len(affine.terms):
            return None
        found.append((used[0] if used else None, affine.const))
    return found
