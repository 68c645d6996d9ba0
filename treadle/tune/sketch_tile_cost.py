# SPDX-License-Identifier: Apache-2.0
"""What tiles in several levels take by the analytic model, many candidates at once.

Their arithmetic, the tasks that threads share, the code that is written out; what they move between
the levels of the memory is `sketch_traffic`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from treadle.cost.loops import run_cycles, tile_start_cycles
from treadle.cost.memory import local_bytes
from treadle.target.base import Target
from treadle.tune.sketch_nest import Floats64, Nest
from treadle.tune.sketch_places import Places, Values, choice
from treadle.tune.sketch_plans import MOST_STATEMENTS, MOST_UNROLLED, Plan, Tiled, vector_read
from treadle.tune.sketch_slots import Ints
from treadle.tune.sketch_traffic import Bools, Traffic

_FUSED_OPERATIONS = 2
"""A product and its sum are one instruction; what is more is computed for every term."""
_SECOND_ROOF = 0.3
"""The part of the lower roofs that is not hidden under the highest."""
_FETCHED_ROOF = 0.2
"""The same where operands are fetched ahead."""


@dataclass(eq=False)
class PlanCosts:
    """A plan in numbers, an array over the candidates each.

    `cycles` are of all cores together, without waiting for the last of them.
    """

    plan: Plan
    nest: Nest
    cycles: Floats64
    tasks: Floats64
    is_parallel: Floats64
    task_tile: Floats64
    """[axes, candidates]: what a task covers of each axis."""
    traffic: Floats64
    """[3, candidates]: bytes that pass between levels 1, 2, 3 of cache and memory."""
    compute: Floats64
    tiled: TileNumbers | None = None


@dataclass(eq=False)
class TileNumbers:
    """What only tiles in several levels have, for features."""

    tiles: Floats64
    """[levels + 1, axes, candidates]: what is inside the first levels."""
    footprints: Floats64
    """[levels + 1, candidates]: bytes of all operands that a tile reads."""
    accumulators: Floats64
    step_cycles: Floats64
    lane_use: Floats64
    statements: Floats64
    intensity: Floats64
    """[levels + 1, candidates]: multiply-adds for each byte of operands."""


def rates(target: Target) -> tuple[float, float, float]:
    """Return the bytes a cycle that a core reads from level 2, from level 3, from memory."""
    machine = target.machine
    return (
        machine.caches[1].bytes_per_cycle,
        machine.caches[2].bytes_per_cycle,
        machine.memory_bytes_per_cycle,
    )


def tile_extents(plan: Tiled, values: Values, region: Floats64) -> Floats64:
    """Return what stands inside of the first levels: [levels + 1, axes, candidates]."""
    nest, text = plan.nest, plan.levels.text
    tiled = set(plan.tiled_axes)
    found = np.ones((len(text) + 1, *region.shape))
    for axis in range(len(nest.extents)):
        is_data = axis < nest.data
        kind = "S" if is_data else "R"
        last = (plan.levels.spatial if is_data else plan.levels.reduction) - 1
        factors = values.get(plan.tile_key(axis))
        for level in range(len(text) + 1):
            passed = text[:level].count(kind)
            if passed == 0 or (is_data and axis not in tiled and level < len(text)):
                found[level, axis] = region[axis]
            elif passed <= last and factors is not None:
                size = np.prod(factors[:, passed - 1 :], axis=1)
                found[level, axis] = np.minimum(size, region[axis])
    return found


def tiled_costs(plan: Tiled, k: int, where: Places, target: Target) -> PlanCosts:
    """Return plan `k`, which is one of tiles, in numbers, for all candidates."""
    return _Model(plan, k, where, target).costs()


def tile_limits(
    plan: Tiled, k: int, where: Places, target: Target
) -> tuple[Bools, Floats64, Floats64]:
    """Return which candidates keep the limits of tiles, their statements, and the copies of a task.

    Statements are vectors of arithmetic that stand in the code, written out; what is computed in a
    task stands there as often as the tasks have forms, rests of axes included.
    """
    return _Model(plan, k, where, target).limits()


class _Model:
    """The tiles of all candidates of a plan, and what follows from them."""

    def __init__(self, plan: Tiled, k: int, where: Places, target: Target) -> None:
        self.plan, self.values, self.count, self.target = plan, where.values, where.count, target
        self.nest = plan.nest
        self.region, self.times = where.regions[k], where.times[k]
        self.where, self.number = where, k
        self.tiles = tile_extents(plan, self.values, self.region)
        self.loops = np.ceil(self.tiles[:-1] / self.tiles[1:])
        self.register = self.tiles[-2]
        wide = plan.lanes * self.choice("vectorize", 1)
        self.lanes = np.maximum(wide, 1).astype(float)
        self.unroll = self.choice("unroll", 1)
        self.vectors = np.ceil(self.register[plan.vector] / self.lanes)
        data = self.register[: self.nest.data]
        self.sums = np.prod(np.delete(data, plan.vector, axis=0), axis=0) * self.vectors
        self.inner = np.prod(self.tiles[plan.levels.text.rindex("R")][self.nest.data :], axis=0)
        """Terms of the innermost loops over the reduction."""
        self.order = self._order()

    @cached_property
    def traffic(self) -> Traffic:
        """What its loops move."""
        packed = {n: self.choice(f"pack{n}", 0) > 0 for n in self.plan.packable}
        around, text = self.where.around(self.number), self.plan.levels.text
        return Traffic(
            self.nest, text, self.tiles, self.order, around, self.times, packed, self.target
        )

    def limits(self) -> tuple[Bools, Floats64, Floats64]:
        """Return which candidates keep the limits of tiles, and the code: see `tile_limits`."""
        statements, most = self._statements(), local_bytes(self.target)
        copied = self.traffic.packing()[1]
        valid = self._is_small(statements) & (self._held_bytes() <= most) & (copied <= most)
        return valid & ~self._fetches_apart(), statements, self._task_copies()

    def _fetches_apart(self) -> Bools:
        """True where what is fetched ahead for a register tile ends within a block of its tensor.

        Where such a tile begins is not known, so whole blocks would be fetched.
        """
        found = np.zeros(self.count, bool)
        for read in (r for r in self.nest.reads if r.source in self.plan.fetchable):
            apart = np.zeros(self.count, bool)
            for axis in range(self.nest.data):
                block, size = read.blocks(axis), self.register[axis]
                apart |= (size % block > 0) & (block % size > 0)
            found |= apart & self._fetches(read.source)
        return found

    def _fetches(self, number: int) -> Bools:
        """True where an operand is fetched ahead of its use."""
        return (self.choice(f"fetch{number}", 0) > 0) | (self.choice(f"panel{number}", 0) > 0)

    def choice(self, name: str, default: int) -> Ints:
        """Return a choice of all candidates: int64[count]."""
        return choice(self.values, self.plan.stage, name, default, self.count)

    def costs(self) -> PlanCosts:
        """Return all numbers of the plan, of all times that it runs."""
        step = self._step_cycles()
        compute = self._compute_cycles(step)
        traffic, footprints = self.traffic.passed()
        copying, _ = self.traffic.packing()
        roofs = np.concatenate([compute[None], traffic / np.array(rates(self.target))[:, None]])
        highest = np.max(roofs, axis=0)
        seen = np.where(self._is_fetched(), _FETCHED_ROOF, _SECOND_ROOF)
        cycles = highest + seen * (np.sum(roofs, axis=0) - highest) + copying
        tasks = np.prod(self.loops[0], axis=0)
        cycles += self.times * tasks * tile_start_cycles(self.target)
        statements = self._statements()
        use = self.register[self.plan.vector] / (self.vectors * self.lanes)
        intensity = np.prod(self.tiles, axis=1) / np.maximum(footprints, 1)
        numbers = TileNumbers(self.tiles, footprints, self.sums, step, use, statements, intensity)
        is_parallel = (self.choice("parallel", 1) > 0).astype(float)
        return PlanCosts(
            self.plan, self.nest, cycles, self._tasks(), is_parallel, self.tiles[1], traffic,
            compute, numbers,
        )  # fmt: skip

    def _is_fetched(self) -> Bools:
        """True where some operand is fetched ahead of its use."""
        found = np.zeros(self.count, bool)
        for number in self.plan.fetchable:
            found |= self._fetches(number)
        return found

    # -- arithmetic --------------------------------------------------------------------------

    def _move_cycles(self) -> Floats64:
        """Return the cycles to read an accumulator from the nearest cache and to write it back."""
        machine, bits = self.target.machine, self.target.vector_bits
        wide = 1 / machine.loads_of(bits) + 1 / machine.stores_of(bits)
        single = 1 / machine.loads_per_cycle + 1 / machine.stores_per_cycle
        return np.where(self.lanes > 1, wide, single)

    def _step_cycles(self) -> Floats64:
        """Return the cycles of one step of the reduction for a register tile."""
        machine, bits = self.target.machine, self.target.vector_bits
        is_wide, sums = self.lanes > 1, self.sums
        fma = sums / np.where(is_wide, machine.fmas_per_cycle(bits), machine.fma_units)
        held = sums + self._vectors_read() + 1
        excess = np.maximum(0, held - self.target.vector_registers)
        left = np.where(self.unroll > 0, excess, np.where(sums > 1, sums, 0))
        is_held = (self.unroll > 0) | (sums == 1)
        waits = np.where(is_held, float(machine.fma_latency), 0.0)
        scattered = np.where(is_held, 0.0, sums * machine.iteration_cycles)
        more = max(0, self.nest.operations - _FUSED_OPERATIONS) * fma
        bound: Floats64 = np.maximum(np.maximum(fma, waits), self._load_cycles())
        return np.asarray(bound + left * self._move_cycles() + scattered + more)

    def _vectors_read(self) -> Floats64:
        """Return how many vectors a step of a register tile reads."""
        single = self.register.copy()
        single[self.plan.vector] = 1.0
        found = np.zeros(self.count)
        for read in self.nest.reads:
            if vector_read(read, self.plan.vector) > 0:
                found += read.elements(single) * self.vectors
        return found

    def _load_cycles(self) -> Floats64:
        """Return the cycles in which a step of a register tile reads what it multiplies."""
        machine, bits = self.target.machine, self.target.vector_bits
        single = self.register.copy()
        single[self.plan.vector] = 1.0
        rate = np.where(self.lanes > 1, machine.loads_of(bits), machine.loads_per_cycle)
        total = np.zeros(self.count)
        for read in self.nest.reads:
            places = read.elements(single)
            kind = vector_read(read, self.plan.vector)
            if kind > 0:
                total += places * self.vectors / rate
            elif kind == 0:
                total += places / machine.loads_per_cycle
            else:
                total += 2 * places * self.register[self.plan.vector] / machine.loads_per_cycle
        return total

    def _compute_cycles(self, step: Floats64) -> Floats64:
        """Return the cycles of all register tiles, were all they read in the nearest cache."""
        extents = self.region[: self.nest.data]
        tiles = self.times * np.prod(np.ceil(extents / self.register[: self.nest.data]), axis=0)
        terms = float(self.nest.reduction)
        each = np.where(self.unroll == 2, 1 / self.inner, 1.0)
        overhead = each * self.target.machine.iteration_cycles
        runs = np.where(self._is_revisited(), terms / self.inner, 1.0)
        start = self.sums * self._move_cycles() + run_cycles(self.target)
        cycles: Floats64 = tiles * (terms * (step + overhead) + runs * start)
        return cycles

    def _is_revisited(self) -> Bools:
        """True where accumulators are left and come back to, between levels of the reduction."""
        text, data = self.plan.levels.text, self.nest.data
        between = [k for k, c in enumerate(text[:-1]) if c == "S" and "R" in text[:k]]
        if not between:
            return np.zeros(self.count, bool)
        found: Bools = np.prod(self.loops[between][:, :data], axis=(0, 1)) > 1
        return found

    # -- tasks and limits --------------------------------------------------------------------

    def _order(self) -> Ints:
        """Return the axes of the data loops from outermost to innermost: [axes, candidates]."""
        tiled = self.plan.tiled_axes
        rest = [a for a in range(self.nest.data) if a not in tiled]
        orders = [[*rest, f, *(a for a in tiled if a != f)] for f in tiled] or [rest]
        return np.array(orders, dtype=np.int64)[self.choice("first", 0)].T

    def _tasks(self) -> Floats64:
        """Return how many tasks the threads share."""
        tiled = len(self.plan.tiled_axes)
        depth = self.choice("parallel", tiled)
        counts = np.take_along_axis(self.loops[0], self.order, axis=0)[self.nest.data - tiled :]
        tasks = np.ones(self.count)
        for k, trips in enumerate(counts):
            tasks = np.where(k < depth, tasks * trips, tasks)
        return tasks

    def _held_bytes(self) -> Floats64:
        """Return the bytes of the accumulators of a tile."""
        at = self.choice("at", self.plan.levels.outer - 1)
        sizes = np.prod(self.tiles[1 : self.plan.levels.outer + 1, : self.nest.data], axis=1)
        held: Floats64 = np.take_along_axis(sizes, at[None, :], axis=0)[0]
        return held * self.nest.itemsize

    def _copies(self) -> Floats64:
        """Return how many times tiles stand in the code: once more for the rest of an axis."""
        copies = np.ones(self.count)
        for axis in self.plan.tiled_axes:
            extent = self.region[axis]
            is_even = extent % self.register[axis] == 0
            copies *= np.where(is_even, 1, np.where(self.tiles[1][axis] >= extent, 2, 3))
        return copies

    def _task_copies(self) -> Floats64:
        """Return how many times a task stands in the code."""
        data = slice(0, self.nest.data)
        uneven = self.region[data] % self.tiles[1][data] > 0
        copies: Floats64 = np.prod(np.where(uneven, 2.0, 1.0), axis=0)
        return copies

    def _statements(self) -> Floats64:
        """Return how many multiply-adds are written out, rests of tiles included."""
        steps = np.where(self.unroll == 2, self.inner, 1)
        return np.where(self.unroll > 0, self.sums, 1) * steps * self._copies()

    def _is_small(self, statements: Floats64) -> Bools:
        """True for code that is not too much, where what it is told to unroll can be unrolled."""
        can_unroll = (self.unroll == 0) | (self.sums <= self.plan.most_accumulators)
        terms = self.inner * self.sums
        has_terms = (self.unroll != 2) | ((self.inner > 1) & (terms <= MOST_UNROLLED))
        found: Bools = (statements <= MOST_STATEMENTS) & can_unroll & has_terms
        return found
