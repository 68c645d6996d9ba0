# SPDX-License-Identifier: Apache-2.0
"""What tiles in several levels take by the analytic model, many candidates at once.

What a tile reads again is counted as by Ansor's features: the footprint of the largest tile that
stays in a cache, as often as that is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treadle.cost.loops import room_in, run_cycles, tile_start_cycles
from treadle.cost.memory import local_bytes
from treadle.target.base import Target
from treadle.tune.sketch_nest import Floats64, Nest, Read
from treadle.tune.sketch_plans import MOST_STATEMENTS, Plan, Tiled, vector_read
from treadle.tune.sketch_slots import Ints

_SECOND_ROOF = 0.3
"""The part of the lower roofs that is not hidden under the highest."""

Values = Mapping[str, Ints]


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
    valid: Floats64
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


def choice(values: Values, stage: int, name: str, default: int, count: int) -> Ints:
    """Return a choice of all candidates: int64[count]."""
    found = values.get(f"{stage}.{name}")
    return np.full(count, default) if found is None else found[:, 0]


def rates(target: Target) -> tuple[float, float, float]:
    """Return the bytes a cycle that a core reads from level 2, from level 3, from memory."""
    machine = target.machine
    return (
        machine.caches[1].bytes_per_cycle,
        machine.caches[2].bytes_per_cycle,
        machine.memory_bytes_per_cycle,
    )


def tile_extents(plan: Tiled, values: Values, count: int) -> Floats64:
    """Return what stands inside of the first levels: [levels + 1, axes, candidates]."""
    nest, text = plan.nest, plan.levels.text
    tiled = set(plan.tiled_axes)
    found = np.ones((len(text) + 1, len(nest.extents), count))
    for axis, extent in enumerate(nest.extents):
        is_data = axis < nest.data
        kind = "S" if is_data else "R"
        last = (plan.levels.spatial if is_data else plan.levels.reduction) - 1
        factors = values.get(plan.tile_key(axis))
        for level in range(len(text) + 1):
            passed = text[:level].count(kind)
            if passed == 0 or (is_data and axis not in tiled and level < len(text)):
                found[level, axis] = extent
            elif passed <= last and factors is not None:
                size = np.prod(factors[:, passed - 1 :], axis=1)
                found[level, axis] = np.minimum(size, extent)
    return found


def tiled_costs(plan: Tiled, values: Values, count: int, target: Target) -> PlanCosts:
    """Return a plan of tiles in numbers, for all candidates."""
    nest, text = plan.nest, plan.levels.text
    tiles = tile_extents(plan, values, count)
    loops = np.ceil(tiles[:-1] / tiles[1:])
    register = tiles[-2]
    lanes = plan.lanes * choice(values, plan.stage, "vectorize", 1, count)
    lanes = np.maximum(lanes, 1).astype(float)
    unroll = choice(values, plan.stage, "unroll", 1, count)
    rows = np.prod(np.delete(register[: nest.data], plan.vector, axis=0), axis=0)
    vectors = np.ceil(register[plan.vector] / lanes)
    sums = rows * vectors
    is_wide = lanes > 1
    step = _step_cycles(plan, register, sums, vectors, is_wide, unroll, target)
    inner = np.prod(tiles[text.rindex("R")][nest.data :], axis=0)
    terms = float(nest.reduction)
    runs = np.where(_is_revisited(plan, loops), terms / inner, 1.0)
    move = 1 / target.machine.loads_per_cycle + 1 / target.machine.stores_per_cycle
    register_tiles = np.prod(np.ceil(np.array(nest.extents)[: nest.data, None]
                                     / register[: nest.data]), axis=0)  # fmt: skip
    overhead = np.where(unroll == 2, 1 / inner, 1.0) * target.machine.iteration_cycles
    per_tile = terms * (step + overhead) + runs * (sums * move + run_cycles(target))
    compute = register_tiles * per_tile
    at = choice(values, plan.stage, "at", plan.levels.outer - 1, count)
    pack = {n: choice(values, plan.stage, f"pack{n}", 0, count) > 0 for n in plan.packable}
    traffic, footprints = _traffic(plan, values, tiles, loops, pack, target)
    packed, pack_bytes = _packing(plan, tiles, loops, pack, target)
    roofs = np.concatenate([compute[None], traffic / np.array(rates(target))[:, None]])
    highest = np.max(roofs, axis=0)
    tasks = _tasks(plan, values, loops, count)
    cycles = highest + _SECOND_ROOF * (np.sum(roofs, axis=0) - highest) + packed
    cycles = cycles + np.prod(loops[0], axis=0) * tile_start_cycles(target)
    statements, is_small = _statements(plan, tiles, sums, inner, unroll)
    held = np.take_along_axis(
        np.prod(tiles[1 : plan.levels.outer + 1, : nest.data], axis=1), at[None, :], axis=0
    )[0]
    valid = is_small & (held * nest.itemsize <= local_bytes(target))
    valid &= pack_bytes <= local_bytes(target)
    depth = choice(values, plan.stage, "parallel", 1, count)
    numbers = TileNumbers(
        tiles, footprints, sums, step, register[plan.vector] / (vectors * lanes), statements,
        np.prod(tiles, axis=1) / np.maximum(footprints, 1),
    )  # fmt: skip
    return PlanCosts(
        plan, nest, cycles, tasks, (depth > 0).astype(float), tiles[1], traffic, compute,
        valid.astype(float), numbers,
    )  # fmt: skip


def _step_cycles(
    plan: Tiled,
    register: Floats64,
    sums: Floats64,
    vectors: Floats64,
    is_wide: np.ndarray,
    unroll: Ints,
    target: Target,
) -> Floats64:
    """Return the cycles of one step of the reduction for a register tile."""
    machine, bits = target.machine, target.vector_bits
    single = register.copy()
    single[plan.vector] = 1.0
    loads = np.zeros(len(sums))
    for read in plan.nest.reads:
        kind = vector_read(read, plan.vector)
        places = read.elements(single)
        whole = (
            places * vectors / np.where(is_wide, machine.loads_of(bits), machine.loads_per_cycle)
        )
        apart = places * register[plan.vector] * 2 / machine.loads_per_cycle
        loads += (places / machine.loads_per_cycle, whole, apart)[kind]
    fma = sums / np.where(is_wide, machine.fmas_per_cycle(bits), machine.fma_units)
    wide_move = 1 / machine.loads_of(bits) + 1 / machine.stores_of(bits)
    move = np.where(is_wide, wide_move, 1 / machine.loads_per_cycle + 1 / machine.stores_per_cycle)
    excess = np.maximum(0, sums + vectors + 1 - target.vector_registers)
    in_memory = np.where(unroll > 0, excess, np.where(sums > 1, sums, 0)) * move
    waits = np.where((unroll > 0) | (sums == 1), float(machine.fma_latency), 0.0)
    scattered = np.where((unroll == 0) & (sums > 1), sums * machine.iteration_cycles, 0.0)
    bound: Floats64 = np.maximum(np.maximum(fma, waits), loads + in_memory)
    return bound + scattered


def _is_revisited(plan: Tiled, loops: Floats64) -> np.ndarray:
    """True where accumulators are left and come back to, between two levels of the reduction."""
    text, data = plan.levels.text, plan.nest.data
    between = [k for k, c in enumerate(text[:-1]) if c == "S" and "R" in text[:k]]
    counts = [np.prod(loops[k][:data], axis=0) for k in between]
    return np.prod(np.stack(counts), axis=0) > 1 if counts else np.zeros(loops.shape[2], bool)


def _order(plan: Tiled, values: Values, count: int) -> Ints:
    """Return the axes of the data loops from outermost to innermost: [axes, candidates]."""
    tiled = plan.tiled_axes
    rest = [a for a in range(plan.nest.data) if a not in tiled]
    first = choice(values, plan.stage, "first", 0, count)
    orders = [[*rest, tiled[f], *(a for a in tiled if a != tiled[f])] for f in range(len(tiled))]
    return np.array(orders or [rest], dtype=np.int64)[np.minimum(first, max(0, len(tiled) - 1))].T


def _traffic(
    plan: Tiled,
    values: Values,
    tiles: Floats64,
    loops: Floats64,
    pack: Mapping[int, np.ndarray],
    target: Target,
) -> tuple[Floats64, Floats64]:
    """Return bytes that pass each level of cache, and the bytes that tiles of each level read."""
    nest, text = plan.nest, plan.levels.text
    levels, count = len(text) + 1, tiles.shape[2]
    order = _order(plan, values, count)
    prints = np.stack([_bytes(r, tiles, pack.get(r.source), target) for r in nest.reads])
    results = np.prod(tiles[:, : nest.data], axis=1) * nest.itemsize
    footprints = np.sum(prints, axis=0)
    caches = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    found = np.zeros((3, count))
    for number, read in enumerate(nest.reads):
        reloads = np.stack([_reloads(plan, read, loops, order, b) for b in range(levels)])
        moved = prints[number] * reloads
        for c, cache in enumerate(caches):
            fits = footprints + results <= room_in(cache)
            first = np.argmax(fits, axis=0)
            passed = np.take_along_axis(moved, first[None, :], axis=0)[0]
            found[c] += np.where((first == 0) & fits[0], 0.0, passed)
    for c, cache in enumerate(caches):
        found[c] += nest.size * nest.itemsize * (nest.size * nest.itemsize > cache)
    return found, footprints


def _bytes(read: Read, tiles: Floats64, packed: np.ndarray | None, target: Target) -> Floats64:
    """Return the bytes of cache lines that tiles of each level read: [levels + 1, candidates]."""
    line = target.machine.line_bytes
    lines = np.stack([read.lines(t, line) for t in tiles])
    if packed is None:
        return lines
    dense = np.stack([read.elements(t) * read.itemsize for t in tiles])
    return np.where(packed[None, :], dense, lines)


def _reloads(plan: Tiled, read: Read, loops: Floats64, order: Ints, inside: int) -> Floats64:
    """Return how often the part that a tile reads is loaded: a loop without use of it keeps it."""
    nest, text = plan.nest, plan.levels.text
    count = loops.shape[2]
    times, started = np.ones(count), np.zeros(count, bool)
    uses = np.array([read.uses(a) for a in range(len(nest.extents))])
    every = np.arange(nest.data, len(nest.extents))
    for level in reversed(range(inside)):
        axes = order if text[level] == "S" else np.repeat(every[:, None], count, axis=1)
        counts = np.take_along_axis(loops[level], axes, axis=0)
        used = uses[axes]
        for k in reversed(range(len(axes))):
            started |= used[k] & (counts[k] > 1)
            times = np.where(started, times * counts[k], times)
    return times


def _packing(
    plan: Tiled,
    tiles: Floats64,
    loops: Floats64,
    pack: Mapping[int, np.ndarray],
    target: Target,
) -> tuple[Floats64, Floats64]:
    """Return the cycles to copy operands, and the bytes of the largest copy of a task."""
    count = tiles.shape[2]
    cycles, most = np.zeros(count), np.zeros(count)
    tasks = np.prod(loops[0], axis=0)
    for read in plan.nest.reads:
        if read.source in pack:
            size = np.where(pack[read.source], read.elements(tiles[1]) * read.itemsize, 0.0)
            cycles += tasks * size * 2 / target.machine.caches[2].bytes_per_cycle
            most = np.maximum(most, size)
    return cycles, most


def _tasks(plan: Tiled, values: Values, loops: Floats64, count: int) -> Floats64:
    """Return how many tasks the threads share."""
    order = _order(plan, values, count)
    tiled = len(plan.tiled_axes)
    depth = choice(values, plan.stage, "parallel", tiled, count)
    skipped = plan.nest.data - tiled
    counts = np.take_along_axis(loops[0], order, axis=0)
    tasks = np.ones(count)
    for k in range(tiled):
        tasks = np.where(k < depth, tasks * counts[skipped + k], tasks)
    return tasks


def _statements(
    plan: Tiled, tiles: Floats64, sums: Floats64, inner: Floats64, unroll: Ints
) -> tuple[Floats64, np.ndarray]:
    """Return how many multiply-adds are written out, rests of tiles included; True for few."""
    copies = np.ones(len(sums))
    for axis in plan.tiled_axes:
        extent = plan.nest.extents[axis]
        is_even = extent % tiles[-2][axis] == 0
        copies *= np.where(is_even, 1, np.where(tiles[1][axis] >= extent, 2, 3))
    written = np.where(unroll > 0, sums, 1) * np.where(unroll == 2, inner, 1) * copies
    small = (written <= MOST_STATEMENTS) & ((unroll != 2) | (inner > 1))
    return written, small & ((unroll == 0) | (sums <= plan.most_accumulators))
