# SPDX-License-Identifier: Apache-2.0
"""Cycles of Winograd convolutions: transforms of groups of tiles, products of all points, waits.

Tiles are taken in groups, so that their transformed inputs, V, stay in a cache until all output
channels have read them; the products of a panel of output channels, M, never leave the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, prod

from treadle.cost.filtering import FilterAxis, filter_axes, images_of
from treadle.cost.forks import fork_cycles, unevenness
from treadle.cost.memory import (
    filled_bytes,
    kept_bytes,
    level_cycles,
    local_bytes,
    memory_bytes_per_cycle,
    shared_bytes_per_cycle,
    shared_cycles,
    spares_buffers,
)
from treadle.cost.registers import Tile, fma_cycles, steps_written_out, tile_set_cycles
from treadle.limits import TILE_VECTORS, TRANSFORMED_BYTES
from treadle.target.base import Target

_OPERATIONS = {1: 0, 3: 2.5, 4: 3, 5: 1.5, 6: 2, 7: 3, 8: 3}
"""Of a transform along an axis, per vector of V or M, by points."""
_FILTER_OPERATIONS = 3
"""Of the transform of weights, per vector at a point: columns of taps, and a row of points."""
_FILTER_MOVES = 1.3
"""How often a vector at a point that level 1 does not hold moves to or from level 2."""
_KEPT_VALUES, _MOVES, _MOVES_OF_AXIS = 16, 1.5, 0.75
"""How many values of a tile stay in registers, and how often a transform moves a vector of V or M
of more to or from level 2: nor do those of a row of tiles stay in level 1. Where one axis is
filtered, values stay in registers, and what is moved is V and M. Fitted to Zen 5 and Golden Cove
with vectors of 512 and of 256 bits, and to Zen 3."""
_SEEN_INPUTS = 0.25
"""The share of the time of reading V again from level 2 or 3 that multiplications do not hide."""
_SEEN_WEIGHTS = 0.08
"""The share of the time of reading weights again from level 3 that multiplications do not hide."""
_SHORT_PANELS = 0.5
"""The share of memory's rate at which the panels of single points come where level 1 waits for few
lines at once: 512 channels at 7x7 on Cascade Lake, read at 6 of 12 GB/s. So do those that are read
again and are more than these cores' share of level 3, which others fill."""
_SHARED_ROOM = 4
"""How many times a core's level 2 V may take where the cores read it from level 3."""


@dataclass(frozen=True, slots=True)
class Depth:
    """How a window moves along the depth of a volume, of which the outputs have `frames`.

    Each of its `taps`, `gap` apart, meets another of the frames read, which move on by `stride`.
    """

    frames: int = 1
    taps: int = 1
    stride: int = 1
    gap: int = 1

    def read(self, frames: int) -> int:
        """Return how many frames some neighbouring ones of the outputs meet, or go past."""
        return (frames - 1) * self.stride + (self.taps - 1) * self.gap + 1


