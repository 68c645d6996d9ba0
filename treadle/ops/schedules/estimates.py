# SPDX-License-Identifier: Apache-2.0
"""How long kernels take by the model that their templates choose by: of the tiles that they take.

The estimates of methods are these, so that what is compared is what would run. Cycles are those of
one core for all the work.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.cost.depthwise import WindowTaps, depthwise_cycles
from treadle.cost.memory import memory_bytes_per_cycle, stream_cycles, weight_cycles
from treadle.cost.registers import Taps, Tile, image_cycles, load_cycles, tile_set_cycles
from treadle.ops.schedules.conv import image_tile
from treadle.ops.schedules.depthwise_tiles import depthwise_tile
from treadle.ops.schedules.matmul import joint_rows, matmul_tile
from treadle.ops.schedules.plain_conv import conv_tile, conv_tile_cost
from treadle.ops.schedules.tiles import best_rows
from treadle.target.base import Target
from treadle.te.knobs import Knobs

_TYPICAL_EXTENT = 128
"""What an extent of a matrix that only a run knows counts as."""


@dataclass(frozen=True, slots=True)
class BlockedConvShape:
    """The sizes of a convolution on channel blocks that its cycles depend on.

    `images` of height x width results (depths count as images, a signal has a width of 1); `inputs`
    channels are summed at `positions` of the window for each of the `vectors` blocks of `block`
    output channels of each of the `groups`. With `taps` positions that meet padding are skipped.
    """

    images: int
    height: int
    width: int
    inputs: int
    positions: int
    vectors: int
    block: int
    groups: int = 1
    taps: tuple[Taps, Taps] | None = None
    dtype_bits: int = 32


def conv2d_nchwc_cycles(shape: BlockedConvShape, target: Target) -> float:
    """Return the cycles of `schedule_conv2d_nchwc`.

    Weights come from memory once: the first tile of every panel of them waits where its products
    do not hide that.
    """
    registers = max(1, shape.block // target.lanes(shape.dtype_bits))
    reduction = shape.inputs * shape.positions
    tile = image_tile(
        (shape.height, shape.width), shape.vectors, target, registers, Knobs(),
        whole=shape.groups > 1, taps=shape.taps, reduction=reduction,
    )  # fmt: skip
    wait = weight_cycles(reduction, tile.vectors * registers, target)
    image = (shape.height, shape.width, shape.vectors)
    steps = image_cycles(image, tile, registers, target, shape.taps, wait)
    cycles = shape.images * shape.inputs * steps * (1 if shape.taps else shape.positions)
    weights = reduction * shape.vectors * shape.block * shape.dtype_bits / 8
    places = max(1, shape.images * shape.height * shape.width)
    first = cycles * tile.high * tile.wide / places
    reading = weights / memory_bytes_per_cycle(target)
    return shape.groups * (cycles + max(0.0, reading - first))


def depthwise_nchwc_cycles(image: tuple[int, int], taps: WindowTaps, target: Target) -> float:
    """Return the cycles of `schedule_depthwise_nchwc` for one register of channels."""
    return depthwise_cycles(image, depthwise_tile(Knobs(), image, taps, target), taps, target)


@dataclass(frozen=True, slots=True)
class PlainConvShape:
    """The sizes of a convolution in the layout of the model that its cycles depend on.

    `images` of rows x columns results (depths count as images, a signal is one row) of `filters`
    output channels, of which `together` read the same `inputs` channels at `positions` of the
    window. Along a row windows are `stride` apart.
    """

    images: int
    rows: int
    columns: int
    filters: int
    together: int
    inputs: int
    positions: int
    stride: int = 1
    dtype_bits: int = 32


def plain_conv_cycles(shape: PlainConvShape, target: Target) -> float:
    """Return the cycles of `schedule_plain_conv`.

    Inputs a stride apart are gathered into a vector one by one. Weights come from memory once: the
    first strip of a tile of filters waits where its products do not hide that.
    """
    lanes = target.lanes(max(32, shape.dtype_bits))
    extents = (shape.filters, shape.rows, shape.columns)
    tile = conv_tile(extents, shape.together, lanes, target, Knobs())
    whole = (shape.together, max(shape.rows, 1), max(1, -(-shape.columns // lanes)))
    gathered = load_cycles(lanes, target) if shape.stride > 1 else 0.0
    strips = -(-whole[0] // tile.filters) * whole[1] * whole[2]
    groups, steps = shape.filters // shape.together, shape.inputs * shape.positions
    each = conv_tile_cost(tile, whole, target)[0] + strips * gathered
    cycles = shape.images * groups * steps * each
    first = cycles * tile.height * tile.vectors / max(1, shape.images * whole[1] * whole[2])
    weights = shape.filters * steps * shape.dtype_bits / 8
    return cycles + max(0.0, weights / memory_bytes_per_cycle(target) - first)


@dataclass(frozen=True, slots=True)
class MatmulShape:
    """`matrices` of rows x steps, times one of steps x columns (or one each); 0: not known."""

    matrices: int
    rows: int
    columns: int
    steps: int
    dtype_bits: int = 32


def dense_packed_cycles(shape: MatmulShape, width: int, target: Target) -> float:
    """Return the cycles of `schedule_dense_packed` with panels of `width` columns."""
    lanes = target.lanes(shape.dtype_bits)
    row_bytes = shape.steps * shape.dtype_bits // 8
    vectors = max(1, width // lanes)
    most = best_rows(0, vectors, row_bytes, target)
    joint = joint_rows(shape.matrices, shape.rows, most, Knobs())
    tile = Tile(joint or best_rows(shape.rows, vectors, row_bytes, target), vectors)
    matrices, rows = shape.matrices, shape.rows or _TYPICAL_EXTENT
    if tile.rows > rows:  # of several matrices
        matrices, rows = 1, matrices * rows
    steps = tile_set_cycles(rows, -(-shape.columns // lanes), tile, 1, target)
    return max(matrices * shape.steps * steps, reading_cycles(shape, target))


def matmul_cycles(shape: MatmulShape, target: Target) -> float:
    """Return the cycles of `schedule_matmul`."""
    lanes = target.lanes(shape.dtype_bits)
    tile = matmul_tile(shape.rows, shape.columns, lanes, target, Knobs())
    rows, columns, count = (d or _TYPICAL_EXTENT for d in (shape.rows, shape.columns, shape.steps))
    steps = tile_set_cycles(rows, -(-columns // lanes), tile, 1, target)
    return max(shape.matrices * count * steps, reading_cycles(shape, target))


def reading_cycles(shape: MatmulShape, target: Target) -> float:
    """Return the cycles of reading the second factor from memory once, during the products."""
    return stream_cycles(shape.steps * shape.columns * shape.dtype_bits / 8, target)
