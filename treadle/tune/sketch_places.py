# SPDX-License-Identifier: Apache-2.0
"""In which loops the stages of candidates are computed, and how much of them there: many at once.

A plan is at root, or in a loop of another plan, its host: in one that all its readers are in. From
the loops of the host follows what is needed of the stage in one iteration, its region.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from treadle.tune.sketch_nest import Floats64, Nest
from treadle.tune.sketch_plans import BELOW, Blocks, Plan, Simple, Sketch, Tiled
from treadle.tune.sketch_slots import Ints

Values = Mapping[str, Ints]
"""By the key of a slot: the values of all candidates, as rows."""


def choice(values: Values, stage: int, name: str, default: int, count: int) -> Ints:
    """Return a choice of all candidates: int64[count]."""
    found = values.get(f"{stage}.{name}")
    return np.full(count, default) if found is None else found[:, 0]


def distinct(numbers: Ints) -> list[int]:
    """Return the different ones of small numbers from -1."""
    found: list[int] = (np.flatnonzero(np.bincount(numbers + 1)) - 1).tolist()
    return found


class Places:
    """Where all plans of a sketch are computed, by the order of its plans.

    `host` is a plan, or -1 for root; `place` is which of the loops of the host, from 1; `times` how
    often the plan runs. `regions` are the extents of its axes there, [axes, candidates].
    """

    def __init__(self, sketch: Sketch, values: Values, count: int) -> None:
        self.sketch, self.values, self.count = sketch, values, count
        self.nests = [_nest(sketch, p) for p in sketch.plans]
        self.host: list[Ints] = []
        self.place: list[Ints] = []
        self.times: list[Floats64] = []
        self.regions: list[Floats64] = []
        self.home: list[Ints] = []
        self._inside: list[dict[int, Ints]] = []
        self._tiles: list[list[Floats64]] = []
        self._trips: list[list[Floats64]] = []
        self._covers: dict[tuple[int, int, int], Floats64] = {}
        for k in range(len(sketch.plans)):
            self._add(k)

    # -- what is asked of it -------------------------------------------------------------------

    def tiles(self, k: int) -> list[Floats64]:
        """Return what is inside of each loop of a plan that others may be in, all of it first."""
        return self._tiles[k]

    def is_host(self, k: int) -> Floats64:
        """Return 1.0 where something is computed in a loop of a plan."""
        found = np.zeros(self.count, bool)
        for host in self.host[k + 1 :]:
            found |= host == k
        return found.astype(float)

    def around(self, k: int) -> list[Floats64]:
        """Return what is needed of a plan in all, and in each of the loops of the host around it.

        The last is the region; loops that it is not in are left out as repetitions.
        """
        full = self._full(k)
        found = [full, full.copy(), full.copy(), self.regions[k]]
        for h in distinct(self.host[k]):
            if h < 0:
                continue
            is_own = self.host[k] == h
            for level in (1, 2):
                at = np.minimum(level, self.place[k])
                for j in distinct(at[is_own]):
                    here = is_own & (at == j)
                    found[level] = np.where(here, self._cover(k, h, j), found[level])
        found[1] = np.maximum(found[1], found[3])
        found[2] = np.minimum(np.maximum(found[2], found[3]), found[1])
        return found

    # -- one plan after the other, users first -------------------------------------------------

    def _add(self, k: int) -> None:
        plan = self.sketch.plans[k]
        host, place, inside = self._located(k)
        self.host.append(host)
        self.place.append(place)
        self._inside.append(inside)
        region, times, home = self._full(k), np.ones(self.count), np.full(self.count, k)
        for h in distinct(host):
            if h < 0:
                continue
            is_own = host == h
            home = np.where(is_own, self.home[h], home)
            for j in distinct(place[is_own]):
                here = is_own & (place == j)
                region = np.where(here, self._cover(k, h, j), region)
                times = np.where(here, self.times[h] * self._trips[h][j], times)
        self.regions.append(region)
        self.times.append(times)
        self.home.append(home)
        tiles = [region, *own_tiles(plan, self.nests[k], self.values, region)]
        trips = [np.ones(self.count)]
        data = self.nests[k].data
        for outer, inner in pairwise(tiles):
            trips.append(trips[-1] * np.prod(np.ceil(outer[:data] / inner[:data]), axis=0))
        self._tiles.append(tiles)
        self._trips.append(trips)

    def _located(self, k: int) -> tuple[Ints, Ints, dict[int, Ints]]:
        """Return host and place of a plan, and in which loops of which other plans it is."""
        plan, users = self.sketch.plans[k], self.sketch.users[k]
        host, limit = np.full(self.count, -1), np.zeros(self.count, np.int64)
        wanted = choice(self.values, plan.stages[0], "inside", 0, self.count)
        if not users or -1 in users or not wanted.any():
            return host, limit, {}
        for h in range(k):
            within = np.full(self.count, np.iinfo(np.int64).max)
            for u in users:
                own = self._depth(h) if u == h else self._inside[u].get(h, np.zeros_like(limit))
                within = np.minimum(within, own)
            host = np.where(within > 0, h, host)
            limit = np.where(within > 0, within, limit)
        is_outer = wanted > BELOW
        outer, at = self._hosts_of(host)
        host = np.where(is_outer, outer, host)
        limit = np.where(is_outer, at, limit)
        host = np.where(wanted > 0, host, -1)
        place = np.minimum(np.where(is_outer, wanted - BELOW, wanted), limit)
        place = np.where(host >= 0, place, 0)
        return host, place, self._insides(host, place)

    def _depth(self, h: int) -> Ints:
        """Return how many loops a plan has that others may be in."""
        plan = self.sketch.plans[h]
        if not isinstance(plan, Simple):
            return np.full(self.count, plan.depth)
        if plan.is_reduction:
            return np.full(self.count, int(bool(plan.extents)))
        square = choice(self.values, plan.stage, "square", 0, self.count)
        rows = choice(self.values, plan.stage, "rows", plan.rows[0], self.count)
        return ((rows > 0) | (square > 0)).astype(np.int64)

    def _hosts_of(self, which: Ints) -> tuple[Ints, Ints]:
        """Return host and place of the plan that `which` names for each candidate."""
        host, place = np.full(self.count, -1), np.zeros(self.count, np.int64)
        for h in distinct(which):
            if h >= 0:
                host = np.where(which == h, self.host[h], host)
                place = np.where(which == h, self.place[h], place)
        return host, place

    def _insides(self, host: Ints, place: Ints) -> dict[int, Ints]:
        found: dict[int, Ints] = {}
        for h in distinct(host):
            if h < 0:
                continue
            is_own = host == h
            zeros = np.zeros(self.count, np.int64)
            found[h] = np.where(is_own, place, found.get(h, zeros))
            for g, at in self._inside[h].items():
                found[g] = np.where(is_own, at, found.get(g, zeros))
        return found

    # -- regions -------------------------------------------------------------------------------

    def _full(self, k: int) -> Floats64:
        extents = np.array(self.nests[k].extents, dtype=np.float64)
        return np.repeat(extents[:, None], self.count, axis=1)

    def _cover(self, k: int, h: int, j: int) -> Floats64:
        """Return what is needed of plan `k` in an iteration of loop `j` of its host `h`.

        Of a plan that is in no loop of the host: all.
        """
        if k == h:
            return self._tiles[h][j]
        if k < h:
            return self._full(k)
        key = (k, h, j)
        if key not in self._covers:
            self._covers[key] = self._needed(k, h, j)
        return self._covers[key]

    def _needed(self, k: int, h: int, j: int) -> Floats64:
        plan = self.sketch.plans[k]
        if -1 in self.sketch.users[k]:
            return self._full(k)
        reach: Floats64 | None = None
        for u in self.sketch.users[k]:
            cover = self._cover(u, h, j)
            for nest, tile in self._reading(u, cover):
                for read in nest.reads:
                    if read.source == plan.owner:
                        own = read.reach(tile)
                        reach = own if reach is None else np.maximum(reach, own)
        return self._full(k) if reach is None else _axes_of(plan, self.nests[k], reach)

    def _reading(self, u: int, cover: Floats64) -> list[tuple[Nest, Floats64]]:
        """Return the nests of the stages of a plan, and how much of each is computed."""
        plan = self.sketch.plans[u]
        found = [(self.nests[u], cover)]
        if isinstance(plan, Tiled) and plan.result in self.sketch.nests:
            nest = self.sketch.nests[plan.result]
            tile = np.ones((len(nest.extents), self.count))
            for axis, place in enumerate(plan.places):
                if place >= 0:
                    tile[place] = cover[axis]
            found.append((nest, tile))
        return found


def _nest(sketch: Sketch, plan: Plan) -> Nest:
    if isinstance(plan, Blocks):
        return plan.parts.nest
    return plan.nest if isinstance(plan, Tiled) else sketch.nests[plan.stage]


def _axes_of(plan: Plan, nest: Nest, reach: Floats64) -> Floats64:
    """Return what is computed of each axis of a plan for so much of its result."""
    extents = np.array(nest.extents, dtype=np.float64)
    found = np.repeat(extents[:, None], reach.shape[1], axis=1)
    if isinstance(plan, Blocks):
        for k, digit in enumerate(plan.digits):
            found[k] = np.minimum(np.ceil(reach[digit.axis] / digit.unit), digit.extent)
    elif isinstance(plan, Tiled):
        for axis, place in enumerate(plan.places):
            if place >= 0:
                found[axis] = np.minimum(reach[place], extents[axis])
    else:
        found[: nest.data] = np.minimum(reach, extents[: nest.data, None])
    return found


def own_tiles(plan: Plan, nest: Nest, values: Values, region: Floats64) -> list[Floats64]:
    """Return what is inside of the loops of a plan that others may be in, the outermost first."""
    if isinstance(plan, Blocks):
        return _of_blocks(plan, values, region)
    tile = region.copy()
    if isinstance(plan, Tiled):
        for axis in plan.tiled_axes:
            factors = values.get(plan.tile_key(axis))
            if factors is not None:
                tile[axis] = np.minimum(np.prod(factors, axis=1), region[axis])
    elif plan.is_reduction:
        tile[: nest.data] = 1.0
    else:
        count = region.shape[1]
        rows = choice(values, plan.stage, "rows", plan.rows[0], count)
        square = choice(values, plan.stage, "square", 0, count)
        for axis in range(nest.data):
            is_row = (axis < rows) & (square == 0) | (square > 0) & (axis < nest.data - 1)
            tile[axis] = np.where(is_row, 1.0, tile[axis])
            if axis == plan.square:
                tile[axis] = np.where(square > 0, np.minimum(square, region[axis]), tile[axis])
    return [tile]


def _of_blocks(plan: Blocks, values: Values, region: Floats64) -> list[Floats64]:
    found = [region.copy() for _ in range(plan.depth)]
    for k in plan.tiled:
        factors = values[plan.tile_key(k)]
        outer = np.minimum(np.prod(factors, axis=1), region[k])
        found[0][k] = outer
        found[1][k] = np.minimum(factors[:, -1], outer)
        found[2][k] = 1.0
    return found


def rows_of(sketch: Sketch, choices: Mapping[str, tuple[int, ...]]) -> Values:
    """Return the values of one candidate as rows, what is fixed included."""
    every = {**sketch.fixed, **choices}
    return {key: np.array([value], dtype=np.int64) for key, value in every.items()}


def sizes_of(region: Floats64) -> tuple[int, ...]:
    """Return the region of the one candidate as numbers."""
    return tuple(int(n) for n in region[:, 0])
