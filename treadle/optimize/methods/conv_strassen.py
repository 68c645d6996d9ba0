# SPDX-License-Identifier: Apache-2.0
"""1x1 convolutions by Strassen's algorithm, in blocks of channels.

The estimate counts, as that of products of matrices does (`product_strassen.py`), the register
tiles with their remainders, the vectors that sums and combination touch, and the weights from
memory, of which the first of the tiles that share a panel waits for its part. The results and the
seven products of a pair of panels must fit a core's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np
import numpy.typing as npt

from treadle.cost.forks import unevenness
from treadle.cost.memory import kept_bytes, level_cycles, local_bytes, shared_cycles, stream_cycles
from treadle.cost.registers import tile_steps
from treadle.cost.strassen import (
    combine_cycles,
    place_cycles,
    sum_cycles,
    sums_kernel_cycles,
)
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes
from treadle.limits import IMAGE_PARTS, TILE_VECTORS
from treadle.ops import elementwise as ew
from treadle.ops.conv import conv
from treadle.ops.lowered.conv_strassen import (
    conv2d_strassen_nchwc,
    strassen_blocks_nchwc,
    tiles_of,
)
from treadle.ops.lowered.matmul_strassen import BLOCKS, PRODUCTS
from treadle.optimize.blocked import Blocked
from treadle.optimize.channel_order import PADDING, ChannelOrder, pack_weights, packed_constant
from treadle.optimize.methods.convolution import ConvSite, why_not_in_blocks
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.product import (
    extra_bytes,
)
from treadle.optimize.methods.strassen_weights import column_units, objection, pack_strassen
from treadle.settings import get
from treadle.target.base import Target

_WORTHWHILE = 0.97
"""The share of another method's cycles it may take: the estimate is on the other's side."""

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PointwiseShape:
    """`batch` images of height x width results, from `inputs` to `outputs` blocks of channels.

    There is an even number of `inputs`; the last may be zeros.
    """

    batch: int
    height: int
    width: int
    inputs: int
    outputs: int
    block: int

    @property
    def positions(self) -> int:
        """How many results a channel has."""
        return self.height * self.width

    @property
    def steps(self) -> int:
        """How many channels are summed."""
        return self.inputs * self.block

    @property
    def columns(self) -> int:
        """How many output channels there are, padding lanes included."""
        return self.outputs * self.block


@dataclass(frozen=True, slots=True)
class PointwisePlan:
    """`rows` positions times `blocks` of output channels in registers; parts of `band` rows.

    `cycles`: what it all takes.
    """

    rows: int
    blocks: int
    band: int
    cycles: float


def _applies(site: ConvSite) -> str | None:
    against = why_not_in_blocks(site)
    if against is not None:
        return against
    if not _is_pointwise(site):
        return "it is for 1x1 convolutions of known float32 images without groups and padding"
    if not site.input_order.is_natural or site.input_order.block != site.block:
        return "it is for whole blocks of channels in their order"
    if _plan(site) is None:
        return "no part of the image and its products fit a core's cache"
    return None if get().winograd else "it is switched off"


def _is_pointwise(site: ConvSite) -> bool:
    return (
        site.data.ndim == 4
        and site.data.is_static
        and site.data.dtype == "float32"
        and site.groups == 1
        and site.kernel == (1, 1)
        and not any(a.is_padded for a in site.window)
    )


def _shape(site: ConvSite) -> PointwiseShape:
    n, _, high, wide = site.data.static_shape
    down, across = (a.stride for a in site.window)
    order = site.input_order
    chunks = order.chunks
    return PointwiseShape(
        n,
        -(-high // down),
        -(-wide // across),
        chunks + chunks % 2,
        ceil(site.filters / order.block),
        order.block,
    )


def _plan(site: ConvSite) -> PointwisePlan | None:
    return plan_pointwise(_shape(site), site.target)


def _estimate(site: ConvSite) -> float:
    plan = _plan(site)
    assert plan is not None
    return site.blocking_cycles() + plan.cycles


def _growth(site: ConvSite) -> int:
    shape = _shape(site)
    return extra_bytes(shape.steps, shape.columns)


def _objects(site: ConvSite) -> str | None:
    """Say why weights stay as they are although that is slower."""
    shape, w = _shape(site), site.known_weights.value
    outputs = ChannelOrder.natural(site.filters, shape.block)
    matrix = _matrix(w, site.input_order, outputs, shape.steps)
    return objection(matrix, site.input_order.channels)


def _build(site: ConvSite) -> Blocked:
    shape, plan = _shape(site), _plan(site)
    assert plan is not None
    chosen = plan
    site.shared.grow(site.node, _growth(site))
    source = site.blocked_input()
    order = ChannelOrder.natural(site.filters, site.block)

    def make(order: ChannelOrder) -> Node:
        return _made(site, source, order, shape, chosen)

    return Blocked(make(order), order, make)


def _made(
    site: ConvSite, source: Blocked, order: ChannelOrder, shape: PointwiseShape, plan: PointwisePlan
) -> Node:
    sums = _shared_sums(site, source, plan)
    matrix = _matrix(site.known_weights.value, source.order, order, shape.steps)
    factors = _units(matrix, order)
    width = plan.blocks * shape.block
    packed = packed_constant(pack_strassen(matrix, width, factors), site.known_weights)
    sizes = {"height": shape.height, "width": shape.width, "band": plan.band}
    made = conv2d_strassen_nchwc(sums, packed, filters=order.chunks, **sizes, origin=site.origin)
    if factors is None:
        return made
    units = Constant.of(factors.reshape(1, order.chunks, 1, 1, shape.block))
    return ew.multiply(made, units, origin=site.origin)


def _shared_sums(site: ConvSite, source: Blocked, plan: PointwisePlan) -> Node:
    """Return the sums of blocks of an image, which its convolutions of the same tiles share."""
    strides = known_sizes(a.stride for a in site.window)

    def make() -> Node:
        how = {"rows": plan.rows, "band": plan.band, "channels": source.order.channels}
        return strassen_blocks_nchwc(source.node, **how, strides=strides, origin=site.origin)

    return site.shared.once((source.node, plan.rows, plan.band, strides), make)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Register tiles side by side, an element each: of so many candidates cycles are computed at
    once. `rows`, `blocks` and `band` as in PointwisePlan."""

    rows: Counts
    blocks: Counts
    band: Counts

    def where(self, fits: npt.NDArray[np.bool_]) -> _Tiles:
        return _Tiles(self.rows[fits], self.blocks[fits], self.band[fits])


