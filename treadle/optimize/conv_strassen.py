# SPDX-License-Identifier: Apache-2.0
"""Which 1x1 convolutions run by Strassen's algorithm, and their weights.

Both ways are estimated in cycles of one core, as for products of matrices (`optimize/strassen.py`):
the register tiles with their remainders, the vectors that sums and combination touch, and the
weights from memory, of which the first of the tiles that share a panel waits for its part. The
results and the seven products of a pair of panels must fit a core's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from treadle.cost.forks import unevenness
from treadle.cost.memory import level_cycles, local_bytes, memory_bytes_per_cycle, remote_cycles
from treadle.cost.registers import image_cycles, tile_cycles
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.types import TensorType, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.conv import ConvAttrs
from treadle.ops.lowered.conv_strassen import conv2d_strassen_nchwc, strassen_blocks_nchwc, tiles_of
from treadle.ops.lowered.matmul_strassen import PRODUCTS
from treadle.ops.schedules.tiles import best_window_tile
from treadle.optimize.channels import GAP, ChannelOrder, pack_weights, packed_constant
from treadle.optimize.strassen import (
    BUSY,
    COMBINE_CYCLES,
    KERNEL_CYCLES,
    SUM_CYCLES,
    Budget,
    ProductShape,
    are_rows_even,
    column_units,
    extra_bytes,
    pack_strassen,
)
from treadle.settings import get
from treadle.target.base import Target

_FAR_SUM_CYCLES = 6.0
"""As `SUM_CYCLES`, where they would take much of the last cache."""
LEAST_VECTORS = 2
"""Registers of a panel: a narrower one would read the sums of the image too often."""
MOST_PARTS = 8
"""Parts of an image at most: each reads all weights."""
WORTHWHILE = 0.97
"""The share of the direct way's cycles it may take: the estimate is on the direct way's side."""
_PLACE_CYCLES = 2.0
"""Per vector of the result: it is read again to go where it belongs."""


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


@dataclass(frozen=True, slots=True)
class PointwisePlan:
    """`rows` positions times `blocks` of output channels in registers; parts of `band` rows.

    `cycles`: what it all takes.
    """

    rows: int
    blocks: int
    band: int
    cycles: float


class PointwiseStrassen:
    """The 1x1 convolutions of a function that run so; those of the same image share its sums."""

    def __init__(self, target: Target, budget: Budget) -> None:
        self.target = target
        self.budget = budget
        self.sums: dict[tuple[Node, tuple[int, ...], tuple[int, ...]], Node] = {}

    def clear(self) -> None:
        """Let go of the images."""
        self.sums.clear()

    def maker(
        self, node: Call, source: Node, inputs: ChannelOrder, w: Constant
    ) -> tuple[Callable[[ChannelOrder], Node] | None, Callable[[], str]]:
        """Return what makes the convolution `node` in a channel order, and the reasons in words.

        `source` is its image with channels in the order `inputs`. None: it runs the direct way.
        """
        attrs = node.attrs
        assert isinstance(attrs, ConvAttrs)
        shape = pointwise_shape(attrs, tensor_type(source.type), tensor_type(w.type), inputs)
        if shape is None:
            return None, lambda: "Strassen's algorithm is for 1x1 convolutions of known images"
        plan = plan_pointwise(shape, self.target)
        direct = _direct(shape, self.target)
        objection = self._objection(shape, inputs, w) if _is_faster(plan, direct) else ""

        def why() -> str:
            fast = "does not fit a core's cache" if plan is None else f"{plan.cycles / 1e3:.0f}"
            allowed = "" if get().winograd else "; it is switched off"
            text = f"estimated thousands of cycles: direct {direct / 1e3:.0f}, Strassen {fast}"
            return text + objection + allowed

        if plan is None or objection or not get().winograd or not _is_faster(plan, direct):
            return None, why
        self.budget.spare_bytes -= extra_bytes(_product(shape))
        chosen = plan
        return lambda order: self._made(node, source, inputs, w, order, shape, chosen), why

    def _objection(self, shape: PointwiseShape, inputs: ChannelOrder, w: Constant) -> str:
        """Return why weights stay as they are although that is slower."""
        if extra_bytes(_product(shape)) > self.budget.spare_bytes:
            return "; the weights of the model would grow too much"
        outputs = ChannelOrder.natural(w.value.shape[0], shape.block)
        if not are_rows_even(_matrix(w.value, inputs, outputs, shape.steps), inputs.channels):
            return "; channels of small weights would lose digits beside those of large ones"
        return ""

    def _made(
        self,
        node: Call,
        source: Node,
        inputs: ChannelOrder,
        w: Constant,
        order: ChannelOrder,
        shape: PointwiseShape,
        plan: PointwisePlan,
    ) -> Node:
        strides = node.attrs.strides or (1, 1)  # type: ignore[union-attr]  # of a convolution
        key = source, (plan.rows, plan.band), strides
        if key not in self.sums:
            tiles = {"rows": plan.rows, "band": plan.band}
            how = {**tiles, "channels": inputs.channels, "strides": strides}
            self.sums[key] = strassen_blocks_nchwc(source, **how, origin=node.origin)
        matrix = _matrix(w.value, inputs, order, shape.steps)
        factors = _units(matrix, order)
        width = plan.blocks * shape.block
        packed = packed_constant(pack_strassen(matrix, width, factors), w)
        sizes = {
            "filters": order.chunks,
            "height": shape.height,
            "width": shape.width,
            "band": plan.band,
        }
        made = conv2d_strassen_nchwc(self.sums[key], packed, **sizes, origin=node.origin)
        if factors is None:
            return made
        units = Constant.of(factors.reshape(1, order.chunks, 1, 1, shape.block))
        return ew.multiply(made, units, origin=node.origin)


def pointwise_shape(
    attrs: ConvAttrs, image: TensorType, weights: TensorType, inputs: ChannelOrder
) -> PointwiseShape | None:
    """Return the sizes of a convolution of an image in blocks; None for what is not possible."""
    if image.ndim != 5 or not image.is_static or image.dtype != "float32" or attrs.groups != 1:
        return None
    filters, _, *kernel = weights.static_shape
    padded = any((*attrs.pads_before, *attrs.pads_after))
    if kernel != [1, 1] or padded or not inputs.is_natural:
        return None
    n, chunks, high, wide, block = image.static_shape
    down, across = attrs.strides or (1, 1)
    return PointwiseShape(
        n, -(-high // down), -(-wide // across), chunks + chunks % 2, ceil(filters / block), block
    )


def plan_pointwise(shape: PointwiseShape, target: Target) -> PointwisePlan | None:
    """Return the register tile of the fewest cycles; None where nothing fits a core's cache."""
    registers = max(1, shape.block // target.lanes())
    local = local_bytes(target)
    plans = [
        PointwisePlan(rows, blocks, band, _cycles(shape, rows, blocks, band, target))
        for band in sorted({ceil(shape.height / parts) for parts in range(1, MOST_PARTS + 1)})
        for blocks in range(max(1, LEAST_VECTORS // registers), max(1, 4 // registers) + 1)
        for rows in range(1, (target.vector_registers - 1) // (blocks * registers))
        if _local_bytes(shape, rows, blocks, band) <= local
    ]
    return min(plans, key=lambda plan: plan.cycles, default=None)


def _matrix(w: np.ndarray, inputs: ChannelOrder, outputs: ChannelOrder, steps: int) -> np.ndarray:
    """Return the weights of a 1x1 convolution as [steps, outputs], zeros below."""
    blocks = pack_weights(w, inputs, outputs)[:, :, 0, 0]
    matrix = blocks.transpose(1, 2, 0, 3).reshape(-1, len(outputs.places))
    return np.pad(matrix, [(0, steps - len(matrix)), (0, 0)])


def _units(matrix: np.ndarray, order: ChannelOrder) -> np.ndarray | None:
    """Return by what results are multiplied, as `column_units`; 1 in the gaps of an order."""
    held = np.asarray(order.places) != GAP
    units = column_units(matrix[:, held])
    if units is None:
        return None
    whole = np.ones(len(held), units.dtype)
    whole[held] = units
    return whole


def _is_faster(plan: PointwisePlan | None, direct: float) -> bool:
    return plan is not None and plan.cycles <= WORTHWHILE * direct


def _product(shape: PointwiseShape) -> ProductShape:
    columns = shape.outputs * shape.block
    return ProductShape(shape.batch, shape.positions, columns, shape.steps)


def _local_bytes(shape: PointwiseShape, rows: int, blocks: int, band: int) -> int:
    """Return what a thread keeps: seven products of half a part, and the results of the panels."""
    _, tiles = tiles_of(shape.height, shape.width, rows, band)
    return 4 * blocks * shape.block * (PRODUCTS * tiles * rows + 2 * band * shape.width)


def _cycles(shape: PointwiseShape, rows: int, blocks: int, band: int, target: Target) -> float:
    registers = max(1, shape.block // target.lanes())
    parts, of_part = tiles_of(shape.height, shape.width, rows, band)
    parts *= shape.batch
    pairs = ceil(shape.outputs / (2 * blocks))
    step = tile_cycles(rows, blocks * registers, target)
    products = PRODUCTS * shape.steps / 2 * parts * of_part * pairs * step
    jobs = parts * pairs
    products *= unevenness(jobs, target)
    sums_bytes = 2 * PRODUCTS * of_part * rows * shape.steps
    is_shared = parts % target.cores > 0
    weights = PRODUCTS * shape.steps * shape.outputs * shape.block
    reading = weights / (BUSY * memory_bytes_per_cycle(target)) * (1 if is_shared else target.cores)
    reading += (parts - 1) * level_cycles(weights, 3, target)
    waits = reading / of_part
    if is_shared:  # a core reads what others made, again for every pair unless its cache holds it
        times = 1 if sums_bytes <= target.l2_bytes // 2 else ceil(pairs / target.cores)
        waits += parts * (target.cores - 1) * times * remote_cycles(sums_bytes, target)
    touched = (4 + PRODUCTS) * parts * of_part * rows * shape.inputs / 2 * registers
    is_far = 4 * target.lanes() * touched > target.l3_bytes // 8
    sums = touched * (_FAR_SUM_CYCLES if is_far else SUM_CYCLES) + KERNEL_CYCLES
    made = shape.batch * shape.positions * shape.outputs * registers
    return max(products, reading) + waits + sums + made * (COMBINE_CYCLES + _PLACE_CYCLES)


def _direct(shape: PointwiseShape, target: Target) -> float:
    registers = max(1, shape.block // target.lanes())
    image = (shape.height, shape.width, shape.outputs)
    tile = best_window_tile(*image, target, registers=registers, reduction=shape.steps)
    cycles = shape.batch * shape.steps * image_cycles(image, tile, registers, target)
    weights = 4 * shape.steps * shape.outputs * shape.block
    reading = weights / (BUSY * memory_bytes_per_cycle(target))
    return max(cycles, reading) + reading * tile.high * tile.wide / shape.positions