@dataclass(frozen=True, slots=True)
class WinogradShape:
    """Sizes of one convolution: tiles down and across, channels, bytes.

    Tiles of `dilations` phases interleave, down and across. A `stride` takes the image apart into
    several, whose channels all count as `inputs`; the last `unused` of each are not multiplied.
    Channels are those of all `groups`. `plain_weights` are transformed by each run. An element has
    `itemsize` bytes. Where the columns of `across` are the positions of a volume's images, `row`
    are those of one row of an image.

    The frames of a volume's outputs are images of the `batch`, which meet others along the `depth`.
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
    kernel: tuple[int, int] = (3, 3)
    row: int = 0
    depth: Depth = Depth()

    @property
    def axes(self) -> tuple[FilterAxis, FilterAxis]:
        """How rows and columns are filtered."""
        return filter_axes(self.tile, self.kernel, self.stride, self.dilations)

    @property
    def images(self) -> int:
        """How many images a stride takes an image apart into."""
        return images_of(self.axes)

    @property
    def points(self) -> int:
        """How many values of a transform a tile has per channel."""
        return prod(axis.points for axis in self.axes)

    @property
    def products(self) -> int:
        """How many products a tile has per output channel: odd images have none at infinity."""
        used = self.reduced - self.unused * self.images
        return prod(axis.products for axis in self.axes) * used // self.images

    @property
    def reduced(self) -> int:
        """How many of the inputs an output channel sums, those of all frames it meets."""
        return self.inputs // self.groups * self.depth.taps

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
        return self.itemsize * self.axes[1].points * self.reduced * vectors * self.block

    def v_bytes(self, tiles: int, frames: int = 1) -> int:
        """The transformed inputs of some tiles of so many frames of the outputs."""
        return self.itemsize * self.points * self.inputs * tiles * self.depth.read(frames)


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


def fits_group(shape: WinogradShape, target: Target, group: Grouping, frames: int = 1) -> bool:
    """True when V, and the products of the widest panel, find room in the caches."""
    tiles = group.rows * group.columns
    widest = min(shape.outputs, TILE_VECTORS * shape.block)
    products = shape.itemsize * shape.points * widest * tiles * frames
    local = local_bytes(target)
    room = _SHARED_ROOM * target.l2_bytes if group.by_panel else local
    return shape.v_bytes(tiles, frames) <= room and products <= local


def fits_weights(shape: WinogradShape, target: Target, vectors: int) -> bool:
    """True when what a run makes of a panel's plain weights stays in level 2, and on the stack."""
    return shape.row_bytes(vectors) <= local_bytes(target)


def stays_near(shape: WinogradShape, target: Target, vectors: int, share: float = 1.0) -> bool:
    """True when level 2 keeps a panel's taps and what a run makes of them for a row of points.

    All rows of points then read the taps there. `share` is the part of the input channels summed.
    """
    taps = shape.itemsize * prod(shape.kernel) * shape.reduced * vectors * shape.block
    return share * (taps + shape.row_bytes(vectors)) <= kept_bytes(target, 2)


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
    shape: WinogradShape, target: Target, group: Grouping, width: int, frames: int = 1
) -> Callable[[Tile], float]:
    """Return `winograd_cycles` as a function of the register tile; `frames` are taken together.

    What tiles have in common is computed once: a grouping has some dozen of them.
    """
    tiles, by_panel = group.rows * group.columns, group.by_panel
    groups = shape.batch * shape.down * shape.across // (tiles * frames)
    of_groups = _cycles_of_groups(shape, target, group, groups, width, frames)
    v_bytes, outputs, block = shape.v_bytes(tiles, frames), shape.outputs, shape.block
    speed = shared_bytes_per_cycle(target)
    # Every core reads all of V, of which the others have made most, and writes its part again.
    shared = groups * (target.cores - 1) * shared_cycles(v_bytes, target) if by_panel else 0.0
    forks = (2 * groups if by_panel else 1) * fork_cycles(target)
    if group.apart:
        forks += fork_cycles(target)

    def cycles(registers: Tile) -> float:
        work = of_groups(registers)
        jobs = ceil(outputs / block / registers.vectors) if by_panel else groups
        if v_bytes > filled_bytes(target, 2):
            work += _SEEN_INPUTS * groups * jobs * v_bytes / speed
        work += shared
        share = unevenness(jobs, target)
        if by_panel:  # the last panel may be narrower than the others
            share *= jobs * registers.vectors * block / outputs
        return work * max(1.0, share) + forks

    return cycles


