# SPDX-License-Identifier: Apache-2.0
"""Which candidates of a sketch keep all limits: of code, of registers, of buffers. Many at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treadle.cost.memory import local_bytes
from treadle.target.base import Target
from treadle.tune.sketch_nest import Floats64
from treadle.tune.sketch_places import Places, choice, distinct
from treadle.tune.sketch_plans import MOST_CODE, MOST_WRITTEN, Blocks, Simple, Sketch, Tiled
from treadle.tune.sketch_slots import Ints
from treadle.tune.sketch_tile_cost import tile_limits


@dataclass(frozen=True, eq=False)
class _Code:
    """The code of a plan: what stands in it once, and how often what is in its loops does."""

    statements: Floats64
    copies: Floats64


def within_limits(sketch: Sketch, rows: Ints, target: Target) -> NDArray[np.bool_]:
    """Return which candidates keep all limits, given as places in the tables of the slots."""
    where = Places(sketch, sketch.values(rows), len(rows))
    valid = np.ones(len(rows), bool)
    code: list[_Code] = []
    total = np.zeros(len(rows))
    for k, plan in enumerate(sketch.plans):
        nest = where.nests[k]
        held = np.prod(where.regions[k][: nest.data], axis=0) * nest.itemsize
        valid &= (where.host[k] < 0) | (held <= local_bytes(target))
        if isinstance(plan, Tiled):
            is_small, statements, copies = tile_limits(plan, k, where, target)
            valid &= is_small
            code.append(_Code(statements, copies))
        else:
            code.append(_code_of(plan, k, where))
        total += code[k].statements * _copies(code, where, k)
    return valid & (total <= MOST_CODE)


def _copies(code: list[_Code], where: Places, k: int) -> Floats64:
    """Return how many times a plan stands in the code of the loops that it is in."""
    found = np.ones(where.count)
    for h in distinct(where.host[k]):
        if h >= 0:
            own = code[h].copies * _copies(code, where, h)
            found = np.where(where.host[k] == h, own, found)
    return found


def _code_of(plan: Simple | Blocks, k: int, where: Places) -> _Code:
    ones = np.ones(where.count)
    if isinstance(plan, Simple):
        return _Code(ones, ones)
    written = written_out(plan, k, where)[0]
    statements = written * max(1.0, plan.parts.operations / 2) * plan.parts.copies
    return _Code(statements, plan.parts.copies * ones)


def written_out(plan: Blocks, k: int, where: Places) -> tuple[Floats64, NDArray[np.bool_]]:
    """Return how many vectors of a plan are written out, and where those are all."""
    region, roles = where.regions[k], [d.role for d in plan.digits]
    vectors = np.prod(region[[r != "lanes" for r in roles]], axis=0)
    chosen = np.prod(region[[r == "chosen" for r in roles]], axis=0)
    inner = np.prod(region[[r == "inner" for r in roles]], axis=0)
    out = choice(where.values, plan.stage, "out", 2, where.count)
    is_alone = (where.host[k] >= 0) & (where.is_host(k) == 0)
    is_whole = (out == 2) & is_alone & (vectors <= MOST_WRITTEN)
    return np.where(is_whole, vectors, chosen * np.where(out > 0, inner, 1)), is_whole
