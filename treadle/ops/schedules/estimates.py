# SPDX-License-Identifier: Apache-2.0
"""How long kernels take by the model that their templates choose by: of the tiles that they take.

The estimates of methods are these, so that what is compared is what would run. Cycles are those of
one core for all the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from treadle.cost.depthwise import WindowTaps, depthwise_cycles, lane_group_cycles
from treadle.cost.memory import (
    copy_cycles,
    memory_bytes_per_cycle,
    overlapped,
    scattered_cycles,
    stream_cycles,
    weight_cycles,
)
from treadle.cost.registers import (
    Taps,
    Tile,
    fma_cycles,
    image_cycles,
    steps_written_out,
    tile_set_cycles,
)
from treadle.cost.unknown import MATRIX_EXTENT
from treadle.ops.schedules.conv import image_tile
from treadle.ops.schedules.conv_reduction import may_cut
from treadle.ops.schedules.depthwise_tiles import depthwise_tile, lane_group_tile
from treadle.ops.schedules.matmul import joint_rows, matmul_tile
from treadle.ops.schedules.plain_conv import ConvTile, conv_tile, conv_tile_cycles
from treadle.ops.schedules.tiles import best_rows, row_pitch
from treadle.target.base import Target
from treadle.te.knobs import Knobs


@dataclass(frozen=True, slots=True)
class BlockedConvShape:
    """The sizes of a convolution on channel blocks that its cycles depend on.

    `images` of height x width results (depths count as images, a signal has a width of 1); `inputs`
    channels are summed at `positions` of the window for each of the `vectors` blocks of `block`
    output channels of each of the `groups`. With `taps` positions that meet padding are skipped.
    The innermost loop runs over the `inner` channels of a block of inputs.
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
    inner: int = 1


