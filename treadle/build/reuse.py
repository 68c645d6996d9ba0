# SPDX-License-Identifier: Apache-2.0
"""How soon memory of the arena is written again: not while several caches still hold it.

What several cores have read is in the caches of all of them. A core that writes it again has it
taken from every other cache first, and cores without a common cache (on two core complexes or two
sockets) wait long for that: a line costs 26 ns on Zen 4, where one that nobody else holds costs 2,
and no prefetch for writing hides it. After as many other bytes as a cache holds, it has left the
cache.

A dense arena is written again at once. Where the weights are so large that what the arena may grow
by next to them lets lines leave in between, values are placed anew, in the order of the steps:
each where the fewest of its bytes are still in a cache, at the lowest such place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from treadle.limits import ARENA_CELLS, ARENA_GROWTH
from treadle.loop.nodes import ALIGNMENT
from treadle.lower.plan_workspace import gaps
from treadle.target.base import Target

if TYPE_CHECKING:
    from treadle.build.memory_plan import Step, Value

_WORTHWHILE = 0.5
"""Up to which part of what a dense arena writes while caches hold it another arena is better."""
_NEVER = -np.inf
"""When memory was touched that no step has touched."""


@dataclass(frozen=True, slots=True)
class Caches:
    """The last level of cache where not all cores share it: `count` caches of `nbytes` each.

    An arena of `near_bytes` or less stays in the caches that single cores have.
    """

    nbytes: int
    count: int
    near_bytes: int


def caches_of(target: Target) -> Caches | None:
    """Return the caches that lines of a target's arena are in; None where the cores share the last.

    Where a chip has several, any two cores count as apart: those of a virtual machine move.
    """
    last = target.machine.caches[-1]
    least = min(target.cores, target.machine.last_caches)
    count = max(least, -(-target.cores // last.shared_by))
    if target.family == "gpu" or count == 1:
        return None
    return Caches(last.bytes, count, target.l2_bytes)


@dataclass(frozen=True, slots=True)
class _Access:
    """What a step touches: bytes of weights and values outside, and owners of arena memory.

    Owners are told with whether the step writes them.
    """

    outside: int
    owners: tuple[tuple[Value, bool], ...]


_Place: TypeAlias = Callable[["Value"], int | None]
"""Where a value lies, in cells; None where there is no room for it."""


@dataclass(slots=True)
class _Arena:
    """Cells of the arena, and when each was last touched, in bytes that passed through a cache."""

    cell: int
    count: int
    caches: Caches
    clock: float = 0.0
    touched: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.touched = np.full(self.count, _NEVER)

    def cells(self, nbytes: int) -> int:
        """Return how many cells so many bytes take."""
        return -(-max(nbytes, 1) // self.cell)

    def passes(self, nbytes: int) -> None:
        """Let bytes pass that the cores read or write, each its part of them."""
        self.clock += nbytes / self.caches.count

    def held(self) -> np.ndarray:
        """Return which cells are in a cache still."""
        return self.clock - self.touched < self.caches.nbytes

    def rewritten(self, accesses: Sequence[_Access], place: _Place) -> int | None:
        """Return the bytes that all steps together write while they are in a cache.

        None where a value finds no place.
        """
        cells = 0
        for access in accesses:
            self.passes(access.outside)
            for owner, is_written in access.owners:
                low = place(owner)
                if low is None:
                    return None
                part = slice(low, low + self.cells(owner.nbytes))
                if is_written:
                    cells += int(np.count_nonzero(self.held()[part]))
                self.passes(owner.nbytes)
                self.touched[part] = self.clock
        return cells * self.cell


@dataclass(slots=True)
class _Spread:
    """Places of values, found in the order of the steps, and which of them are `alive`."""

    arena: _Arena
    places: dict[Value, int] = field(default_factory=dict)
    alive: list[Value] = field(default_factory=list)

    def place(self, owner: Value) -> int | None:
        """Return the place of a value, found when it is first asked for."""
        if owner in self.places:
            return self.places[owner]
        size = self.arena.cells(owner.nbytes)
        held = np.concatenate(([0], np.cumsum(self.arena.held())))
        best: tuple[int, int] | None = None
        for low, high in self._gaps(owner, size):
            inside = held[low + size : high + 1] - held[low : high + 1 - size]
            first = int(inside.argmin())
            found = int(inside[first]), low + first
            best = found if best is None else min(best, found)
        if best is None:
            return None
        self.places[owner] = best[1]
        self.alive.append(owner)
        return best[1]

    def _gaps(self, owner: Value, size: int) -> list[tuple[int, int]]:
        """Return where `size` cells are free during the life of a value that begins now."""
        self.alive = [other for other in self.alive if other.last >= owner.first]
        lows = ((self.places[other], self.arena.cells(other.nbytes)) for other in self.alive)
        taken = sorted((low, low + cells) for low, cells in lows)
        count = self.arena.count
        found = [(low, count if high is None else high) for low, high in gaps(taken, size)]
        return [(low, high) for low, high in found if high - low >= size]

    @property
    def nbytes(self) -> int:
        """The bytes that all places take together."""
        cells = (low + self.arena.cells(owner.nbytes) for owner, low in self.places.items())
        return max(cells) * self.arena.cell


def spread(
    steps: Sequence[Step], homes: Mapping[Value, Value], arena_bytes: int, caches: Caches
) -> int:
    """Place the values of a dense arena anew where that is worthwhile; return its bytes.

    `homes` are the values in whose memory a step writes its result.
    """
    weights = {v: v.nbytes for step in steps for v in step.args if v.kind == "constant"}
    room = int(ARENA_GROWTH * sum(weights.values()))
    if arena_bytes <= caches.near_bytes or not room:
        return arena_bytes
    cell = -(-(arena_bytes + room) // (ARENA_CELLS * ALIGNMENT)) * ALIGNMENT
    count = (arena_bytes + room) // cell
    accesses = [_access(step, homes) for step in steps]
    dense = _Arena(cell, count + 1, caches).rewritten(accesses, lambda v: v.offset // cell)
    found = _Spread(_Arena(cell, count, caches))
    rewritten = found.arena.rewritten(accesses, found.place)
    if dense is None or rewritten is None or rewritten > _WORTHWHILE * dense:
        return arena_bytes
    for owner, low in found.places.items():
        owner.offset = low * cell
    return found.nbytes


def _access(step: Step, homes: Mapping[Value, Value]) -> _Access:
    written = {v.place()[0] for v in step.outputs} | {step.workspace}
    outside = 0
    owners: dict[Value, bool] = {}
    for value in step.args:
        owner, _ = value.place()
        if owner.kind in ("arena", "workspace"):
            home = homes.get(owner, owner)
            owners[home] = owners.get(home, False) or owner in written
        else:
            outside += value.nbytes
    return _Access(outside, tuple(owners.items()))
