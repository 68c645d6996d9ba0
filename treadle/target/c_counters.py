# SPDX-License-Identifier: Apache-2.0
"""The C types of indices: on machines of 32 bits those that fit are numbers of 32 bits.

There a 64-bit number takes two registers, and its division a call of a library. Where every value
of an index lies in 32 bits for the extents that are known, it is computed in 32; so are counters
of loops. What is not known (sizes that runs decide, indices that are data) keeps 64.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from treadle.dtype import INDEX, max_value
from treadle.expr.bounds import Bounds
from treadle.expr.intervals import Interval, dtype_interval
from treadle.expr.nodes import Expr, Var
from treadle.target.c_helpers import c_type

NARROW = "int32"
_LIMITS = dtype_interval(NARROW)
_LARGEST = int(max_value(NARROW))


class Counters:
    """Which index expressions have 32 bits, at one place of a kernel: inside of some loops."""

    def __init__(self, *, narrows: bool) -> None:
        """Give every index 64 bits unless it `narrows`."""
        self._narrows = narrows
        self._ranges: dict[Var, Interval] = {}
        self._bounds = Bounds({})

    def is_narrow(self, e: Expr) -> bool:
        """True for an index whose values all lie in 32 bits: its C text has that type or `int`."""
        return self._narrows and e.dtype == INDEX and _LIMITS.contains(self._bounds.of(e))

    def c_type(self, e: Expr) -> str:
        """Return the C type of the value of an expression."""
        return c_type(NARROW if self.is_narrow(e) else e.dtype)

    @contextmanager
    def loop(self, var: Var, extent: Expr) -> Iterator[str]:
        """Know a loop's variable inside the block; yield its C type, which holds the extent."""
        end = self._bounds.of(extent).hi if self._narrows else None
        fits = (
            end is not None and end <= _LARGEST
        )  # which the variable has after the last iteration
        with self._known(var, Interval(0, max(end - 1, 0) if end is not None else None)):
            yield c_type(NARROW if fits else INDEX)

    @contextmanager
    def let(self, var: Var, value: Expr) -> Iterator[str]:
        """Know a variable that has a value inside the block; yield its C type."""
        type_ = self.c_type(value)
        if not self._narrows or var.dtype != INDEX:
            yield type_
            return
        with self._known(var, self._bounds.of(value)):
            yield type_

    @contextmanager
    def _known(self, var: Var, values: Interval) -> Iterator[None]:
        if not self._narrows:
            yield
            return
        outside = self._ranges, self._bounds
        self._ranges = {**self._ranges, var: values}
        self._bounds = Bounds(self._ranges)
        yield
        self._ranges, self._bounds = outside
