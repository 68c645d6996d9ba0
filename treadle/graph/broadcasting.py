# SPDX-License-Identifier: Apache-2.0
"""Broadcasting of sizes of which only a run knows whether they are 1.

The common extent of a and b is a, unless that is 1, and then b: `select(a == 1, b, a)`. What it
needs of them, that b is 1 or equal to a where a is not 1, is checked by every run
(`stretch_rules`). Sizes hold no other selects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from treadle.expr.nodes import Expr, Select, convert, select
from treadle.graph.size_rules import SizeRule
from treadle.graph.types import Dim, broadcast_dim, known_true, normal_size, same_dim


def common_dim(a: Dim, b: Dim) -> Dim | None:
    """Return the extent of two broadcast dimensions, None where they certainly do not fit."""
    if same_dim(a, b) or (isinstance(a, int) and isinstance(b, int)):
        return broadcast_dim(a, b)
    parts = list(dict.fromkeys((*_parts(a), *_parts(b))))
    numbers = {p for p in parts if isinstance(p, int) and p != 1}
    if numbers:
        return numbers.pop() if len(numbers) == 1 else None
    return _first_not_one([p for p in parts if not isinstance(p, int)])


def common_shape(*shapes: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Return the shape of broadcasting `shapes` together, None where they certainly do not fit."""
    found: list[Dim] = []
    for extents in zip_longest(*(reversed(s) for s in shapes), fillvalue=1):
        merged: Dim | None = extents[0]
        for d in extents[1:]:
            merged = None if merged is None else common_dim(merged, d)
        if merged is None:
            return None
        found.insert(0, merged)
    return tuple(found)


def taken_dim(first: Dim, second: Dim) -> Dim:
    """Return `first`, or `second` where `first` is 1, whatever else is known of them."""
    return _first_not_one([first, second])


def _first_not_one(parts: Sequence[Dim]) -> Dim:
    """Return the first extent that is not 1; 1 where all are."""
    found = parts[-1]
    for part in reversed(parts[:-1]):
        found = normal_size(select(convert(part) == 1, found, part))
    return found


def _parts(dim: Dim) -> tuple[Dim, ...]:
    """Return the extents of which `dim` is the first that is not 1."""
    parts: list[Dim] = []
    while isinstance(dim, Select):
        parts.append(dim.other)
        dim = dim.then
    return (*parts, dim)


def is_literal_one(dim: Dim) -> bool:
    """True for an extent that is known to be 1."""
    return isinstance(dim, int) and dim == 1


def stretches(shape: Sequence[Dim], whole: Sequence[Dim]) -> list[Expr]:
    """Return the conditions under which nothing of `shape` is repeated in `whole`.

    They are about the extents of which only a run knows whether they are 1.
    """
    pairs = zip(shape, whole[len(whole) - len(shape) :], strict=True)
    return [convert(d) == w for d, w in pairs if _may_stretch(d, w)]


def _may_stretch(extent: Dim, whole: Dim) -> bool:
    if isinstance(extent, int) or same_dim(extent, whole):
        return False
    return known_true(convert(extent) == 1) is not False


def stretch_rules(shape: Sequence[Dim], whole: Sequence[Dim]) -> Iterator[SizeRule]:
    """Yield the rules that every extent of `shape` is 1 or that of `whole` it meets."""
    for d, w in zip(shape, whole[len(whole) - len(shape) :], strict=True):
        own = _parts(d)
        if not is_literal_one(d) and own != _parts(w)[: len(own)]:
            yield SizeRule("equal", taken_dim(d, w), w)
