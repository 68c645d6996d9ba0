# SPDX-License-Identifier: Apache-2.0
"""What candidates of a sketch take by an analytic model, many at once.

The model is a roofline with more than one roof: multiply-adds and loads of a register tile, and
what passes between the levels of the memory (`sketch_traffic`). Of every plan it counts what is
computed in the loop it is in, as often as that runs (`sketch_places`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from treadle.cost.forks import fork_cycles
from treadle.cost.loops import room_in, row_cycles
from treadle.cost.memory import remote_cycles
from treadle.target.base import Target
from treadle.tune.sketch_limits import written_out
from treadle.tune.sketch_nest import Floats64
from treadle.tune.sketch_places import Places, Values, choice, distinct
from treadle.tune.sketch_plans import (
    Blocks,
    Simple,
    Sketch,
    Tiled,
    vector_read,
)
from treadle.tune.sketch_slots import Ints
from treadle.tune.sketch_tile_cost import PlanCosts, rates, tiled_costs
from treadle.tune.sketch_traffic import WRITTEN


@dataclass(eq=False)
class Costs:
    """All candidates of a sketch in numbers."""

    sketch: Sketch
    target: Target
    values: Values
    count: int
    where: Places
    plans: list[PlanCosts] = field(default_factory=list)
    cycles: Floats64 = field(default_factory=lambda: np.zeros(0))

    @property
    def inside(self) -> list[Floats64]:
        """By plan: 1.0 where it is computed in a loop of another."""
        return [(host >= 0).astype(float) for host in self.where.host]


def costs_of(sketch: Sketch, rows: Ints, target: Target) -> Costs:
    """Return the numbers of candidates given as places in the tables of the slots."""
    count = len(rows)
    values = sketch.values(rows)
    costs = Costs(sketch, target, values, count, Places(sketch, values, count))
    for k, plan in enumerate(sketch.plans):
        if isinstance(plan, Tiled):
            costs.plans.append(tiled_costs(plan, k, costs.where, target))
        elif isinstance(plan, Blocks):
            costs.plans.append(_block_costs(plan, k, costs.where, target))
        else:
            costs.plans.append(_simple_costs(plan, k, costs.where, target))
    _add_up(costs)
    return costs


def _add_up(costs: Costs) -> None:
    """Add up the plans: on how many cores each runs, and how evenly those share its tasks."""
    target, where = costs.target, costs.where
    total = np.zeros(costs.count)
    for k, p in enumerate(costs.plans):
        is_root = where.host[k] < 0
        held = np.prod(where.regions[k][: p.nest.data], axis=0) * p.nest.itemsize
        tasks = _of_home(costs, where.home[k], "tasks")
        cores = np.where(_of_home(costs, where.home[k], "is_parallel") > 0, target.cores, 1)
        uneven = np.ceil(tasks / cores) * cores / np.maximum(tasks, 1)
        forks = np.where(is_root & (cores > 1), fork_cycles(target), 0.0)
        total += p.cycles / cores * uneven + forks
        if costs.sketch.readers.get(p.plan.owner):
            others = held * (cores - 1) / cores
            total += np.where(is_root, remote_cycles(1.0, target) * others / cores, 0.0)
    costs.cycles = total


def _of_home(costs: Costs, which: Ints, name: str) -> Floats64:
    """Return a number of the plan that `which` names for each candidate."""
    found = np.zeros(costs.count)
    for k in distinct(which):
        found = np.where(which == k, getattr(costs.plans[k], name), found)
    return found


# -- stages without tiles in registers ----------------------------------------------------------


def _simple_costs(plan: Simple, k: int, where: Places, target: Target) -> PlanCosts:
    nest, count, values = where.nests[k], where.count, where.values
    rows = choice(values, plan.stage, "rows", plan.rows[0], count)
    lanes = choice(values, plan.stage, "lanes", plan.lanes, count)
    square = choice(values, plan.stage, "square", 0, count)
    region, times = where.regions[k], where.times[k]
    size = np.prod(region[: nest.data], axis=0)
    points = np.prod(region, axis=0) * times
    tasks = np.prod(np.ceil(region / where.tiles(k)[1])[: nest.data], axis=0)
    flat = (rows == 0) & (square == 0) & (not plan.is_reduction)
    tasks = np.where(flat, np.ceil(size / np.maximum(lanes, 1)), tasks)
    wide = np.where(square > 0, square, lanes)
    full = target.lanes(int(8 * nest.itemsize)) if nest.itemsize else 1
    speed = np.clip(wide, 1, full) if not plan.is_reduction else np.ones(count)
    compute = max(1, nest.operations) * points * 0.5 / np.maximum(speed, 1)
    compute = compute + times * tasks * np.where(flat, 1.0, row_cycles(target))
    vector = next((a for a in reversed(range(nest.data)) if nest.extents[a] > 1), 0)
    for read in nest.reads:
        if nest.data and vector_read(read, vector) < 0 and not plan.is_reduction:
            compute = compute + np.where(square > 0, 0.0, points * read.count)
    is_parallel = choice(values, plan.stage, "parallel", 1, count) * (nest.data > 0)
    return _streamed(plan, k, where, target, compute, tasks, is_parallel)


def _block_costs(plan: Blocks, k: int, where: Places, target: Target) -> PlanCosts:
    """Return a plan by digits in numbers: each element by the mean of its formulas."""
    machine, bits, values = target.machine, target.vector_bits, where.values
    region, times, roles = where.regions[k], where.times[k], [d.role for d in plan.digits]
    vectors = np.prod(region[[r != "lanes" for r in roles]], axis=0)
    written, is_whole = written_out(plan, k, where)
    stores = np.where(is_whole & (vectors <= target.vector_registers), 0.0, 1.0)
    each = np.maximum(
        plan.parts.operations / machine.fmas_per_cycle(bits),
        plan.parts.loads / machine.loads_of(bits) + stores,
    )
    compute = times * vectors * (each + machine.iteration_cycles / written)
    tasks = np.prod(np.ceil(region / where.tiles(k)[1]), axis=0)
    is_parallel = choice(values, plan.stage, "parallel", 1, where.count)
    return _streamed(plan, k, where, target, compute, tasks, is_parallel)


def _streamed(
    plan: Simple | Blocks,
    k: int,
    where: Places,
    target: Target,
    compute: Floats64,
    tasks: Floats64,
    is_parallel: Ints,
) -> PlanCosts:
    """Return the numbers of a plan that reads and writes everything once."""
    nest = where.nests[k]
    traffic = _traffic(plan, k, where, target)
    moved: Floats64 = np.max(traffic / np.array(rates(target))[:, None], axis=0)
    return PlanCosts(
        plan, nest, compute + moved, np.maximum(tasks, 1), is_parallel.astype(float),
        where.tiles(k)[1], traffic, compute,
    )  # fmt: skip


def _traffic(plan: Simple | Blocks, k: int, where: Places, target: Target) -> Floats64:
    """Return what passes each level of cache: of buffers that are larger, all that is used."""
    nest, region, times = where.nests[k], where.regions[k], where.times[k]
    size = np.prod(region[: nest.data], axis=0) * nest.itemsize
    used = [(size, WRITTEN * size)]
    makers = {p.owner: j for j, p in enumerate(where.sketch.plans)}
    for read in nest.reads:
        own = read.elements(region) * read.itemsize
        maker = makers.get(read.source)
        if maker is None or maker <= k:
            whole = np.full(where.count, float(np.prod(read.shape)) * read.itemsize)
        else:
            data = where.nests[maker].data
            whole = np.prod(where.regions[maker][:data], axis=0) * read.itemsize
        used.append((np.maximum(whole, own), own))
    found = np.zeros((3, where.count))
    for c, cache in enumerate((target.l1_bytes, target.l2_bytes, target.l3_bytes)):
        room = room_in(cache)
        together = sum((whole for whole, _ in used), np.zeros(where.count))
        for whole, own in used:
            found[c] += np.where((whole > room) | (together > room), own * times, 0.0)
    return found
