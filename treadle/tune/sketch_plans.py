# SPDX-License-Identifier: Apache-2.0
"""What a sketch does with each stage: a plain loop nest, or tiles in several levels with reuse.

A plan says which choices are open (`slots`); `sketch_steps` makes schedule steps of a plan and
values for them, `sketch_features` numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from treadle.target.base import Target
from treadle.te.operations import IterVar
from treadle.te.schedule import Schedule
from treadle.te.stage import Stage
from treadle.te.steps import Step
from treadle.tune.sketch_digits import Digit, Digits
from treadle.tune.sketch_nest import Nest, Read
from treadle.tune.sketch_slots import Ints, Slot, even_tiles, options, places, spatial_tiles

CPU_REUSE = "SSRSRS"
"""Levels of tiles where operands are read again: two of data loops in the stage that stores, the
first of them shared by threads; then, around accumulators, reductions and data loops in turn."""
CPU_STREAM = "SRS"
"""Levels of tiles where everything is read once."""
MOST_STATEMENTS = 1024
"""Vectors of multiply-adds that may stand in the code of one kernel, written out."""

MOST_CODE = 2048
"""Vectors of arithmetic that may stand in the code of all stages together: about what fits the
cache of instructions, 8 to 16 bytes each. Beyond, compilers take long, too."""

MOST_UNROLLED = 192
"""Vectors of multiply-adds of a register tile, times the terms that are written out with it: of
more the compiler makes loads that it has no registers for."""

MOST_ROWS = 32
"""The longest innermost tile of an axis that is not the vectorised one."""
MOST_VECTORS = 8
"""The longest innermost tile of the vectorised axis, in vectors."""

MOST_WRITTEN = 64
"""Vectors of a stage without reduction that are written out, beyond those that have to be."""

BELOW = 3
"""A stage in the loops of what reads it: 1, 2, 3, the outermost to the innermost; and beyond this
number in those of the stage in which its readers are: 4, 5, 6."""

Choices = Mapping[str, tuple[int, ...]]
"""The values of a candidate by the key of the slot."""

Place = tuple[Stage, IterVar]
"""A loop in which others are computed."""


@dataclass(frozen=True, eq=False)
class Levels:
    """A structure such as "SSRSRS" taken apart."""

    text: str

    @cached_property
    def spatial(self) -> int:
        """How many levels of data loops there are."""
        return self.text.count("S")

    @cached_property
    def reduction(self) -> int:
        """How many levels of reduction loops there are."""
        return self.text.count("R")

    @cached_property
    def outer(self) -> int:
        """How many levels of data loops stand before the first reduction."""
        return len(self.text) - len(self.text.lstrip("S"))

    def inside(self, at: int) -> str:
        """Return the levels around the accumulators, computed in level `at` of the data loops."""
        return self.text[at + 1 :]


class _OneStage:
    """What plans of a single stage have in common."""

    stage: int

    @property
    def owner(self) -> int:
        """The stage that has the outermost loops."""
        return self.stage

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages it schedules."""
        return (self.stage,)


