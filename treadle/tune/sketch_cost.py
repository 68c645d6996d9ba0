# SPDX-License-Identifier: Apache-2.0
"""What candidates of a sketch take by an analytic model, many at once, and which break a limit.

The model is a roofline with more than one roof: multiply-adds and loads of a register tile, and
what passes between the levels of the memory (`sketch_tile_cost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from treadle.cost.forks import fork_cycles
from treadle.cost.loops import room_in, row_cycles
from treadle.cost.memory import local_bytes
from treadle.target.base import Target
from treadle.tune.sketch_nest import Floats64, Nest
from treadle.tune.sketch_plans import Simple, Sketch, Tiled, vector_read
from treadle.tune.sketch_slots import Ints
from treadle.tune.sketch_tile_cost import (
    PlanCosts,
    Values,
    choice,
    rates,
    tiled_costs,
)


@dataclass(eq=False)
class Costs:
    """All candidates of a sketch in numbers."""

    sketch: Sketch
    target: Target
    values: Values
    count: int
    plans: list[PlanCosts] = field(default_factory=list)
    inside: list[Floats64] = field(default_factory=list)
    """By plan: 1.0 where it is computed in a loop of another."""
    repeats: list[Floats64] = field(default_factory=list)
    """By plan: how often an element is computed."""
    is_valid: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    cycles: Floats64 = field(default_factory=lambda: np.zeros(0))


def costs_of(sketch: Sketch, rows: Ints, target: Target) -> Costs:
    """Return the numbers of candidates given as places in the tables of the slots."""
    count = len(rows)
    values: dict[str, Ints] = {
        slot.key: slot.table[rows[:, k]] for k, slot in enumerate(sketch.slots)
    }
    for key, fixed in sketch.fixed.items():
        values[key] = np.tile(np.array(fixed, dtype=np.int64), (count, 1))
    costs = Costs(sketch, target, values, count)
    for plan in sketch.plans:
        made = (
            tiled_costs(plan, values, count, target)
            if isinstance(plan, Tiled)
            else _simple_costs(plan, sketch.nests[plan.stage], values, count, target)
        )
        costs.plans.append(made)
    _place(costs)
    return costs


# -- where stages are computed ----------------------------------------------------------------


def _place(costs: Costs) -> None:
    """Add up the plans: which runs in a loop of which, and on how many cores."""
    target, count = costs.target, costs.count
    by_owner = {p.plan.owner: k for k, p in enumerate(costs.plans)}
    host = np.zeros((len(costs.plans), count), np.int64)
    total = np.zeros(count)
    valid = np.ones(count, bool)
    for k, p in enumerate(costs.plans):
        host[k], repeats = _host_of(costs, k, by_owner, host)
        is_inside = host[k] != k
        repeats = np.where(is_inside, repeats, 1.0)
        costs.inside.append(is_inside.astype(float))
        costs.repeats.append(repeats)
        task_bytes = p.nest.size * repeats * p.nest.itemsize / _at(costs, host[k], "tasks")
        valid &= (p.valid > 0) & (~is_inside | (task_bytes <= local_bytes(target)))
        tasks = _at(costs, host[k], "tasks")
        cores = np.where(_at(costs, host[k], "is_parallel") > 0, target.cores, 1)
        uneven = np.ceil(tasks / cores) * cores / np.maximum(tasks, 1)
        forks = np.where(is_inside | (cores == 1), 0.0, fork_cycles(target))
        total += p.cycles * repeats / cores * uneven + forks
    costs.is_valid, costs.cycles = valid, total


def _host_of(
    costs: Costs, k: int, by_owner: Mapping[int, int], host: Ints
) -> tuple[Ints, Floats64]:
    """Return the plan in whose loop over tasks plan `k` runs, and how often it does all work."""
    plan, count = costs.plans[k].plan, costs.count
    own = np.full(count, k)
    users = [by_owner[r] for r in costs.sketch.readers[plan.owner] if r in by_owner]
    wanted = choice(costs.values, plan.stages[0], "inside", 0, count) == 1
    if not users or not wanted.any():
        return own, np.ones(count)
    around = np.stack([host[u] for u in users])
    is_inside = wanted & (around == around[0]).all(axis=0)
    is_inside &= _at(costs, around[0], "has_tasks") > 0
    size = costs.plans[k].nest.size
    repeats = np.ones(count)
    for u in users:
        user = costs.plans[u]
        for read in (r for r in user.nest.reads if r.source == plan.owner):
            needed = read.elements(user.task_tile) * user.tasks / size
            repeats = np.maximum(repeats, np.where(host[u] == u, needed, 1.0))
    return np.where(is_inside, around[0], own), repeats


def _at(costs: Costs, which: Ints, name: str) -> Floats64:
    """Return a number of the plan that `which` names for each candidate."""
    found = np.zeros(costs.count)
    for k, p in enumerate(costs.plans):
        value = _has_tasks(p) if name == "has_tasks" else getattr(p, name)
        found = np.where(which == k, value, found)
    return found


def _has_tasks(p: PlanCosts) -> Floats64:
    """Return 1.0 where there is a loop that others can be computed in."""
    covers_all = np.all(p.task_tile[: p.nest.data] < 0, axis=0)
    return np.where(covers_all, 0.0, 1.0)


# -- plain loops ------------------------------------------------------------------------------


def _simple_costs(
    plan: Simple, nest: Nest, values: Values, count: int, target: Target
) -> PlanCosts:
    rows = choice(values, plan.stage, "rows", plan.rows[0], count)
    lanes = choice(values, plan.stage, "lanes", plan.lanes, count)
    square = choice(values, plan.stage, "square", 0, count)
    extents = np.array(nest.extents, dtype=float)
    tile = np.repeat(extents[:, None], count, axis=1)
    tasks = np.ones(count)
    if plan.is_reduction:
        tasks *= nest.size
        tile[: nest.data] = 1.0
    else:
        for axis in range(nest.data):
            is_row = (axis < rows) | (square > 0) & (axis < nest.data - 1)
            tasks = np.where(is_row, tasks * extents[axis], tasks)
            tile[axis] = np.where(is_row, 1.0, tile[axis])
        flat = (rows == 0) & (square == 0)
        chunks = np.ceil(nest.size / np.maximum(lanes, 1))
        tasks = np.where(flat, chunks, np.where(square > 0, tasks / np.maximum(square, 1), tasks))
    wide = np.where(square > 0, square, lanes)
    ops = max(1, nest.operations) * nest.points * 0.5
    full = target.lanes(int(8 * nest.itemsize)) if nest.itemsize else 1
    speed = np.clip(wide, 1, full) if not plan.is_reduction else np.ones(count)
    compute = ops / np.maximum(speed, 1) + tasks * np.where(rows == 0, 1.0, row_cycles(target))
    vector = next((a for a in reversed(range(nest.data)) if nest.extents[a] > 1), 0)
    size = nest.size * nest.itemsize
    for read in nest.reads:
        size += float(read.elements(extents[:, None])[0]) * read.itemsize
        if nest.data and vector_read(read, vector) < 0 and not plan.is_reduction:
            compute = compute + np.where(square > 0, 0.0, nest.points * 1.0)
    traffic = np.repeat(np.array(_beyond(size, target))[:, None], count, axis=1)
    cycles = compute + _memory_cycles(traffic, target)
    is_parallel = choice(values, plan.stage, "parallel", 1, count) * (nest.data > 0)
    tile = np.where((rows == 0)[None, :] & (square == 0)[None, :], -1.0, tile)
    if plan.is_reduction:
        tile = np.where(tile < 0, extents[:, None], tile)
    return PlanCosts(
        plan, nest, cycles, np.maximum(tasks, 1), is_parallel.astype(float), tile, traffic, compute,
        np.ones(count),
    )  # fmt: skip


def _beyond(size: float, target: Target) -> list[float]:
    """Return what of `size` bytes comes from beyond each level of cache, read once."""
    caches = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    return [size if size > room_in(cache) else 0.0 for cache in caches]


def _memory_cycles(traffic: Floats64, target: Target) -> Floats64:
    cycles: Floats64 = np.max(traffic / np.array(rates(target))[:, None], axis=0)
    return cycles
