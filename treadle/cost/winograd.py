# SPDX-License-Identifier: Apache-2.0
"""Cycles of Winograd convolutions: transforms of groups of tiles, products of all points, waits.

Tiles are taken in groups, so that their transformed inputs, V, stay in a cache until all output
channels have read them; the products of a panel of output channels, M, never leave the core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from treadle.cost.forks import fork_cycles, unevenness
from treadle.cost.memory import (
    filled_bytes,
    kept_bytes,
    level_cycles,
    local_bytes,
    memory_bytes_per_cycle,
    remote_cycles,
    shared_bytes_per_cycle,
)
from treadle.cost.registers import Tile, fma_cycles, tile_set_cycles
from treadle.limits import TILE_VECTORS, TRANSFORMED_BYTES
from treadle.target.base import Target

_OPERATIONS = {3: 5, 4: 6, 5: 3, 6: 4}
"""Of a transform, per vector of V or M, by points along an axis."""
_FILTER_OPERATIONS = 3
"""Of the transform of weights, per vector at a point: columns of taps, and a row of points."""
_FILTER_MOVES = 2.6
"""How often a vector at a point that level 1 does not hold moves to or from level 2."""
_TAPS = 9
"""Weights of a window."""
_MOVES = {3: 0.0, 4: 0.0, 5: 1.5, 6: 1.5}
"""How often a transform moves a vector of V or M to or from level 2, by points along an axis: the
25 or 36 values of a tile do not stay in registers as 16 do, nor those of a row of tiles in level 1.
Fitted to Zen 5 with vectors of 512 bits and to Golden Cove with vectors of 256."""
_SEEN_INPUTS = 0.25
"""The share of the time of reading V again from level 2 or 3 that multiplications do not hide."""
_SEEN_WEIGHTS = 0.08
"""The share of the time of reading weights again from level 3 that multiplications do not hide."""
_SHARED_ROOM = 4
"""How many times a core's level 2 V may take where the cores read it from level 3."""


@dataclass(frozen=True, slots=True)
class WinogradShape:
    """Sizes of one convolution: tiles down and across, channels, bytes.

    Tiles of `dilations` phases interleave, down and across. A `stride` takes the image apart into
    several, whose channels all count as `inputs`; the last `unused` of each are not multiplied.
    Channels are those of all `groups`. `plain_weights` are transformed by each run. An element has
    `itemsize` bytes.
    """

    tile: int
    down: int
    across: int
    inputs: int
    outputs: int
    block: int
    batch: int = 1
    dilations: tuple[int, int] = (1, 1)
    stride: int = 1
    unused: int = 0
    groups: int = 1
    plain_weights: bool = False
    itemsize: int = 4

    @property
    def side(self) -> int:
        """How many points a tile takes along an axis."""
        return self.tile + (2 if self.stride == 1 else 1)

    @property
    def points(self) -> int:
        """How many values of a transform a tile has per channel."""
        return self.side**2

    @property
    def products(self) -> int:
        """How many products a tile has per output channel: odd images have none at infinity."""
        used = self.reduced - self.unused * self.stride**2
        if self.stride == 1:
            return self.points * used
        return (2 * self.tile + 1) ** 2 * used // 4

    @property
    def reduced(self) -> int:
        """How many of the inputs an output channel sums."""
        return self.inputs // self.groups

    @property
    def vectors(self) -> int:
        """How many vectors of outputs a group has."""
        return self.outputs // self.groups // self.block

    @property
    def weight_bytes(self) -> int:
        """The weights at all points."""
        return self.itemsize * self.points * self.reduced * self.outputs

    def row_bytes(self, vectors: int) -> int:
        """The weights of a panel of so many vectors at a row of points."""
        return self.itemsize * self.side * self.reduced * vectors * self.block

    def v_bytes(self, tiles: int) -> int:
        """The transformed inputs of some tiles."""
        return self.itemsize * self.points * self.inputs * tiles


@dataclass(frozen=True, slots=True)
class Grouping:
    """Tiles that are transformed together: `rows` of `columns`; whether threads share panels.

    Tiles of sums in registers go on from one row to the next where rows are `joint`. Plain weights
    are transformed before all groups where they are `apart`, else for each group.
    """

    rows: int
    columns: int
    by_panel: bool
    joint: bool = True
    apart: bool = False

    @property
    def runs(self) -> tuple[int, int]:
        """Return how many runs of tiles register tiles walk along, and how long one is."""
        return (1, self.rows * self.columns) if self.joint else (self.rows, self.columns)


def fits_group(shape: WinogradShape, target: Target, group: Grouping) -> bool:
    """True when V, and the products of the widest panel, find room in the caches."""
    tiles = group.rows * group.columns
    widest = min(shape.outputs, TILE_VECTORS * shape.block)
    products = shape.itemsize * shape.points * widest * tiles
    local = local_bytes(target)
    return (
        shape.v_bytes(tiles) <= (_SHARED_ROOM * target.l2_bytes if group.by_panel else local)
        and products <= local
    )


def fits_weights(shape: WinogradShape, target: Target, vectors: int) -> bool:
    """True when what a run makes of a panel's plain weights stays in level 2, and on the stack."""
    return shape.row_bytes(vectors) <= local_bytes(target)