@dataclass(frozen=True, eq=False)
class Simple(_OneStage):
    """A stage by itself: leading loops are tasks for the threads, the last one is vectorised."""

    stage: int
    extents: tuple[int, ...]
    is_reduction: bool
    joint: int
    """How many of the last axes can be one loop."""
    square: int
    """The axis along which reads are neighbours, if that is not the last; -1: none."""
    square_size: int
    lanes: int
    insides: tuple[int, ...] = ()
    """The loops of others in which it may be computed, see `BELOW`; 0: none."""
    depth = 1
    """How many of its loops others may be computed in."""

    @property
    def rows(self) -> tuple[int, ...]:
        """How many leading axes may be the loop over tasks; 0: all axes are one loop."""
        rank = len(self.extents)
        return tuple(range(0 if self.joint == rank else 1, min(rank, 4))) or (0,)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Its open choices."""
        key, rank = f"{self.stage}", len(self.extents)
        found = [options(f"{key}.parallel", (1, 0), 0)] if rank else []
        if self.insides:
            found.append(places(f"{key}.inside", self.insides))
        if self.is_reduction or not rank:
            return tuple(found)
        if len(self.rows) > 1:
            found.append(options(f"{key}.rows", self.rows))
        lengths = [self.lanes, 2 * self.lanes, 4 * self.lanes, self.lanes // 2, 0]
        found.append(options(f"{key}.lanes", dict.fromkeys(lengths), 0))
        if self.square >= 0:
            sizes = [n for n in (16, 8, 4) if n <= self.square_size]
            found.append(options(f"{key}.square", (*sizes, 0), 0))
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Tiled:
    """A reduction in tiles: accumulators of a tile, and the stage that stores what becomes of them.

    Axis i of the accumulators is axis `places[i]` of what is stored; -1: it has no such axis, and
    all of it is computed at once (the lanes of partial sums, which are then combined).
    """

    stage: int
    result: int
    nest: Nest
    places: tuple[int, ...]
    levels: Levels
    vector: int
    """The axis that is vectorised; -1: none."""
    lanes: int
    target: Target = field(repr=False)
    packable: tuple[int, ...] = ()
    """The stages a copy of which may be read, in the order in which it is read."""
    fetchable: tuple[int, ...] = ()
    """The stages that may be fetched ahead of the reduction."""
    insides: tuple[int, ...] = ()
    """The loops of others in which it may be computed, see `BELOW`; 0: none."""
    depth = 1
    """How many of its loops others may be computed in."""

    @property
    def owner(self) -> int:
        """The stage that has the outermost loops."""
        return self.result

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages it schedules."""
        return (self.stage, self.result)

    @property
    def tiled_axes(self) -> tuple[int, ...]:
        """The data axes that have tiles of several levels."""
        extents = self.nest.extents
        return tuple(a for a, p in enumerate(self.places) if p >= 0 and extents[a] > 1)

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        """The reduction axes that have more than one iteration."""
        nest = self.nest
        return tuple(a for a in range(nest.data, len(nest.extents)) if nest.extents[a] > 1)

    @cached_property
    def register_order(self) -> tuple[int, ...]:
        """The data axes in the order of their loops in a register tile, the lanes last.

        Those along which single values are read stand before those along which vectors are: so a
        value is used for all its vectors at once, and needs no register afterwards.
        """
        single = [r for r in self.nest.reads if vector_read(r, self.vector) == 0]
        rows = {a for a in range(self.nest.data) if any(r.uses(a) for r in single)}
        every = range(self.nest.data)
        return tuple(sorted(every, key=lambda a: (a == self.vector, a not in rows)))

    def tile_key(self, axis: int) -> str:
        """Return the key of the tile factors of an axis."""
        return f"{self.stage}.tile{axis}"

    @property
    def most_accumulators(self) -> int:
        """The most vectors of accumulators of which the loops are written out."""
        return 2 * self.target.vector_registers

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Its open choices."""
        return tuple(s for s in (*self._tiles(), *self._annotations()) if len(s.values) > 1)

    def _tiles(self) -> list[Slot]:
        found = []
        inner = self.levels.spatial - 1
        for axis in self.tiled_axes:
            extent = self.nest.extents[axis]
            unit, most = 1, MOST_ROWS
            if axis == self.vector:
                unit, most = self.lanes, MOST_VECTORS * self.lanes
            values = spatial_tiles(extent, inner, most, unit)
            found.append(Slot(self.tile_key(axis), values, is_tile=True))
        for axis in self.reduced_axes:
            values = even_tiles(self.nest.extents[axis], self.levels.reduction - 1)
            found.append(Slot(self.tile_key(axis), values, is_tile=True))
        return found

    def _annotations(self) -> list[Slot]:
        key, axes = f"{self.stage}", self.tiled_axes
        found = [
            options(f"{key}.at", range(self.levels.outer), self.levels.outer - 1),
            options(f"{key}.first", range(len(axes))),
            options(f"{key}.parallel", [*range(len(axes), 0, -1), 0], 0),
            options(f"{key}.unroll", (1, 2, 0), 0),
        ]
        if self.vector >= 0:
            found.append(options(f"{key}.vectorize", (1, 0), 0))
        found += [options(f"{key}.pack{n}", (0, 1), 0) for n in self.packable]
        found += [options(f"{key}.fetch{n}", (0, 2, 4, 8, 16, 64), 0) for n in self.fetchable]
        found += [options(f"{key}.panel{n}", (0, 1), 0) for n in self.fetchable]
        if self.insides:
            found.append(places(f"{key}.inside", self.insides))
        return found


@dataclass(frozen=True, eq=False)
class Blocks(_OneStage):
    """A stage without reduction whose axes have digits: two levels of tiles, then single places.

    Inside of all those are the digits that are short, those that are written out because formulas
    depend on them, and lanes.
    """

    stage: int
    parts: Digits
    lanes: int
    insides: tuple[int, ...] = ()
    """The loops of others in which it may be computed, see `BELOW`; 0: none."""
    depth = 3
    """How many of its loops others may be computed in."""

    @property
    def digits(self) -> tuple[Digit, ...]:
        """All digits, those of an axis side by side, the outermost first."""
        return self.parts.digits

    @property
    def tiled(self) -> tuple[int, ...]:
        """The digits that have tiles."""
        return tuple(k for k, d in enumerate(self.digits) if d.role == "tile" and d.extent > 1)

    def tile_key(self, digit: int) -> str:
        """Return the key of the tile factors of a digit."""
        return f"{self.stage}.tile{digit}"

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Its open choices."""
        key = f"{self.stage}"
        found: list[Slot] = []
        for k in self.tiled:
            extent = self.digits[k].extent
            found.append(Slot(self.tile_key(k), even_tiles(extent, 2), is_tile=True))
        found.append(options(f"{key}.parallel", (1, 0), 0))
        found.append(options(f"{key}.out", (2, 1, 0), 0))
        if self.insides:
            found.append(places(f"{key}.inside", self.insides))
        return tuple(found)