@lru_cache(maxsize=4096)
def plan_pointwise(shape: PointwiseShape, target: Target) -> PointwisePlan | None:
    """Return the register tile of the fewest cycles; None where nothing fits a core's cache."""
    tiles = _tiles(shape.height, max(1, shape.block // target.lanes()), target)
    tiles = tiles.where(_local_bytes(shape, tiles) <= local_bytes(target))
    if not tiles.rows.size:
        return None
    cycles = _cycles(shape, tiles, target)
    best = int(cycles.argmin())
    rows, blocks, band = (int(sizes[best]) for sizes in (tiles.rows, tiles.blocks, tiles.band))
    return PointwisePlan(rows, blocks, band, float(cycles[best]))


@lru_cache(maxsize=1 << 8)
def _tiles(height: int, registers: int, target: Target) -> _Tiles:
    """Return what may be taken for images of a height; a block takes so many registers."""
    found = [
        (rows, blocks, band)
        for band in sorted({ceil(height / parts) for parts in range(1, IMAGE_PARTS + 1)})
        for blocks in range(1, max(1, TILE_VECTORS // registers) + 1)
        for rows in range(1, (target.vector_registers - 1) // (blocks * registers))
    ]
    return _Tiles(*np.array(found, np.int64).reshape(-1, 3).T)


def _matrix(w: np.ndarray, inputs: ChannelOrder, outputs: ChannelOrder, steps: int) -> np.ndarray:
    """Return the weights of a 1x1 convolution as [steps, outputs], zeros below."""
    blocks = pack_weights(w, inputs, outputs)[:, :, 0, 0]
    matrix = blocks.transpose(1, 2, 0, 3).reshape(-1, len(outputs.places))
    return np.pad(matrix, [(0, steps - len(matrix)), (0, 0)])


def _units(matrix: np.ndarray, order: ChannelOrder) -> np.ndarray | None:
    """Return by what results are multiplied, as `column_units`; 1 in the padding of an order."""
    held = np.asarray(order.places) != PADDING
    units = column_units(matrix[:, held])
    if units is None:
        return None
    whole = np.ones(len(held), units.dtype)
    whole[held] = units
    return whole


def _local_bytes(shape: PointwiseShape, tiles: _Tiles) -> Counts:
    """Return what a thread keeps: seven products of half a part, and the results of the panels."""
    _, of_part = _parts(shape, tiles)
    sizes = PRODUCTS * of_part * tiles.rows + 2 * tiles.band * shape.width
    return 4 * shape.block * tiles.blocks * sizes


def _parts(shape: PointwiseShape, tiles: _Tiles) -> tuple[Counts, Counts]:
    """Return the parts of an image, and how many tiles half a part takes: `tiles_of` of each."""
    return tiles_of(shape.height, shape.width, tiles.rows, tiles.band)


def _cycles(shape: PointwiseShape, tiles: _Tiles, target: Target) -> Floats:
    rows, registers = tiles.rows, max(1, shape.block // target.lanes())
    parts, of_part = _parts(shape, tiles)
    parts = parts * shape.batch
    pairs = -(-shape.outputs // (2 * tiles.blocks))
    step_of, held = tile_steps(target), tiles.blocks * registers
    step = np.array([step_of(r, v) for r, v in zip(rows.tolist(), held.tolist(), strict=True)])
    products: Floats = PRODUCTS * shape.steps / 2 * parts * of_part * pairs * step
    products *= unevenness(parts * pairs, target)
    sums_bytes = (2 * PRODUCTS * of_part * rows * shape.steps).astype(np.float64)
    is_shared = parts % target.cores > 0
    weights = PRODUCTS * shape.steps * shape.columns
    reading = stream_cycles(weights, target) * np.where(is_shared, 1, target.cores)
    reading += (parts - 1) * level_cycles(weights, 3, target)
    waits = reading / of_part
    # Of shared parts a core reads what others made, for every pair unless its cache holds it.
    is_held = sums_bytes <= kept_bytes(target, 2)
    times = is_shared * np.where(is_held, 1, -(-pairs // target.cores))
    waits += parts * (target.cores - 1) * times * shared_cycles(sums_bytes, target)
    vectors = parts * of_part * rows * shape.inputs / 2 * registers  # of a block
    sums = sum_cycles((BLOCKS + PRODUCTS) * vectors, target, in_memory=True)
    sums += sums_kernel_cycles(BLOCKS * target.vector_bytes * vectors, target)
    made = shape.batch * shape.positions * shape.outputs * registers
    combined = combine_cycles(PRODUCTS / BLOCKS * made, made, target) + place_cycles(made, target)
    products = np.maximum(products, reading)
    return products + waits + sums + combined


conv_strassen = Method(
    "strassen",
    conv,
    _applies,
    _estimate,
    _build,
    worthwhile=lambda site: _WORTHWHILE,
    growth=_growth,
    objects=_objects,
    knobs=("block", "rows of a tile", "blocks of a panel", "band"),
    layout="NCHWc",
)
