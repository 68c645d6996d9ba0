# SPDX-License-Identifier: Apache-2.0
"""What the loops of tiles move between the levels of the memory, many candidates at once.

What a tile reads again is counted as by Ansor's features: the footprint of the largest tile that
stays in a cache, as often as that is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treadle.cost.loops import room_in
from treadle.target.base import Target
from treadle.tune.sketch_nest import Floats64, Nest, Read
from treadle.tune.sketch_slots import Ints

WRITTEN = 2
"""How often a line that is written passes a cache: it is read first."""
_LINES_AHEAD = 2
"""Lines of memory that are fetched in vain, or waited for, where a run of them ends."""

Bools = NDArray[np.bool_]


@dataclass(eq=False)
class _Loops:
    """The loops of all candidates, outermost first; `inside[k]` is what the first k are around."""

    inside: Floats64
    """[loops + 1, axes, candidates]"""
    trips: list[Floats64]
    axes: list[Ints]
    levels: list[int]
    """After how many loops each level of the structure begins, and the last one ends."""


@dataclass(eq=False)
class Traffic:
    """The loops around the operands of all candidates of a plan, and the caches they go through.

    `text` is the structure of the levels ("SSRSRS"), `tiles` what stands inside of the first of
    them ([levels + 1, axes, candidates]), `order` the data axes of a level from outermost to
    innermost ([axes, candidates]). `around` is what is needed of the plan in each of the loops
    around it (see `Places.around`), `times` how often it runs. `packed` are the operands that may
    be copied for a task, and which candidates copy them.
    """

    nest: Nest
    text: str
    tiles: Floats64
    order: Ints
    around: Sequence[Floats64]
    times: Floats64
    packed: Mapping[int, Bools]
    target: Target

    @property
    def count(self) -> int:
        """The number of candidates."""
        return int(self.tiles.shape[-1])

    def passed(self) -> tuple[Floats64, Floats64]:
        """Return bytes that pass each level of cache, and those that tiles of each level read.

        They are [3, candidates] between levels 1, 2, 3 and memory, and [levels + 1, candidates].
        """
        walk, target = self._walk(), self.target
        prints = [self._held(r, walk.inside) for r in self.nest.reads]
        shape = (len(walk.inside), self.count)
        footprints: Floats64 = sum((held for held, _ in prints), np.zeros(shape))
        size = np.prod(walk.inside[:, : self.nest.data], axis=1) * self.nest.itemsize
        found = np.zeros((3, self.count))
        near = sum((self._taken(r, walk.inside) for r in self.nest.reads), np.zeros(shape))
        fits = [
            held + size <= room_in(cache)
            for held, cache in (
                (near, target.l1_bytes),
                (footprints, target.l2_bytes),
                (footprints, target.l3_bytes),
            )
        ]
        for read, (held, ends) in zip(self.nest.reads, prints, strict=True):
            sweeps = self._sweeps(read, walk)
            for c, stays in enumerate(fits):
                around = np.maximum(np.argmax(stays, axis=0) - 1, 0)
                moved = (held if c == 0 else held + ends)[:-1] * sweeps
                own = np.take_along_axis(moved, around[None, :], axis=0)[0]
                found[c] += np.where(stays[0], 0.0, own)
        found += np.where(np.stack([stays[0] for stays in fits]), 0.0, WRITTEN * size[0])
        return found * self._again(), footprints[walk.levels]

    def packing(self) -> tuple[Floats64, Floats64]:
        """Return the cycles to copy operands, and the bytes of the largest copy of a task."""
        cycles, most = np.zeros(self.count), np.zeros(self.count)
        tasks = np.prod(np.ceil(self.tiles[0] / self.tiles[1]), axis=0)
        for read in (r for r in self.nest.reads if r.source in self.packed):
            size = read.elements(self.tiles[1]) * read.itemsize
            size = np.where(self.packed[read.source], size, 0.0)
            cycles += 2 * self.times * tasks * size / self.target.machine.caches[2].bytes_per_cycle
            most = np.maximum(most, size)
        return cycles, most

    def _walk(self) -> _Loops:
        """Return all loops from outermost to innermost, and what is inside of each.

        Those of the stages that the plan is in come first.
        """
        every = np.arange(self.nest.data, len(self.nest.extents))
        terms = np.repeat(every[:, None], self.count, axis=1)
        data = np.repeat(np.arange(self.nest.data)[:, None], self.count, axis=1)
        steps = [(data, tile) for tile in self.around[1:]]
        steps += [(self.order if kind == "S" else terms, tile)
                  for kind, tile in zip(self.text, self.tiles[1:], strict=True)]  # fmt: skip
        each = np.arange(self.count)
        inside, trips, axes, levels = [self.around[0]], [], [], [0]
        for order, after in steps:
            for axis in order if np.any(inside[-1] > after) else ():
                part = after[axis, each]
                count = np.ceil(inside[-1][axis, each] / part)
                if np.all(count <= 1):
                    continue
                tile = inside[-1].copy()
                tile[axis, each] = part
                inside.append(tile)
                trips.append(count)
                axes.append(axis)
            levels.append(len(inside) - 1)
        return _Loops(np.stack(inside), trips, axes, levels[len(self.around) - 1 :])

    def _again(self) -> Floats64:
        """Return how often what the plan needs in all is computed."""
        trips = np.ones(self.count)
        for outer, inner in pairwise(self.around):
            trips *= np.prod(np.ceil(outer / inner)[: self.nest.data], axis=0)
        return np.maximum(1.0, self.times / trips)

    def _held(self, read: Read, inside: Floats64) -> tuple[Floats64, Floats64]:
        """Return the bytes tiles hold of a read, and those lost where runs of memory end."""
        line, shape = self.target.machine.line_bytes, (len(inside), self.count)
        tiles = inside.transpose(1, 0, 2).reshape(inside.shape[1], -1)
        held, runs = (part.reshape(shape) for part in read.lines(tiles, line))
        ends = np.where(runs > 1, runs * (_LINES_AHEAD * line), 0.0)
        if read.source not in self.packed:
            return held, ends
        dense = (read.elements(tiles) * read.itemsize).reshape(shape)
        is_packed = self.packed[read.source][None, :]
        return np.where(is_packed, dense, held), np.where(is_packed, 0.0, ends)

    def _taken(self, read: Read, inside: Floats64) -> Floats64:
        """Return the bytes of the first cache that tiles take for a read."""
        tiles = inside.transpose(1, 0, 2).reshape(inside.shape[1], -1)
        machine = self.target.machine
        taken = read.taken(tiles, machine.page_bytes).reshape(len(inside), self.count)
        if read.source not in self.packed:
            return taken
        dense = (read.elements(tiles) * read.itemsize).reshape(taken.shape)
        return np.where(self.packed[read.source][None, :], dense, taken)

    def _sweeps(self, read: Read, walk: _Loops) -> Floats64:
        """Return how often loops run over what they read, a row for each loop.

        What is inside of the loop stays in a cache, what the loop runs over does not: so it is
        loaded each time that an outer loop comes back, except that loops which do not use it keep
        it as long as none between does.
        """
        uses = np.array([read.uses(a) for a in range(len(self.nest.extents))])
        found = np.ones((max(1, len(walk.trips)), self.count))
        for k in range(len(walk.trips)):
            started = uses[walk.axes[k]] & (walk.trips[k] > 1)
            for outer in reversed(range(k)):
                started |= uses[walk.axes[outer]] & (walk.trips[outer] > 1)
                found[k] = np.where(started, found[k] * walk.trips[outer], found[k])
        return found
