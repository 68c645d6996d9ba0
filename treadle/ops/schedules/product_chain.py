# SPDX-License-Identifier: Apache-2.0
"""Products that follow each other, a block of rows through all of them: hidden layers stay near.

before:  h = gelu(x @ u); y = h @ v                  h passes level 3 or memory
after:   for each block of rows: h = gelu(x[block] @ u); y[block] = h @ v        h stays in level 2

Rows of a product depend on the same rows of its values alone, so threads share the blocks. What it
costs is that weights which level 2 does not hold are read again for every block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from treadle.cost.chains import OTHER_CODE, waiting_cycles
from treadle.cost.forks import unevenness
from treadle.cost.memory import (
    aligned_pitch,
    kept_bytes,
    local_bytes,
    rows_side_by_side,
    stream_cycles,
)
from treadle.cost.registers import Tile, tile_set_cycles
from treadle.graph.operator import Group
from treadle.limits import BLOCK_COUNTS, BLOCK_SIZES
from treadle.ops.schedules.default import schedule_operands
from treadle.ops.schedules.matmul import (
    accumulators_of,
    compute_tiles,
    fetch_steps_ahead,
    known_size,
    schedule_panels,
    share_next_panel,
    spread_rows,
    tile_result,
)
from treadle.ops.schedules.stages import (
    apart_from_result,
    axes_of,
    compute_of,
    inline_movement,
    inline_tail,
    is_long,
    itemsize_of,
    known,
    lanes_of,
)
from treadle.ops.schedules.tiles import best_rows, pick_rows
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import IterVar
from treadle.te.stage import Stage


@dataclass(frozen=True, slots=True)
class ChainedProduct:
    """One product of a chain: `steps` times `columns`, by panels of `width` columns."""

    steps: int
    columns: int
    width: int
    itemsize: int

    @property
    def weight_bytes(self) -> int:
        """The bytes of the panels."""
        return self.steps * -(-self.columns // self.width) * self.width * self.itemsize

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of its values."""
        return self.steps * self.itemsize

    def vectors(self, target: Target) -> int:
        """Return the vectors of a panel."""
        return max(1, self.width * self.itemsize // target.vector_bytes)


Chain = tuple[ChainedProduct, ...]


def chain_cycles(rows: int, chain: Chain, target: Target) -> float:
    """Return the cycles, of one core for all the work, of the products of a chain in one kernel.

    Weights come from memory once.
    """
    reading = stream_cycles(sum(p.weight_bytes for p in chain), target)
    return max(reading, min(cycles for _, cycles in _costs_of_blocks(rows, chain, target)))


@lru_cache(maxsize=4096)
def _costs_of_blocks(rows: int, chain: Chain, target: Target) -> tuple[tuple[int, float], ...]:
    """Return the blocks of rows that are compared, and the cycles with each of them.

    The largest whose values between the products stay in level 2 and on the stack, and such as are
    some times smaller: even ones, ones that all cores have as many of, and ones of whole tiles.
    """
    each = sum(_pitch(p, target) for p in chain[1:])
    most = max(1, min(rows, local_bytes(target) // each))
    fewest = -(-rows // most)
    tiles = {best_rows(0, p.vectors(target), p.row_bytes, target) for p in chain}
    step = -(-BLOCK_SIZES * fewest // BLOCK_COUNTS)
    counts = set(range(fewest, BLOCK_SIZES * fewest + 1, step))
    counts |= {-(-n // target.cores) * target.cores for n in counts}
    even = {-(-rows // n) for n in counts}
    sizes = even | {-(-b // t) * t for b in even for t in tiles}
    return tuple((b, _cycles(rows, chain, b, target)) for b in sorted(sizes) if b <= most)


def _cycles(rows: int, chain: Chain, block: int, target: Target) -> float:
    blocks, products, held = -(-rows // block), 0.0, 0
    for k, p in enumerate(chain):
        vectors = p.vectors(target)
        columns = -(-p.columns * p.itemsize // target.vector_bytes)
        pitch = _pitch(p, target) if k else p.row_bytes
        tile = Tile(best_rows(block, vectors, pitch, target), vectors)
        products += p.steps * tile_set_cycles(block, columns, tile, 1, target)
        held += block * pitch
    waits = waiting_cycles([p.weight_bytes for p in chain], held, target)
    own_code = 1 if rows % block == 0 else OTHER_CODE
    return own_code * unevenness(blocks, target) * blocks * (products + waits)


def _pitch(product: ChainedProduct, target: Target) -> int:
    """Return how far apart rows of values lie that this kernel makes: so that many stay near."""
    rows = best_rows(0, product.vectors(target), target.machine.line_bytes, target)
    if rows <= rows_side_by_side(product.row_bytes, target):
        return product.row_bytes
    return aligned_pitch(product.row_bytes, target)


def schedule_dense_packed(group: Group, target: Target, knobs: Knobs) -> None:
    """Schedule a product with panels of weights, or several of which each reads the one before."""
    totals = accumulators_of(group)
    if len(totals) == 1:
        schedule_panels(group, target, knobs)
    else:
        _schedule_chain(group, totals, target, knobs)


def _schedule_chain(group: Group, totals: Sequence[Stage], target: Target, knobs: Knobs) -> None:
    """Walk blocks of rows outside; the values between products are those of a block.

    parallel over blocks: for each product: its tiles of rows and panels, sums in registers over all
    of k, the tail, store.
    """
    s = group.schedule
    hidden = [s[compute_of(x).input_tensors[0]] for x in totals[1:]]
    inline_movement(group)
    for total, end in zip(totals, (*hidden, None), strict=True):
        inline_tail(s, total, end)
    sums = [apart_from_result(s, x, is_stored=x in hidden) for x in totals]
    schedule_operands(s, (*sums, *hidden), target, knobs)
    result = s[group.outputs[0]]
    m, n = compute_of(result).axis
    chain = tuple(map(_product_of, sums))
    costs = dict(_costs_of_blocks(known(m), chain, target))
    block = knobs.pick("block", costs, cost=lambda b: (round(costs[b]), -b))
    outer, inner = result.split(m, factor=block)
    result.reorder(outer, inner, n)
    if knobs.flag("parallel", default=is_long(sums[0], lanes_of(result, target), target)):
        result.parallel(outer)
    for stage in hidden:
        stage.compute_at(result, outer)
    for k, total in enumerate(sums):
        pitch = _pitch(chain[k], target) if k else chain[k].row_bytes
        if pitch != chain[k].row_bytes:
            spread_rows(hidden[k - 1], chain[k].itemsize, target)
        stage, axes = (hidden[k], axes_of(hidden[k])) if k < len(hidden) else (result, (inner, n))
        within = knobs.within(f"product{k + 1}")
        rows = pick_rows(within, block, chain[k].vectors(target), pitch, target)
        tile = Tile(rows, chain[k].vectors(target))
        _tile_product(stage, axes, total, tile, pitch, target, within)


def _product_of(sums: Stage) -> ChainedProduct:
    op = compute_of(sums)
    width = known_size(op.input_tensors[-1])
    return ChainedProduct(known(op.reduce_axis[0]), known(op.axis[-1]), width, itemsize_of(sums))


def _tile_product(
    stage: Stage,
    axes: Sequence[IterVar],
    sums: Stage,
    tile: Tile,
    row_bytes: int,
    target: Target,
    knobs: Knobs,
) -> None:
    """Compute a block of one product by tiles of rows and panels of weights.

    Knob "rows_first": panels that stay in level 2 pass by a tile of rows in level 1. Else the tiles
    of rows pass by a panel, and fetch the next one.
    """
    lanes, weights = lanes_of(stage, target), compute_of(sums).input_tensors[-1]
    m, n = tile_result(stage, (axes[0], axes[1]), tile, lanes)
    stay = _product_of(sums).weight_bytes <= kept_bytes(target, 2)
    rows_first = knobs.flag("rows_first", stay and tile.rows * row_bytes <= target.l1_bytes)
    order = (m, n) if rows_first else (n, m)
    stage.reorder(*order)
    compute_tiles(sums, stage, order[-1], lanes, knobs)
    fetch_steps_ahead(sums, weights, tile, target, knobs)
    if knobs.flag("fetch_panel", default=not rows_first):
        share_next_panel(sums, weights, tile, target)
