# SPDX-License-Identifier: Apache-2.0
"""Templates without a kernel: spaces of which everything is known, and what candidates take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from treadle.te.knobs import Config, Knobs, Space
from treadle.tune.search import Search
from treadle.tune.template import Point, TemplateSpace


@dataclass(frozen=True)
class Tile:
    rows: int
    vectors: int


TILES = [Tile(r, v) for v in range(1, 7) for r in (1, 2, 3, 4, 6, 8, 12, 16)]


def tiled(knobs: Knobs) -> None:
    """Bands depend on the tile, how far to fetch on the order, and a small tile has one more knob.

    The tile's model is right but for a factor of two; nobody knows the rest.
    """
    tile = knobs.pick("tile", TILES, cost=lambda t: 1.0 + abs(math.log2(t.rows * t.vectors / 12)))
    bands = [n for n in (1, 2, 4, 8, 16, 32, 48, 64) if n % tile.rows == 0 or n == 1]
    knobs.pick("band", bands, cost=lambda b: 1.0 + abs(b - 16) / 64)
    order = knobs.option("order", "inner", ("outer", "both"))
    knobs.option("ahead", 4, (0, 2, 8) if order == "inner" else (0, 1))
    knobs.flag("unroll", True)
    if tile.rows < 3:
        knobs.flag("join", False)


def seconds(config: Config) -> float:
    """Return what a configuration of `tiled` takes: least at 8 x 3, band 32, both, 1, no unroll."""
    values = dict(config.values)
    rows, vectors = values["tile"]  # type: ignore[misc]  # a pair
    time = 1.0 + 0.4 * abs(math.log2(rows * vectors / 24)) + 0.1 * abs(vectors - 3)  # type: ignore[operator]
    time += 0.2 * abs(math.log2(values["band"] / 32))  # type: ignore[operator]
    time += {"inner": 0.3, "outer": 0.2, "both": 0.0}[str(values["order"])]
    time += 0.1 * (values["ahead"] != 1) + 0.2 * bool(values["unroll"])
    return 1e-3 * time


LEAST = 1e-3


def foreseen(config: Config) -> float:
    """Return what a configuration takes where the models are right: least next to the default."""
    values = dict(config.values)
    rows, vectors = values["tile"]  # type: ignore[misc]  # a pair
    time = 1.0 + 0.4 * abs(math.log2(rows * vectors / 12)) + 0.1 * abs(vectors - 3)  # type: ignore[operator]
    time += 0.1 * abs(math.log2(values["band"] / 16))  # type: ignore[operator]
    time += {"inner": 0.0, "outer": 0.2, "both": 0.1}[str(values["order"])]
    time += 0.05 * (values["ahead"] != 2) + 0.1 * (not values["unroll"])
    return 1e-3 * time


def tiled_space() -> TemplateSpace:
    return TemplateSpace(Space(tiled))


def small(knobs: Knobs) -> None:
    """Ten configurations: a second knob of which the candidates depend on the first."""
    count = knobs.pick("count", (1, 2, 3, 4), cost=lambda n: abs(n - 2) + 1)
    knobs.option("place", 0, range(count))


def measured(
    search: Search[Point],
    space: TemplateSpace,
    trials: int,
    batch: int = 16,
    time: Callable[[Config], float] = seconds,
) -> list[float]:
    """Return what the candidates of a search took, in the order they were proposed."""
    taken: list[float] = []
    while len(taken) < trials and (proposed := search.propose(min(batch, trials - len(taken)))):
        choices = [space.choice(point) for point in proposed]
        times = [None if c is None else time(c) for c in choices]
        search.tell(proposed, times)
        taken += [t for t in times if t is not None]
    return taken


def mean_best(runs: Sequence[Sequence[float]]) -> float:
    """Return the mean of the best of each run."""
    return float(np.mean([min(run) for run in runs]))
