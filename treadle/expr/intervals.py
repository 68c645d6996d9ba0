# SPDX-License-Identifier: Apache-2.0
"""Intervals of integers and the arithmetic of expressions on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from treadle.dtype import INDEX, is_integer, max_value, min_value


class Interval(NamedTuple):
    """The integers from `lo` to `hi`, both included; None is no bound on that side."""

    lo: int | None = None
    hi: int | None = None

    def __str__(self) -> str:
        return (
            f"[{'-inf' if self.lo is None else self.lo}, {'inf' if self.hi is None else self.hi}]"
        )

    @property
    def value(self) -> int | None:
        """The only element, or None where there are more."""
        return self.lo if self.lo == self.hi else None

    def contains(self, other: Interval) -> bool:
        """True when every element of `other` is in this interval."""
        above = self.lo is None or (other.lo is not None and other.lo >= self.lo)
        below = self.hi is None or (other.hi is not None and other.hi <= self.hi)
        return above and below

    def intersect(self, other: Interval) -> Interval:
        """Return the elements of both (one of them where they are disjoint: dead code)."""
        lo, hi = _largest(self.lo, other.lo), _smallest(self.hi, other.hi)
        return self if lo is not None and hi is not None and lo > hi else Interval(lo, hi)

    def union(self, other: Interval) -> Interval:
        """Return the smallest interval with the elements of both."""
        lo = None if self.lo is None or other.lo is None else min(self.lo, other.lo)
        hi = None if self.hi is None or other.hi is None else max(self.hi, other.hi)
        return Interval(lo, hi)

    def shift(self, by: int) -> Interval:
        """Return the interval of x + by."""
        return Interval(
            None if self.lo is None else self.lo + by,
            None if self.hi is None else self.hi + by,
        )

    def scale(self, by: int) -> Interval:
        """Return the interval of x * by."""
        lo = None if self.lo is None else self.lo * by
        hi = None if self.hi is None else self.hi * by
        if by == 0:
            return ZERO
        return Interval(lo, hi) if by > 0 else Interval(hi, lo)


FAR = 1 << 48
"""No index, extent or address reaches this far. As the bound of a value that has none of its own
(a slice that ends at 2**63 - 1) such a number says nothing, and it would make sums seem to wrap."""

ANY = Interval()
ZERO = Interval(0, 0)
BOOL = Interval(0, 1)
TRUE = Interval(1, 1)


def _largest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _smallest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


@cache
def dtype_interval(dtype: str) -> Interval:
    """Return the values an integer or bool type can hold (no bounds for floats)."""
    if dtype == "bool":
        return BOOL
    if not is_integer(dtype):
        return ANY
    return Interval(int(min_value(dtype)), int(max_value(dtype)))


def fits(value: Interval, dtype: str) -> bool:
    """True when values in the interval are exact in `dtype` (an index without bound fits)."""
    limit = dtype_interval(dtype)
    if dtype != INDEX:
        return limit.contains(value)
    low = value.lo is None or limit.lo is None or value.lo >= limit.lo
    return low and (value.hi is None or limit.hi is None or value.hi <= limit.hi)


def truth(known: bool | None) -> Interval:
    """Return the values of a condition: 1 where it holds for certain, 0 where it does not."""
    return BOOL if known is None else TRUE if known else ZERO


def decide(op: str, d: Interval) -> bool | None:
    """Return the truth of `d op 0`."""
    if op in ("ge", "gt", "ne"):
        opposite = decide({"ge": "lt", "gt": "le", "ne": "eq"}[op], d)
        return None if opposite is None else not opposite
    if op == "eq":
        return True if d.value == 0 else False if excludes_zero(d) else None
    limit = -1 if op == "lt" else 0
    if d.hi is not None and d.hi <= limit:
        return True
    return False if d.lo is not None and d.lo > limit else None


def excludes_zero(a: Interval) -> bool:
    """True when 0 is not among the values."""
    return (a.lo is not None and a.lo > 0) or (a.hi is not None and a.hi < 0)


def add(a: Interval, b: Interval) -> Interval:
    """Return the values of x + y."""
    lo = None if a.lo is None or b.lo is None else a.lo + b.lo
    return Interval(lo, None if a.hi is None or b.hi is None else a.hi + b.hi)


def subtract(a: Interval, b: Interval) -> Interval:
    """Return the values of x - y."""
    return add(a, b.scale(-1))


def multiply(a: Interval, b: Interval) -> Interval:
    """Return the values of x * y, bounded on the sides where no infinite corner takes part."""
    if a == ZERO or b == ZERO:
        return ZERO
    corners: list[int] = []
    below = above = False  # is there a corner at -inf, +inf
    for x, x_sign in ((a.lo, -1), (a.hi, 1)):
        for y, y_sign in ((b.lo, -1), (b.hi, 1)):
            if x is not None and y is not None:
                corners.append(x * y)
                continue
            sign = (x_sign if x is None else _sign(x)) * (y_sign if y is None else _sign(y))
            below, above = below or sign < 0, above or sign > 0
            if not sign:
                corners.append(0)
    lo = None if below or not corners else min(corners)
    return Interval(lo, None if above or not corners else max(corners))


def _sign(x: int) -> int:
    return (x > 0) - (x < 0)


def _largest_size(a: Interval) -> int | None:
    return None if a.lo is None or a.hi is None else max(abs(a.lo), abs(a.hi))


def absolute(a: Interval) -> Interval:
    """Return the values of abs(x)."""
    if a.lo is not None and a.lo >= 0:
        return a
    if a.hi is not None and a.hi <= 0:
        return a.scale(-1)
    return Interval(0, _largest_size(a))


def _positive(b: Interval) -> tuple[int, int | None] | None:
    """Return the bounds of a divisor that is never negative (and never 0: that is undefined)."""
    if b.lo is None or b.lo < 0 or b.hi == 0:
        return None
    return max(b.lo, 1), b.hi


def _floordiv(a: Interval, b: Interval) -> Interval:
    divisor = _positive(b)
    if divisor is None:
        flipped = _positive(b.scale(-1))
        if flipped is not None:
            return _floordiv(a.scale(-1), b.scale(-1))
        size = _largest_size(a)
        return ANY if size is None else Interval(-size, size)
    small, large = divisor
    lo = a.lo
    if lo is not None:
        far = small if lo < 0 else large
        lo = 0 if far is None else lo // far
    hi = a.hi
    if hi is not None:
        far = small if hi >= 0 else large
        hi = -1 if far is None else hi // far
    return Interval(lo, hi)


def _floormod(a: Interval, b: Interval) -> Interval:
    divisor = _positive(b)
    if divisor is None:
        low = None if b.lo is None else min(b.lo + 1, 0)
        return Interval(low, None if b.hi is None else max(b.hi - 1, 0))
    small, large = divisor
    if a.lo is not None and a.hi is not None and a.lo // small == a.hi // small:
        if small == large:
            return Interval(a.lo % small, a.hi % small)
        if a.lo // small == 0:
            return a
    hi = None if large is None else large - 1
    return Interval(0, hi if a.lo is None or a.lo < 0 else _smallest(hi, a.hi))


def _truncdiv(a: Interval, b: Interval) -> Interval:
    if a.lo is not None and a.lo >= 0 and _positive(b):
        return _floordiv(a, b)
    size = _largest_size(a)
    return ANY if size is None else Interval(-size, size)


def _truncmod(a: Interval, b: Interval) -> Interval:
    if a.lo is not None and a.lo >= 0 and _positive(b):
        return _floormod(a, b)
    most = _largest_size(b)
    limit = None if most is None else max(most - 1, 0)
    below = 0 if a.lo is not None and a.lo >= 0 else None
    above = 0 if a.hi is not None and a.hi <= 0 else None
    lo = below if below is not None else _largest(a.lo, None if limit is None else -limit)
    return Interval(lo, above if above is not None else _smallest(a.hi, limit))


def _minimum(a: Interval, b: Interval) -> Interval:
    lo = None if a.lo is None or b.lo is None else min(a.lo, b.lo)
    hi = _smallest(a.hi, b.hi)
    is_far = hi is not None and hi >= FAR and (a.hi is None or b.hi is None)
    return Interval(lo, None if is_far else hi)


def _maximum(a: Interval, b: Interval) -> Interval:
    hi = None if a.hi is None or b.hi is None else max(a.hi, b.hi)
    lo = _largest(a.lo, b.lo)
    is_far = lo is not None and lo <= -FAR and (a.lo is None or b.lo is None)
    return Interval(None if is_far else lo, hi)


def _bitand(a: Interval, b: Interval) -> Interval:
    tops = [x.hi for x in (a, b) if x.lo is not None and x.lo >= 0]
    if not tops:
        return ANY
    known = [t for t in tops if t is not None]
    return Interval(0, min(known) if known else None)


def _bitor(a: Interval, b: Interval) -> Interval:
    if a.lo is None or b.lo is None or a.lo < 0 or b.lo < 0:
        return ANY
    if a.hi is None or b.hi is None:
        return Interval(0, None)
    return Interval(0, (1 << max(a.hi, b.hi).bit_length()) - 1)


def _shift_left(a: Interval, b: Interval) -> Interval:
    if b.lo is None or b.hi is None or b.lo < 0 or b.hi > 63:
        return ANY
    return multiply(a, Interval(1 << b.lo, 1 << b.hi))


def _shift_right(a: Interval, b: Interval) -> Interval:
    if b.lo is None or b.hi is None or b.lo < 0 or b.hi > 63:
        return ANY
    return _floordiv(a, Interval(1 << b.lo, 1 << b.hi))


OF_BINARY: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    "mul": multiply,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "min": _minimum,
    "max": _maximum,
    "bitand": _bitand,
    "bitor": _bitor,
    "bitxor": _bitor,
    "shl": _shift_left,
    "shr": _shift_right,
    "and": _minimum,
    "or": _maximum,
}
"""The interval of a binary node by those of its operands."""