Plan = Simple | Tiled | Blocks


class Unused(NamedTuple):
    """The last `terms` of a reduction are zero, its axis `blocks` and its last taken as one.

    Those axes are the blocks of input channels and the channels of a block.
    """

    terms: int
    blocks: int


@dataclass(frozen=True, eq=False)
class Sketch:
    """A structure with open choices: the steps all its candidates share, then a plan per stage.

    Plans stand in the order in which steps are made of them, users before what they read.
    """

    name: str
    steps: tuple[Step, ...]
    plans: tuple[Plan, ...]
    nests: Mapping[int, Nest]
    readers: Mapping[int, tuple[int, ...]]
    """By the stage of a plan's results: the stages of the plans that read it; -1 for others."""
    unused: Unused | None = None
    """Which terms of its one reduction are zero; None where that is not known of any."""

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """By plan: the places of the plans that read it, -1 for a stage without a plan."""
        place = {p.owner: k for k, p in enumerate(self.plans)}
        return tuple(
            tuple(place.get(r, -1) for r in self.readers.get(p.owner, ())) for p in self.plans
        )

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """All open choices: tile factors first."""
        slots = [s for plan in self.plans for s in plan.slots]
        return (*(s for s in slots if s.is_tile), *(s for s in slots if not s.is_tile))

    @cached_property
    def register_slots(self) -> tuple[int, ...]:
        """The places of the slots whose last factors are tiles in registers."""
        data = {p.tile_key(a) for p in self.plans if isinstance(p, Tiled) for a in p.tiled_axes}
        return tuple(k for k, slot in enumerate(self.slots) if slot.key in data)

    def values(self, rows: Ints) -> dict[str, Ints]:
        """Return the values of candidates by key, given as places in the tables of the slots."""
        found = {slot.key: slot.table[rows[:, k]] for k, slot in enumerate(self.slots)}
        for key, fixed in self.fixed.items():
            found[key] = np.tile(np.array(fixed, dtype=np.int64), (len(rows), 1))
        return found

    @cached_property
    def fixed(self) -> dict[str, tuple[int, ...]]:
        """What is not open, as there is only one way."""
        found: dict[str, tuple[int, ...]] = {}
        for plan in self.plans:
            if not isinstance(plan, Tiled):
                continue
            for slot in (*plan._tiles(), *plan._annotations()):
                if len(slot.values) == 1:
                    found[slot.key] = slot.values[0]
        return found


def vector_read(read: Read, axis: int) -> int:
    """Return 1 for whole vectors along an axis, 0 for one value, -1 for values apart."""
    if not read.uses(axis):
        return 0
    return 1 if read.step_in_memory(axis) == 1 else -1


def numbered(schedule: Schedule, number: int) -> Stage:
    """Return the stage of a number, which the schedule has."""
    stage = schedule.numbered(number)
    assert stage is not None
    return stage


def structured(schedule: Schedule, sketch: Sketch) -> Schedule:
    """Return a fresh schedule of the same tensors with the steps all candidates share."""
    return schedule.fresh().replay(sketch.steps)
