# SPDX-License-Identifier: Apache-2.0
"""Reads of a compute that are outside of their tensor whatever the sizes are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.affine import decompose
from treadle.expr.bounds import Bounds, Ranges, assume, prove
from treadle.expr.intervals import Interval
from treadle.expr.nodes import Const, Expr, Var
from treadle.expr.traversal import free_vars, walk


class Axis(Protocol):
    """A variable that runs over [start, start + extent)."""

    start: Expr
    extent: Expr

    @property
    def var(self) -> Var:
        """The variable."""


def check_reads(name: str, axes: Sequence[Axis], body: Iterable[Expr]) -> None:
    """Raise TypeMismatch where a read is outside of its tensor for certain.

    For certain: at the first or last values of the axes, whatever the sizes are. Reads that a lazy
    select guards are not looked at, nor reads of an empty tensor over axes that may be empty, too.
    """
    may_be_empty = any(nodes.int_value(a.extent) is None for a in axes)
    ranges: Ranges = {v: Interval(0, None) for a in axes for v in free_vars(a.extent)}
    for axis in axes:
        if nodes.int_value(axis.extent) is not None and prove(axis.extent <= 0, ranges):
            return
        ranges = assume(ranges, axis.extent >= 1)
    bounds = Bounds(ranges)
    for read in _unguarded_reads(body):
        for d, (index, extent) in enumerate(zip(read.indices, read.source.shape, strict=True)):
            if _is_axis_of(index, axes, extent):
                continue
            reached = _reached(index, axes)
            if reached is None or (may_be_empty and nodes.int_value(extent) == 0):
                continue
            first, last = reached
            if bounds.prove(first >= 0) is False or bounds.prove(last < extent) is False:
                shape = ", ".join(map(str, read.source.shape))
                raise TypeMismatch(
                    f"{name} reads {read}, outside of {read.source.name}[{shape}]: in dimension "
                    f"{d} the index {index} runs from {first} to {last}",
                    hint="guard the read by te.if_then_else(condition, read, other), or change "
                    "the shape",
                )


def _unguarded_reads(body: Iterable[Expr]) -> Iterator[nodes.Load]:
    found: dict[Expr, None] = {}
    queue = list(body)
    while queue:
        e = queue.pop()
        if e in found:
            continue
        found[e] = None
        if isinstance(e, nodes.Load):
            yield e
        is_choice = isinstance(e, nodes.Select) and e.lazy
        queue += e.children[:1] if is_choice else e.children


def _is_axis_of(index: Expr, axes: Sequence[Axis], extent: Expr) -> bool:
    """True for an axis that begins at 0 and is as long as what it runs over."""
    for axis in axes:
        if axis.var is index:
            return nodes.int_value(axis.start) == 0 and axis.extent is extent
    return False


def _reached(index: Expr, axes: Sequence[Axis]) -> tuple[Expr, Expr] | None:
    """Return the least and largest values of an index that is a sum of axes; None for others."""
    affine = decompose(index)
    own: dict[Expr, Axis] = {a.var: a for a in axes}
    low: Expr = Const.of(affine.const)
    high: Expr = low
    for atom, factor in affine.terms.items():
        axis = own.get(atom)
        if axis is None:
            if any(n in own or isinstance(n, nodes.Load) for n in walk(atom)):
                return None
            low, high = low + atom * factor, high + atom * factor
            continue
        begin, end = axis.start * factor, (axis.start + axis.extent - 1) * factor
        low, high = low + (begin if factor > 0 else end), high + (end if factor > 0 else begin)
    return decompose(low).to_expr(), decompose(high).to_expr()