def fits_apart(shape: WinogradShape, target: Target) -> bool:
    """True when all that a run makes of plain weights stays in the caches."""
    room = min(kept_bytes(target, 3), TRANSFORMED_BYTES)
    return shape.plain_weights and shape.weight_bytes <= room


def winograd_cycles(
    shape: WinogradShape, target: Target, group: Grouping, registers: Tile, width: int
) -> float:
    """Return the cycles of one core for a grouping; a vector takes `width` registers."""
    return cycles_of_tiles(shape, target, group, width)(registers)


def cycles_of_tiles(
    shape: WinogradShape, target: Target, group: Grouping, width: int
) -> Callable[[Tile], float]:
    """Return `winograd_cycles` as a function of the register tile.

    What tiles have in common is computed once: a grouping has some dozen of them.
    """
    tiles, by_panel = group.rows * group.columns, group.by_panel
    groups = shape.batch * shape.down * shape.across // tiles
    of_groups = _cycles_of_groups(shape, target, group, groups, width)
    v_bytes, outputs, block = shape.v_bytes(tiles), shape.outputs, shape.block
    speed = shared_bytes_per_cycle(target)
    # Every core reads all of V, of which the others have made most.
    handed_on = groups * (target.cores - 1) * remote_cycles(v_bytes, target) if by_panel else 0.0
    forks = (2 * groups if by_panel else 1) * fork_cycles(target)
    if group.apart:
        forks += fork_cycles(target)

    def cycles(registers: Tile) -> float:
        work = of_groups(registers)
        jobs = ceil(outputs / block / registers.vectors) if by_panel else groups
        if v_bytes > target.l2_bytes:
            work += _SEEN_INPUTS * groups * jobs * v_bytes / speed
        work += handed_on
        share = unevenness(jobs, target)
        if by_panel:  # the last panel may be narrower than the others
            share *= jobs * registers.vectors * block / outputs
        return work * max(1.0, share) + forks

    return cycles


def _cycles_of_groups(
    shape: WinogradShape, target: Target, group: Grouping, groups: int, width: int
) -> Callable[[Tile], float]:
    """Return, of a register tile, the cycles of all groups: products, transforms, weights."""
    vectors, tiles = shape.outputs // shape.block, group.rows * group.columns
    runs, length = group.runs
    sums, weights = shape.products, shape.weight_bytes
    if shape.plain_weights and not group.apart:
        weights = weights * _TAPS // shape.points
    times = groups if weights > kept_bytes(target, 2) else 1
    speed = memory_bytes_per_cycle(target) if times == 1 else shared_bytes_per_cycle(target)
    seen = 0.0
    if weights > target.l2_bytes:
        seen = _SEEN_WEIGHTS * (times - 1) * weights / shared_bytes_per_cycle(target)
    touched = tiles * shape.points * (shape.inputs + shape.outputs) / shape.block * width
    transforms = fma_cycles(touched * _OPERATIONS[shape.side], target)
    moved = _MOVES[shape.side] * touched * target.vector_bytes
    transforms += level_cycles(moved, 2, target)
    of_weights = _filter_cycles(shape, target, group, groups, width)
    wait_of = _weight_waits(shape, target, tiles, width)

    def cycles(registers: Tile) -> float:
        wait = wait_of(registers)
        steps = runs * tile_set_cycles(length, vectors, registers, width, target, wait)
        products = sums * steps
        waits = times * max(0.0, weights / speed - products) + seen
        return groups * (products + transforms) + waits + of_weights(registers)

    return cycles


def _filter_cycles(
    shape: WinogradShape, target: Target, group: Grouping, groups: int, width: int
) -> Callable[[Tile], float]:
    """Return, of a register tile, the cycles of transforming weights in all groups.

    Where level 1 does not hold a panel's row of points, each vector written comes from level 2 and
    goes back, and is read from there. All weights at once may come from and go to level 3.
    """
    if not shape.plain_weights:
        return lambda _: 0.0
    made = shape.points * shape.reduced * shape.outputs / shape.block * width
    work, moved = fma_cycles(made * _FILTER_OPERATIONS, target), made * target.vector_bytes
    if group.apart:
        level = 2 if shape.weight_bytes <= filled_bytes(target, 2) else 3
        once = work + level_cycles(_FILTER_MOVES * moved, level, target)
        return lambda _: once
    kept = filled_bytes(target, 1)

    def cycles(registers: Tile) -> float:
        moves = 1 if shape.row_bytes(registers.vectors) <= kept else _FILTER_MOVES
        return groups * (work + level_cycles(moves * moved, 2, target))

    return cycles


def holds_a_tile(tile: int, points: int, target: Target) -> bool:
    """True when registers hold the rows of an output transform, a column of products, the factors.

    If not, the rows go through memory, column by column and row by row.
    """
    factors = tile * (tile - 1) // 2
    return tile * points + points + factors <= target.vector_registers


def _weight_waits(
    shape: WinogradShape, target: Target, tiles: int, width: int
) -> Callable[[Tile], float]:
    """Return, of a register tile, the cycles to read a vector of weights that several passes take.

    0 where one pass over a point takes them or the first cache holds those of a point.
    """
    size, kept = target.vector_bytes, kept_bytes(target, 1)
    of_vector, read = shape.reduced * width * size, level_cycles(size, 2, target)

    def wait(registers: Tile) -> float:
        stays = of_vector * registers.vectors <= kept
        return 0.0 if stays or tiles <= registers.rows else read

    return wait
