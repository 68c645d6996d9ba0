# SPDX-License-Identifier: Apache-2.0
"""Products with constant weights by Strassen's algorithm: seven products of halves, not eight.

The estimate counts the fused multiply-adds of the register tiles, remainders included, and that
cores share whole pairs of panels; the vectors that sums of blocks touch, the kernel that makes them
and what cores read of each other's, which products of the same values share; and that weights are
read from memory once: their sums, 7/4 of them, or, where a run makes the sums, the weights, and
what it takes to make them. Sums of values that level 2 does not keep are read again for every pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import TypeVar

import numpy as np

from treadle.cost.forks import unevenness
from treadle.cost.memory import filled_bytes, filled_stack_bytes, overlapped
from treadle.cost.registers import Tile, tile_set_cycles
from treadle.cost.strassen import (
    combine_cycles,
    far_sums_cycles,
    first_tile_cycles,
    handed_on_cycles,
    level_of_products,
    most_rows_of_half,
    sum_cycles,
    sums_kernel_cycles,
    written_cycles,
)
from treadle.graph.nodes import Constant, Node
from treadle.limits import TILE_VECTORS
from treadle.ops import elementwise as ew
from treadle.ops.lowered.matmul_strassen import (
    BLOCKS,
    PRODUCTS,
    RIGHT,
    TRAILER,
    dense_strassen,
    strassen_blocks,
)
from treadle.ops.matmul import matmul
from treadle.ops.schedules.estimates import MatmulShape, reading_cycles
from treadle.ops.schedules.tiles import best_panel, best_rows
from treadle.optimize.channel_order import pack_panels, packed_constant
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.product import (
    ProductSite,
    extra_bytes,
)
from treadle.optimize.methods.product_panels import why_not_packed
from treadle.optimize.methods.strassen_weights import (
    column_units,
    divided,
    objection,
    pack_strassen,
)
from treadle.runtime.pages import release_pages
from treadle.settings import get
from treadle.target.base import Target

T = TypeVar("T")

_WORTHWHILE, _WORTHWHILE_AT_RUNTIME = 0.95, 0.97
"""The share of another method's cycles it may take: some must be gained for a larger rounding
error, and more for larger weights."""


def _applies(site: ProductSite) -> str | None:
    against = why_not_packed(site)
    if against is not None:
        return against
    if site.data.dtype != "float32" or not site.data.is_static:
        return "it is for float32 values of known sizes"
    shape = site.shape
    if shape.steps % 2 or min(shape.rows, shape.columns, shape.steps) < 2:
        return "it is for even depths and matrices of some hundred rows"
    if _products_bytes(shape, site.target) > filled_stack_bytes(site.target):
        return "the products of a pair of panels do not fit a core's cache"
    return None if get().winograd else "it is switched off"


def _applies_at_runtime(site: ProductSite) -> str | None:
    against = _applies(site)
    if against is not None:
        return against
    shape, target = site.shape, site.target
    made, products = shape.steps // 2 * _panel_bytes(shape, target), _products_bytes(shape, target)
    if made > filled_bytes(target, 2) or products + made > filled_stack_bytes(target):
        return "the sums of a panel do not fit a core's cache"
    return None


def _panel_bytes(shape: MatmulShape, target: Target) -> int:
    """Return the bytes of a row of a panel."""
    return 4 * strassen_width(shape, target)


def _products_bytes(shape: MatmulShape, target: Target) -> int:
    """Return the bytes of the products of a pair of panels and a part of the rows."""
    return PRODUCTS * half_of(shape.rows, target) * _panel_bytes(shape, target)


def half_of(rows: int, target: Target) -> int:
    """Return how many rows half a part of a matrix has; parts are about equally large."""
    most = 2 * most_rows_of_half(PRODUCTS, TILE_VECTORS * target.vector_bytes, target)
    return ceil(rows / 2 / ceil(rows / most))


def _row_bytes(shape: MatmulShape) -> int:
    """Return how far apart the sums of neighbouring rows lie."""
    return 4 * (shape.steps // 2 + TRAILER)


def strassen_width(shape: MatmulShape, target: Target) -> int:
    """Return the columns of a panel."""
    lanes = target.lanes()
    vectors = ceil(shape.columns / 2 / lanes)
    return lanes * best_panel(half_of(shape.rows, target), vectors, _row_bytes(shape), target)


def strassen_cycles(
    shape: MatmulShape, sharing: int, target: Target, *, at_runtime: bool = False
) -> float:
    """Return the cycles of one core for the products, the sums before and the sums after.

    `sharing` products read the same values, and the same sums of them. `at_runtime`: a run makes
    the sums of the weights, for each part of the rows anew.
    """
    lanes = target.lanes()
    half, wide = half_of(shape.rows, target), strassen_width(shape, target) // lanes
    parts = shape.matrices * ceil(shape.rows / (2 * half))
    tile = Tile(best_rows(half, wide, _row_bytes(shape), target), wide)
    pairs = ceil(shape.columns / (2 * lanes * wide))
    halves = pairs * wide
    products = parts * PRODUCTS * shape.steps / 2 * tile_set_cycles(half, halves, tile, 1, target)
    reading = reading_cycles(shape, target)
    level = level_of_products(_held_bytes(shape, half, wide, target), target)
    if at_runtime:
        read = int(np.count_nonzero(RIGHT)) / PRODUCTS
        more = first_tile_cycles(tile, read, target, level=level)
        products += parts * PRODUCTS * shape.steps / 2 * pairs * more
    else:
        reading *= PRODUCTS / BLOCKS
    products *= unevenness(parts * pairs, target)
    reading += parts * pairs * far_sums_cycles(PRODUCTS * half * _row_bytes(shape), target)
    vectors = parts * half * shape.steps / 2 / lanes  # of a block
    size = BLOCKS * target.vector_bytes * vectors  # of all blocks, which are the values
    sums = sum_cycles((BLOCKS + PRODUCTS) * vectors, target, in_memory=True)
    sums += sums_kernel_cycles(size, target)
    sums += handed_on_cycles(size, PRODUCTS / BLOCKS * size, target)
    results = shape.matrices * shape.rows * ceil(shape.columns / lanes)
    made = PRODUCTS / BLOCKS * results
    combined = written_cycles(made, target, level=level)
    combined += combine_cycles(made, results, target, level=level)
    return overlapped(products, reading) + sums / sharing + combined


def _held_bytes(shape: MatmulShape, half: int, wide: int, target: Target) -> int:
    """Return the bytes that pass through level 2 for a pair of panels `wide` vectors each.

    These are its products of `half` of a part's rows, the blocks of its weights and of the next
    pair, and the values of one product.
    """
    row = wide * target.vector_bytes
    return (PRODUCTS * half + BLOCKS * shape.steps) * row + half * _row_bytes(shape)


def _estimate(site: ProductSite, *, at_runtime: bool) -> float:
    return strassen_cycles(site.shape, site.sharing, site.target, at_runtime=at_runtime)


def _key(site: ProductSite, *, at_runtime: bool) -> tuple[str, Constant, int]:
    """Name the weights as they are laid out for the products of a method, which share them."""
    return _name(at_runtime), site.weights, strassen_width(site.shape, site.target)


def _name(at_runtime: bool) -> str:
    return "strassen-runtime" if at_runtime else "strassen"


def _growth(site: ProductSite) -> int:
    if site.shared.has(_key(site, at_runtime=False)):
        return 0
    table = site.weights.type.nbytes if site.is_looked_up else 0
    return table + extra_bytes(site.shape.steps, site.shape.columns)


def _growth_at_runtime(site: ProductSite) -> int:
    """Return the bytes of a table whose rows are looked up, where panels do not hold them."""
    if not site.is_looked_up or _units(site) is None:
        return 0
    return 0 if site.shared.has(_key(site, at_runtime=True)) else site.weights.type.nbytes


def _units(site: ProductSite) -> np.ndarray | None:
    """Return by what columns of weights are divided; looked for once per matrix."""
    return site.shared.once(("units", site.weights), lambda: _looked_at(site.weights, column_units))


def _looked_at(weights: Constant, look: Callable[[np.ndarray], T]) -> T:
    """Return what is found in weights, which need not be in memory until they are packed."""
    value = weights.value
    found = look(value)
    release_pages(value)
    return found


def _objects(site: ProductSite) -> str | None:
    """Say why weights stay as they are although that is slower; looked for once per matrix."""
    return site.shared.once(
        ("objection", site.weights), lambda: _looked_at(site.weights, objection)
    )


def _build(site: ProductSite, *, at_runtime: bool) -> Node:
    values, shape = site.plain_values(), site.shape
    half = half_of(shape.rows, site.target)
    sums = site.shared.once(
        ("sums", values), lambda: strassen_blocks(values, half=half, origin=site.origin)
    )
    key = _key(site, at_runtime=at_runtime)
    panels, units = site.shared.once(key, lambda: _packed(site, at_runtime=at_runtime))
    how = {"m": shape.rows, "n": shape.columns, "half": half, "plain_weights": at_runtime}
    made = dense_strassen(sums, panels, **how, origin=site.origin)
    return made if units is None else ew.multiply(made, units, origin=site.origin)


def _packed(site: ProductSite, *, at_runtime: bool) -> tuple[Constant, Constant | None]:
    """Return the panels of weights, and by what results are multiplied."""
    weights, units = site.weights, _units(site)
    width = strassen_width(site.shape, site.target)
    site.shared.grow(site.node, (_growth_at_runtime if at_runtime else _growth)(site))
    factors = None if units is None else Constant.of(units)
    if not at_runtime:
        return packed_constant(pack_strassen(weights.value, width, units), weights), factors
    if units is None:
        return site.panels(width, multiple=2), None
    return packed_constant(pack_panels(divided(weights.value, units), width, 2), weights), factors


def _method(*, at_runtime: bool) -> Method[ProductSite]:
    return Method(
        _name(at_runtime),
        matmul,
        _applies_at_runtime if at_runtime else _applies,
        partial(_estimate, at_runtime=at_runtime),
        partial(_build, at_runtime=at_runtime),
        worthwhile=lambda site: _WORTHWHILE_AT_RUNTIME if at_runtime else _WORTHWHILE,
        growth=_growth_at_runtime if at_runtime else _growth,
        objects=_objects,
        knobs=("panel width",),
        layout="weights in panels",
    )


product_strassen = tuple(_method(at_runtime=at_runtime) for at_runtime in (False, True))
