# SPDX-License-Identifier: Apache-2.0
"""Candidates of sketches as numbers that a cost model learns from, all at once.

The columns are the same for every sketch and every task, so that what was learnt of one kernel says
something of another: sizes are logarithms, bytes are relative to the caches, sums to the registers.
Those of tiles are about the plan with the most multiply-adds; they are 0 where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treadle.target.base import Target
from treadle.tune.sketch_cost import Costs
from treadle.tune.sketch_nest import Floats64
from treadle.tune.sketch_places import choice
from treadle.tune.sketch_plans import Tiled
from treadle.tune.sketch_tile_cost import PlanCosts
from treadle.tune.space import Floats

_DEPTHS = ("task", "outer", "reduced", "middle", "register")
"""The tiles that features tell of: what is inside of each level of loops but the last."""
_SHORT = {"SSRSRS": (1, 2, 3, 4, 5), "SRS": (1, 1, 1, 1, 2)}
"""By structure: after how many levels each of them comes."""
_CACHES = ("l1", "l2", "l3")

NAMES: tuple[str, ...] = (
    *(f"{depth}.{what}" for depth in _DEPTHS
      for what in ("results", "terms", "bytes_l1", "bytes_l2", "bytes_l3", "intensity")),
    "register.rows", "register.vectors", "accumulators", "accumulators.spilled", "lane_use",
    "step_per_sum", "statements", "unroll", "unroll.reduction", "at", "first", "vectorize", "pack",
    "fetch", "tiled.points",
    "compute", "traffic_l1", "traffic_l2", "traffic_l3", "tasks_per_core", "unevenness",
    "is_parallel", "plans", "plans.inside", "plans.repeats", "plans.parallel", "plain.compute",
    "plain.traffic", "plain.lanes", "plain.square", "cycles", "cycles.compute_share",
)  # fmt: skip
"""What each column is. Sizes, counts and cycles are logarithms to base 2."""


def features_of(costs: Costs) -> Floats:
    """Return float32[candidates, len(NAMES)]."""
    tiled = [p for p in costs.plans if isinstance(p.plan, Tiled)]
    main = max(tiled or costs.plans, key=lambda p: p.nest.points, default=None)
    columns = [*_of_tiles(main, costs), *_of_main(main, costs), *_of_all(costs)]
    return np.nan_to_num(np.stack(columns, axis=1)).astype(np.float32)


def _log(x: Floats64) -> Floats64:
    return np.log2(np.maximum(x, 0) + 1e-3)


def _of_tiles(main: PlanCosts | None, costs: Costs) -> Iterator[Floats64]:
    """Yield what tells of the tiles of several levels."""
    zeros = np.zeros(costs.count)
    if main is None or main.tiled is None or not isinstance(main.plan, Tiled):
        for _ in range(6 * len(_DEPTHS) + 15):
            yield zeros
        return
    plan, found, target = main.plan, main.tiled, costs.target
    data = main.nest.data
    for level in _SHORT[plan.levels.text]:
        yield _log(np.prod(found.tiles[level, :data], axis=0))
        yield _log(np.prod(found.tiles[level, data:], axis=0))
        yield from (_log(found.footprints[level] / c) for c in _cache_bytes(target))
        yield _log(found.intensity[level])
    register = found.tiles[-2]
    yield _log(np.prod(np.delete(register[:data], plan.vector, axis=0), axis=0))
    yield _log(register[plan.vector] / plan.lanes)
    yield _log(found.accumulators / target.vector_registers)
    yield np.maximum(0, found.accumulators - target.vector_registers + 2)
    yield found.lane_use
    yield _log(found.step_cycles / np.maximum(found.accumulators, 1))
    yield _log(found.statements)
    unroll = choice(costs.values, plan.stage, "unroll", 1, costs.count)
    yield (unroll > 0).astype(float)
    yield (unroll > 1).astype(float)
    for name in ("at", "first", "vectorize"):
        yield choice(costs.values, plan.stage, name, 0, costs.count).astype(float)
    for name, numbers in (("pack", plan.packable), ("fetch", plan.fetchable)):
        every = [choice(costs.values, plan.stage, f"{name}{n}", 0, costs.count) for n in numbers]
        yield np.max(np.stack(every), axis=0).astype(float) if every else zeros
    yield zeros + np.log2(main.nest.points)


def _cache_bytes(target: Target) -> tuple[int, int, int]:
    return target.l1_bytes, target.l2_bytes, target.l3_bytes


def _of_main(main: PlanCosts | None, costs: Costs) -> Iterator[Floats64]:
    """Yield what the heaviest plan moves and how threads share it."""
    if main is None:
        for _ in range(7):
            yield np.zeros(costs.count)
        return
    cores = costs.target.cores
    yield _log(main.compute)
    yield from (_log(level) for level in main.traffic)
    yield _log(main.tasks / cores)
    yield np.ceil(main.tasks / cores) * cores / np.maximum(main.tasks, 1)
    yield main.is_parallel


def _of_all(costs: Costs) -> Iterator[Floats64]:
    """Yield sums over all plans, and over those of plain loops."""
    zeros = np.zeros(costs.count)
    yield zeros + len(costs.plans)
    yield sum(costs.inside, zeros)
    yield _log(sum((p.compute for p in costs.plans), zeros))
    yield sum((p.is_parallel for p in costs.plans), zeros)
    plain = [p for p in costs.plans if not isinstance(p.plan, Tiled)]
    yield _log(sum((p.compute for p in plain), zeros))
    yield _log(sum((p.traffic[1] for p in plain), zeros))
    for name in ("lanes", "square"):
        every = [choice(costs.values, p.plan.stages[0], name, 0, costs.count) for p in plain]
        yield _log(np.max(np.stack(every), axis=0).astype(float)) if every else zeros
    yield _log(costs.cycles)
    yield sum((p.compute for p in costs.plans), zeros) / np.maximum(costs.cycles, 1)