def _cycles_of_groups(
    shape: WinogradShape, target: Target, group: Grouping, groups: int, width: int, frames: int
) -> Callable[[Tile], float]:
    """Return, of a register tile, the cycles of all groups: products, transforms, weights."""
    vectors, tiles = shape.outputs // shape.block, group.rows * group.columns
    runs, length = group.runs
    runs *= frames
    sums, weights = shape.products, shape.weight_bytes
    if shape.plain_weights and not group.apart:
        weights = weights * prod(shape.kernel) // (shape.points * shape.images)
    times = groups if weights > kept_bytes(target, 2) else 1
    speed = memory_bytes_per_cycle(target) if times == 1 else shared_bytes_per_cycle(target)
    is_far = times == 1 or weights > target.cores * target.machine.caches[-1].part
    if is_far and not spares_buffers(target):
        speed *= _SHORT_PANELS
    seen = 0.0
    if weights > target.l2_bytes:
        seen = _SEEN_WEIGHTS * (times - 1) * weights / shared_bytes_per_cycle(target)
    channels = shape.depth.read(frames) * shape.inputs + frames * shape.outputs
    touched = tiles * shape.points * channels / shape.block * width
    operations = sum(_OPERATIONS[axis.points] for axis in shape.axes)
    transforms = fma_cycles(touched * operations, target)
    moves = _MOVES if shape.points > _KEPT_VALUES else 0.0
    if min(shape.kernel) == 1:
        moves = _MOVES_OF_AXIS
    transforms += level_cycles(moves * touched * target.vector_bytes, 2, target)
    of_weights = _filter_cycles(shape, target, group, groups, width)
    block, row_bytes = shape.block, shape.block * shape.itemsize
    wait_of = _weight_waits(shape, target, tiles * frames, width)

    def cycles(registers: Tile) -> float:
        wait = wait_of(registers)
        # Where a line holds several steps, what an iteration takes besides hides behind its
        # multiply-adds: writing the steps out gains 0 to 3 % on Zen 3.
        written_out = steps_written_out(block, row_bytes, registers.vectors * width, target)
        steps = runs * tile_set_cycles(length, vectors, registers, width, target, wait, written_out)
        products = sums * steps
        waits = times * max(0.0, weights / speed - products) + seen
        return groups * (products + transforms) + waits + of_weights(registers)

    return cycles


def _filter_cycles(
    shape: WinogradShape, target: Target, group: Grouping, groups: int, width: int
) -> Callable[[Tile], float]:
    """Return, of a register tile, the cycles of transforming weights in all groups.

    Where level 1 does not hold a panel's row of points, each vector written comes from level 2 and
    goes back, and is read from there. All weights at once may come from and go to level 3; where
    cores have tiles of their own each reads what the others have made of them. Each row of points
    reads all taps of the panel: what comes from level 3 for that hides behind arithmetic only where
    level 1 waits for many lines at once.
    """
    if not shape.plain_weights:
        return lambda _: 0.0
    made = shape.points * shape.reduced * shape.outputs / shape.block * width
    work, moved = fma_cycles(made * _FILTER_OPERATIONS, target), made * target.vector_bytes
    if group.apart:
        level = 2 if shape.weight_bytes <= filled_bytes(target, 2) else 3
        once = work + level_cycles(_FILTER_MOVES * moved, level, target)
        if not group.by_panel:
            once += (target.cores - 1) * shared_cycles(shape.weight_bytes, target)
        return lambda _: once
    kept = filled_bytes(target, 1)
    taps = shape.itemsize * prod(shape.kernel) * shape.reduced * shape.outputs
    read = 0 if spares_buffers(target) else shape.axes[0].points * taps * images_of(shape.axes)

    def cycles(registers: Tile) -> float:
        row = shape.row_bytes(registers.vectors)
        moves = 1 if row <= kept else _FILTER_MOVES
        is_near = stays_near(shape, target, registers.vectors)
        reading = 0.0 if is_near else level_cycles(read, 3, target)
        return groups * (work + level_cycles(moves * moved, 2, target) + reading)

    return cycles


def holds_a_tile(axes: Sequence[FilterAxis], target: Target) -> bool:
    """True when registers hold the rows of an output transform, a column of products, the factors.

    Factors take no register where arithmetic reads them from memory. If not, the rows go through
    memory, column by column and row by row.
    """
    high, wide = axes
    factors = 0 if target.has_memory_operands else high.tile * (high.tile - 1) // 2
    return high.tile * wide.points + high.points + factors <= target.vector_registers


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
