# SPDX-License-Identifier: Apache-2.0
"""The open choices of a sketch: tile factors of axes and annotations, each as a table of values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Values = tuple[int, ...]

_MOST_WASTE = 8
"""A last tile may leave at most the 8th part of an axis empty."""
_FUSED = 2 / 3
"""The share of the candidates drawn in which stages are in loops of others wherever they may be."""
_MOST_TILES = 4096
"""Factors of one axis beyond which only every second, third, ... one is in the space."""


@dataclass(frozen=True, eq=False)
class Slot:
    """One open choice of a sketch: `values` are what it may be, all tuples of one length.

    A choice that is no list of tile factors has tuples of one number. `usual` is the place of the
    value that is taken more often than others when candidates are drawn; -1: all alike.
    """

    key: str
    values: tuple[Values, ...]
    usual: int = -1
    is_tile: bool = False
    is_place: bool = False
    """True for the loop in which a stage is computed; value 0: by itself."""

    @cached_property
    def table(self) -> Ints:
        """The values as an array of rows."""
        return np.array(self.values, dtype=np.int64).reshape(len(self.values), -1)

    @cached_property
    def places(self) -> dict[Values, int]:
        """The place of every value."""
        return {value: k for k, value in enumerate(self.values)}

    @cached_property
    def _near(self) -> dict[int, list[int]]:
        return {}

    def near(self, place: int) -> list[int]:
        """Return the places of values near one: a factor moved to another level of tiles."""
        if place not in self._near:
            found = {self.places[v] for v in _neighbours(self.values[place]) if v in self.places}
            self._near[place] = sorted(found)
        return self._near[place]

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """Return the places of `count` values, drawn at random."""
        drawn = random.integers(len(self.values), size=count)
        if self.usual >= 0:
            drawn = np.where(random.random(count) < 0.6, self.usual, drawn)
        return drawn


def drawn_rows(slots: Sequence[Slot], count: int, random: np.random.Generator) -> Ints:
    """Return places of values for `count` candidates: int64[count, slots].

    In two thirds of them all stages that may be in loops of others are, where else it would be few.
    """
    if not slots:
        return np.zeros((count, 0), np.int64)
    rows = np.stack([s.draw(count, random) for s in slots], axis=1)
    is_fused = random.random(count) < _FUSED
    for k, slot in enumerate(slots):
        if slot.is_place:
            within = random.integers(1, len(slot.values), size=count)
            rows[:, k] = np.where(is_fused, within, rows[:, k])
    return rows


def moved_rows(slots: Sequence[Slot], rows: Ints, random: np.random.Generator) -> Ints:
    """Return rows in each of which one or two values are others, of tiles mostly near ones."""
    made = rows.copy()
    which = random.integers(len(slots), size=len(rows))
    for times in (1.0, 0.3 if len(slots) > 1 else 0.0):
        is_near, anywhere = random.random(len(rows)) < 0.7, random.random(len(rows))
        for i in np.flatnonzero(random.random(len(rows)) < times).tolist():
            slot, place = slots[which[i]], int(made[i, which[i]])
            near = slot.near(place) if slot.is_tile and is_near[i] else []
            if near:
                made[i, which[i]] = near[int(anywhere[i] * len(near))]
            elif len(slot.values) > 1:
                other = int(anywhere[i] * (len(slot.values) - 1))
                made[i, which[i]] = other + (other >= place)
        which = (which + random.integers(1, max(2, len(slots)), size=len(rows))) % len(slots)
    return made


def options(key: str, values: Iterable[int], usual: int = -1) -> Slot:
    """Return a choice among numbers, of which `usual` is the place of the most likely one."""
    return Slot(key, tuple((v,) for v in values), usual)


def places(key: str, values: Iterable[int]) -> Slot:
    """Return a choice among loops in which a stage is computed."""
    return Slot(key, tuple((v,) for v in values), is_place=True)


def divisors(n: int) -> list[int]:
    """Return the divisors of a positive number, the least first."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def register_sizes(extent: int, most: int, unit: int) -> list[int]:
    """Return how long the innermost tile of an axis may be: multiples of `unit` up to `most`.

    The whole axis is one, where it is short; a tile that leaves much of the last one empty is none.
    """
    if extent <= unit:
        return [extent]
    whole = -(-extent // unit) * unit
    sizes = range(unit, min(most, whole) + 1, unit)
    return [s for s in sizes if s in (unit, whole) or -extent % s * _MOST_WASTE <= extent]


def spatial_tiles(extent: int, levels: int, most: int, unit: int = 1) -> tuple[Values, ...]:
    """Return the factors (outer, ..., inner) of an axis besides the outermost, which follows.

    The innermost need not divide the axis, the others divide the number of tiles that makes.
    """
    found: list[Values] = []
    for inner in register_sizes(extent, most, unit):
        chains: list[tuple[Values, int]] = [((), -(-extent // inner))]
        for _ in range(levels - 1):
            chains = [((d, *c), left // d) for c, left in chains for d in divisors(left)]
        found += [(*c, inner) for c, _ in chains]
    step = -(-len(found) // _MOST_TILES)
    return tuple(found[::step])


def even_tiles(extent: int, levels: int) -> tuple[Values, ...]:
    """Return the factors of an axis besides the outermost, all of which divide it."""
    if levels == 0:
        return ((),)
    chains: list[tuple[Values, int]] = [((), extent)]
    for _ in range(levels):
        chains = [((d, *c), left // d) for c, left in chains for d in divisors(left)]
    return tuple(c for c, _ in chains)


def size_of(slots: Sequence[Slot]) -> int:
    """Return the number of ways to choose from all slots."""
    count = 1
    for slot in slots:
        count *= len(slot.values)
    return count


def _neighbours(value: Values) -> list[Values]:
    """Return a value with one prime factor of one level moved to another or out of the tile."""
    found: list[Values] = []
    for k, factor in enumerate(value):
        for p in _primes(factor):
            less = (*value[:k], factor // p, *value[k + 1 :])
            found.append(less)
            found += [(*less[:j], less[j] * p, *less[j + 1 :]) for j in range(len(value)) if j != k]
    for k in range(len(value)):
        found += [(*value[:k], value[k] * p, *value[k + 1 :]) for p in (2, 3, 5, 7)]
    found += [(*value[:-1], value[-1] + step) for step in (-1, 1)]
    return found


def _primes(n: int) -> list[int]:
    found = []
    for p in range(2, n + 1):
        if p * p > n:
            break
        if n % p == 0:
            found.append(p)
            while n % p == 0:
                n //= p
    return [*found, n] if n > 1 else found