def conv2d_nchwc_cycles(shape: BlockedConvShape, target: Target) -> float:
    """Return the cycles of `schedule_conv2d_nchwc`.

    Weights come from memory once: the first tile of every panel of them waits where its products
    do not hide that. The schedule compares tiles as if every step were an iteration; what the steps
    that it writes out save counts here, where other methods are compared.
    """
    registers = max(1, shape.block // target.lanes(shape.dtype_bits))
    reduction = shape.inputs * shape.positions
    places = shape.height * shape.width
    cuts = may_cut(places, shape.inputs, shape.positions, shape.groups, target)
    tile = image_tile(
        (shape.height, shape.width), shape.vectors, target, registers, Knobs(),
        whole=shape.groups > 1, taps=shape.taps, reduction=0 if cuts else reduction,
    )  # fmt: skip
    wait = 0.0 if cuts else weight_cycles(reduction, tile.vectors * registers, target)
    image = (shape.height, shape.width, shape.vectors)
    row_bytes = shape.block * shape.dtype_bits // 8
    written_out = steps_written_out(shape.inner, row_bytes, tile.vectors * registers, target)
    steps = image_cycles(image, tile, registers, target, shape.taps, wait, written_out)
    cycles = shape.images * shape.inputs * steps * (1 if shape.taps else shape.positions)
    weights = reduction * shape.vectors * shape.block * shape.dtype_bits / 8
    places = max(1, shape.images * shape.height * shape.width)
    first = cycles * tile.high * tile.wide / places
    reading = weights / memory_bytes_per_cycle(target)
    return shape.groups * (cycles + max(0.0, reading - first))


def depthwise_nchwc_cycles(image: tuple[int, int], taps: WindowTaps, target: Target) -> float:
    """Return the cycles of `schedule_depthwise_nchwc` for one register of channels."""
    return depthwise_cycles(image, depthwise_tile(Knobs(), image, taps, target), taps, target)


def lane_group_nchwc_cycles(image: tuple[int, int], taps: WindowTaps, target: Target) -> float:
    """Return the cycles of `schedule_lane_groups` for one register of channels."""
    return lane_group_cycles(image, lane_group_tile(Knobs(), image, taps, target), taps, target)


@dataclass(frozen=True, slots=True)
class PlainConvShape:
    """The sizes of a convolution in the layout of the model that its cycles depend on.

    `images` of rows x columns results (depths count as images, a signal is one row) of `filters`
    output channels, of which `together` read the same `inputs` channels at `positions` of the
    window, `along` of them in a row. Along a row windows are `stride` apart.
    """

    images: int
    rows: int
    columns: int
    filters: int
    together: int
    inputs: int
    positions: int
    along: int = 1
    stride: int = 1
    dtype_bits: int = 32


@lru_cache(maxsize=4096)
def plain_conv_cycles(shape: PlainConvShape, target: Target) -> float:
    """Return the cycles of `schedule_plain_conv`.

    Weights come from memory once: the first strip of a tile of filters waits where its products do
    not hide that. Every tile reads a piece of each row of its inputs that its windows meet: what
    comes from the second cache is on its way while the products of the steps before are computed,
    but where vectors are put together of elements that lie apart.
    """
    lanes = target.lanes(max(32, shape.dtype_bits))
    extents = (shape.filters, shape.rows, shape.columns)
    groups, steps = shape.filters // shape.together, shape.inputs * shape.positions
    row_bytes = steps * shape.dtype_bits // 8
    tile = conv_tile(extents, shape.together, row_bytes, lanes, target, Knobs())
    whole = (shape.together, max(shape.rows, 1), max(shape.columns, 1))
    each = conv_tile_cycles(tile, whole, lanes, target, shape.stride)
    read = _tiles(shape, tile, lanes) * _input_cycles(shape, tile, lanes, target)
    products = steps * each
    waits = read if shape.stride > 1 else max(0.0, read - products)
    cycles = shape.images * groups * (products + waits)
    strips = whole[1] * -(-whole[2] // lanes)
    first = cycles * tile.height * tile.vectors / max(1, shape.images * strips)
    weights = shape.filters * steps * shape.dtype_bits / 8
    return cycles + max(0.0, weights / memory_bytes_per_cycle(target) - first)


def _tiles(shape: PlainConvShape, tile: ConvTile, lanes: int) -> int:
    """Return the tiles of the results that read the same channels of an image."""
    return (
        -(-shape.together // tile.filters)
        * -(-max(shape.rows, 1) // tile.height)
        * -(-max(shape.columns, 1) // _columns(shape, tile, lanes))
    )


def _columns(shape: PlainConvShape, tile: ConvTile, lanes: int) -> int:
    return min(tile.vectors * lanes, max(shape.columns, 1))


def _input_cycles(shape: PlainConvShape, tile: ConvTile, lanes: int, target: Target) -> float:
    """Return the cycles in which a tile's inputs come from the second cache, 0 from the first.

    Their rows lie apart.
    """
    itemsize = shape.dtype_bits // 8
    piece = tile.height * _columns(shape, tile, lanes) * shape.stride * itemsize
    plane = max(shape.rows, 1) * max(shape.columns, 1) * shape.stride * itemsize
    rows = shape.inputs * shape.positions // shape.along
    return scattered_cycles(rows, plane, piece, target)


@dataclass(frozen=True, slots=True)
class MatmulShape:
    """`matrices` of rows x steps, times one of steps x columns (or one each); 0: not known.

    `is_widened` is said of factors that are narrower than their products and lie as they are.
    """

    matrices: int
    rows: int
    columns: int
    steps: int
    dtype_bits: int = 32
    is_widened: bool = False


def dense_packed_cycles(shape: MatmulShape, width: int, target: Target) -> float:
    """Return the cycles of `schedule_panels` with panels of `width` columns."""
    lanes = target.lanes(shape.dtype_bits)
    columns, itemsize = -(-shape.columns // lanes), shape.dtype_bits // 8
    row_bytes = row_pitch(shape.rows, columns, shape.steps, itemsize, target)
    vectors = max(1, width // lanes)
    most = best_rows(0, vectors, row_bytes, target)
    joint = joint_rows(shape.matrices, shape.rows, most, Knobs())
    tile = Tile(joint or best_rows(shape.rows, vectors, row_bytes, target), vectors)
    matrices, rows = shape.matrices, shape.rows
    if tile.rows > rows > 0:  # of several matrices
        matrices, rows = 1, matrices * rows
    steps = _step_cycles(rows, columns, tile, target)
    copying = 0.0
    if row_bytes != shape.steps * itemsize:
        copying = copy_cycles(matrices * rows * row_bytes, target)
    return overlapped(copying + matrices * shape.steps * steps, reading_cycles(shape, target))


def _step_cycles(rows: int, vectors: int, tile: Tile, target: Target) -> float:
    """Return the cycles of one step over all rows; of a typical number of whole tiles for 0."""
    cycles = tile_set_cycles(rows or tile.rows, vectors, tile, 1, target)
    return cycles if rows else cycles * MATRIX_EXTENT / tile.rows


def matmul_cycles(shape: MatmulShape, target: Target) -> float:
    """Return the cycles of `schedule_matmul`.

    Every tile of rows reads a strip of the second factor, a piece of each of its rows.
    """
    lanes = target.lanes(shape.dtype_bits)
    itemsize = shape.dtype_bits // 8
    tile = matmul_tile((shape.rows, shape.columns), shape.steps * itemsize, lanes, target, Knobs())
    columns, count = (d or MATRIX_EXTENT for d in (shape.columns, shape.steps))
    vectors = -(-columns // lanes)
    steps = _step_cycles(shape.rows, vectors, tile, target)
    pieces = -(-(shape.rows or MATRIX_EXTENT) // tile.rows) * -(-vectors // tile.vectors)
    piece_bytes = min(tile.vectors * lanes, columns) * itemsize
    scattered = scattered_cycles(count, columns * itemsize, piece_bytes, target)
    widened = fma_cycles(tile.rows + tile.vectors, target) * count if shape.is_widened else 0.0
    products = shape.matrices * (count * steps + pieces * (scattered + widened))
    return overlapped(products, reading_cycles(shape, target))


def reading_cycles(shape: MatmulShape, target: Target) -> float:
    """Return the cycles of reading the second factor from memory once, during the products."""
    return stream_cycles(shape.steps * shape.columns * shape.dtype_bits / 8, target)
