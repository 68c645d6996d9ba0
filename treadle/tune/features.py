# SPDX-License-Identifier: Apache-2.0
"""A loop nest as a row of numbers: what each loop does, and what memory is touched inside of it.

The kinds are those of Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018): "itervar"
has a group of columns per loop (their context features), "curve" samples how the memory touched and
reused grows with the loops inside (their relation features), which says less of one loop nest and
carries over to others. Features of kind "knob" need no loops (`TemplateSpace.features`).

The numbers are of the two stores that run most often, each with the reads of its value. Sizes that
are known at run time only count as 64; both sides of a condition count as run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod

import numpy as np

from treadle.dtype import itemsize
from treadle.errors import UsageError
from treadle.expr import nodes as ex
from treadle.expr.bounds import interval
from treadle.expr.intervals import ZERO, Interval
from treadle.expr.nodes import Expr, Var
from treadle.expr.traversal import substitute, walk
from treadle.loop.nodes import (
    Allocate,
    Buffer,
    For,
    ForKind,
    Let,
    PrimFunc,
    Stmt,
    Store,
    sub_stmts,
)
from treadle.tune.space import Floats

KINDS = ("itervar", "curve")
"""The names `loop_features` knows."""

_SITES = 2
_LOOPS = 8
_BUFFERS = 4
_SAMPLES = 12
"""Curves are sampled at 1, 4, 16, ... (log2 in steps of 2)."""

_TYPICAL_SIZE = 64
_LOOP_KINDS: tuple[ForKind, ...] = ("serial", "parallel", "vectorized", "unrolled", "thread")


def loop_features(func: PrimFunc, kind: str) -> Floats:
    """Return the features of a loop nest: float32[n], n the same for all of one kind.

    `func` may be at any stage; the earlier one (`Kernel.loops`) says more of its loops.

    Raises: UsageError where there is no such kind.
    """
    if kind not in KINDS:
        raise UsageError(
            f"there are no loop features of kind {kind!r}",
            hint=f"there is {' and '.join(KINDS)}; 'knob' is TemplateSpace.features",
        )
    sites = _sites(func)
    hottest = sorted(sites, key=lambda s: -s.runs * (1 + len(s.accesses)))[:_SITES]
    of_site = _itervar_columns if kind == "itervar" else _curve_columns
    empty = np.zeros_like(of_site(_Site((), (), 1)))
    rows = [of_site(site) for site in hottest] + [empty] * (_SITES - len(hottest))
    whole = [_log(sum(s.runs for s in sites)), _log(_allocated(func)), float(len(sites))]
    return np.concatenate([whole, *rows]).astype(np.float32)


# -- what there is -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Loop:
    var: Var
    extent: int
    kind: ForKind


@dataclass(frozen=True, slots=True)
class _Access:
    """A read or write of a buffer, its indices in terms of loop variables."""

    buffer: Buffer
    indices: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Site:
    """A store: the loops around it from outside to inside, what it writes and reads, its runs."""

    loops: tuple[_Loop, ...]
    accesses: tuple[_Access, ...]
    runs: int


@dataclass(frozen=True, slots=True)
class _Use:
    """What a site does with one buffer, per loop from outside to inside.

    `touched` are the bytes that the loop and those inside of it reach, `stride` the elements
    between what two iterations of it reach.
    """

    touched: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int


def _sites(func: PrimFunc) -> list[_Site]:
    """Return all stores of a function, in order."""
    found: list[_Site] = []
    around = {size: Interval(_TYPICAL_SIZE, _TYPICAL_SIZE) for size in func.sizes}
    pending: list[tuple[Stmt, tuple[_Loop, ...], Mapping[Var, Interval], Mapping[Expr, Expr]]]
    pending = [(func.body, (), around, {})]
    while pending:
        stmt, loops, ranges, lets = pending.pop()
        if isinstance(stmt, Store):
            found.append(_site(stmt, loops, lets))
        elif isinstance(stmt, For):
            extent = max(1, interval(stmt.extent, ranges).hi or _TYPICAL_SIZE)
            loops = (*loops, _Loop(stmt.var, extent, stmt.kind))
            ranges = {**ranges, stmt.var: Interval(0, extent - 1)}
        elif isinstance(stmt, Let):
            lets = {**lets, stmt.var: substitute(stmt.value, dict(lets))}
            ranges = {**ranges, stmt.var: interval(stmt.value, ranges)}
        pending += [(s, loops, ranges, lets) for s in reversed(sub_stmts(stmt))]
    return found


def _site(store: Store, loops: tuple[_Loop, ...], lets: Mapping[Expr, Expr]) -> _Site:
    plain = dict(lets)
    indices = [substitute(i, plain) for i in store.indices]
    accesses = [_Access(store.buffer, tuple(indices))]
    for root in (*indices, substitute(store.value, plain)):
        for node in walk(root):
            if isinstance(node, ex.Load) and isinstance(node.source, Buffer):
                accesses.append(_Access(node.source, node.indices))
    return _Site(loops, tuple(accesses), prod(loop.extent for loop in loops))


def _allocated(func: PrimFunc) -> int:
    """Return the bytes of all buffers that the function makes."""
    total, pending = 0, [func.body]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, Allocate):
            sizes = [ex.int_value(s) or _TYPICAL_SIZE for s in stmt.buffer.shape]
            total += prod(sizes) * itemsize(stmt.buffer.dtype)
        pending += sub_stmts(stmt)
    return total


def _uses(site: _Site) -> list[_Use]:
    """Return what a site does with each of its buffers, that which it touches most of first."""
    by_buffer: dict[Buffer, list[_Use]] = {}
    for access in site.accesses:
        by_buffer.setdefault(access.buffer, []).append(_use(access, site.loops))
    uses = [_joined(found) for found in by_buffer.values()]
    return sorted(uses, key=lambda u: -max(u.touched, default=0))[:_BUFFERS]


def _joined(uses: Sequence[_Use]) -> _Use:
    """Return the accesses of one buffer as one: they mostly lie side by side."""
    touched = tuple(map(max, zip(*(u.touched for u in uses), strict=True)))
    stride = tuple(map(max, zip(*(u.stride for u in uses), strict=True)))
    return _Use(touched, stride, uses[0].itemsize)


def _use(access: _Access, loops: Sequence[_Loop]) -> _Use:
    sizes = [ex.int_value(s) or _TYPICAL_SIZE for s in access.buffer.shape]
    size = itemsize(access.buffer.dtype)
    still: dict[Var, Interval] = {loop.var: ZERO for loop in loops}
    moving = dict(still)
    touched: list[int] = []
    stride: list[int] = []
    for loop in reversed(loops):
        moving[loop.var] = Interval(0, loop.extent - 1)
        touched.append(_reach(access.indices, sizes, moving) * size)
        after = {**still, loop.var: Interval(1, 1)}
        step = _place(access.indices, sizes, after) - _place(access.indices, sizes, still)
        stride.append(abs(step))
    return _Use(tuple(reversed(touched)), tuple(reversed(stride)), size)


def _reach(indices: Sequence[Expr], sizes: Sequence[int], ranges: Mapping[Var, Interval]) -> int:
    """Return how many elements indices reach: those of the smallest box around them."""
    count = 1
    for index, size in zip(indices, sizes, strict=True):
        bounds = interval(index, ranges)
        wide = size if bounds.lo is None or bounds.hi is None else bounds.hi - bounds.lo + 1
        count *= max(1, min(wide, size))
    return count


def _place(indices: Sequence[Expr], sizes: Sequence[int], ranges: Mapping[Var, Interval]) -> int:
    """Return the place of an element in its buffer, row by row; what is unknown counts as 0."""
    place = 0
    for index, size in zip(indices, sizes, strict=True):
        place = place * size + (interval(index, ranges).lo or 0)
    return place


# -- columns -------------------------------------------------------------------------------------


def _itervar_columns(site: _Site) -> Floats:
    """Return a group of columns for each of the innermost loops, the innermost first.

    Of a loop: its extent, its kind, the runs outside of it and inside; of every buffer the bytes
    touched, how often each byte is used, and the stride. Counts are logarithms of base 2.
    """
    width = 3 + len(_LOOP_KINDS) + 3 * _BUFFERS
    table = np.zeros((_LOOPS, width), np.float32)
    uses = _uses(site)
    inside = 1
    for row, number in zip(table, reversed(range(len(site.loops))), strict=False):
        loop = site.loops[number]
        inside *= loop.extent
        row[:3] = _log(loop.extent), _log(site.runs // max(1, inside)), _log(inside)
        row[3 + _LOOP_KINDS.index(loop.kind)] = 1.0
        for k, use in enumerate(uses):
            touched = use.touched[number]
            reuse = inside * use.itemsize / max(1, touched)
            at = 3 + len(_LOOP_KINDS) + 3 * k
            row[at : at + 3] = _log(touched), _log(reuse), _log(use.stride[number])
    return table.ravel()


def _curve_columns(site: _Site) -> Floats:
    """Return curves of the growth of each buffer's use with the loops, sampled.

    For thresholds 1, 4, 16, ...: the most bytes touched by loops with fewer runs inside, the most
    reuse by loops that touch fewer bytes, and the most bytes by loops with less reuse.
    """
    table = np.zeros((_BUFFERS, 3, _SAMPLES), np.float32)
    inside = [prod(loop.extent for loop in site.loops[k:]) for k in range(len(site.loops))]
    for curves, use in zip(table, _uses(site), strict=False):
        reuse = [n * use.itemsize / max(1, t) for n, t in zip(inside, use.touched, strict=True)]
        curves[0] = _curve(inside, use.touched)
        curves[1] = _curve(use.touched, reuse)
        curves[2] = _curve(reuse, use.touched)
    return table.ravel()


def _curve(by: Sequence[float], value: Sequence[float]) -> Floats:
    """Return the logarithm of the largest value where `by` is at most 1, 4, 16, ..."""
    pairs = list(zip(by, value, strict=True))
    samples = (max((v for b, v in pairs if b <= 4.0**k), default=0.0) for k in range(_SAMPLES))
    return np.array([_log(s) for s in samples], np.float32)


def _log(count: float) -> float:
    return log2(1.0 + max(0.0, count))
