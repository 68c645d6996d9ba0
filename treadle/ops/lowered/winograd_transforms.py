# SPDX-License-Identifier: Apache-2.0
"""The transforms of Winograd's minimal filtering: matrices, and expressions that multiply by them.

A, B and G follow from m + 1 points at which polynomials are evaluated, and infinity
(Toom and Cook). The points come in pairs +-p: even and odd parts are shared, and any p costs the
same. They are picked for the least error; with 5/8 and 3/2 it is a quarter of that of the
usual 1 and 2, and all constants of the transforms stay exact in float32.

Rows and columns are filtered apart from each other, F(m, r) along each: m outputs of r taps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle import te
from treadle.cost.filtering import FilterAxis, images_of
from treadle.expr.nodes import Const, Expr
from treadle.expr.simplify import simplify
from treadle.ops.numeric import element_at

TILES = (2, 3, 4, 6)
"""Outputs of a tile along an axis."""
POINTS: dict[int, tuple[float, ...]] = {
    1: (),
    3: (1.0,),
    4: (1.0,),
    5: (0.5, 1.25),
    6: (0.625, 1.5),
    7: (0.25, 0.875, 1.75),
    8: (0.5, 1.0, 2.0),
}
"""By the number of points the positive ones; the others are their negatives, infinity, and 0 where
the number is even. One tap takes infinity alone."""


def filter_matrix(tile: int, taps: int) -> np.ndarray:
    """Return G as float64[tile + taps - 1, taps]: u = G g G^T are the transformed weights.

    Row i is the value of the filter at point i, over the product of that point's distances.
    """
    points = _finite_points(tile + taps - 1)
    rows = []
    for p in points:
        distances = [p - q for q in points if q != p]
        rows.append(np.power(p, np.arange(taps)) / np.prod(distances))
    return np.stack([*rows, np.eye(taps)[-1]])


def at_points(axes: Sequence[FilterAxis], w: np.ndarray) -> np.ndarray:
    """Return plain weights [oc/ob, chunks, ib, kh, kw, ob] at all points, as float64."""
    high, wide = axes
    down, across = (filter_matrix(axis.tile, axis.taps) for axis in axes)
    missing = [(0, axis.missing) for axis in axes]
    full = np.pad(w.astype(np.float64), [(0, 0), (0, 0), (0, 0), *missing, (0, 0)])
    split = full.reshape(*w.shape[:3], high.taps, high.stride, wide.taps, wide.stride, w.shape[-1])
    made: np.ndarray = np.einsum("ir,ocbrtslk,js->oijtlcbk", down, split, across)
    return made.reshape(len(w), high.points, wide.points, -1, *w.shape[2:6:3])


def input_matrix(tile: int, taps: int) -> np.ndarray:
    """Return B^T, a square of tile + taps - 1: products of (x - point), lowest power first."""
    points = _finite_points(tile + taps - 1)
    rows = [_poly([q for q in points if q != p]) for p in points]
    return np.stack([*(np.append(row, 0.0) for row in rows), _poly(points)])


def _poly(zeros: Sequence[float]) -> np.ndarray:
    """Return the coefficients of the polynomial with these zeros, lowest power first."""
    return np.atleast_1d(np.poly(zeros))[::-1]


def output_matrix(tile: int, taps: int) -> np.ndarray:
    """Return A^T as float64[tile, tile + taps - 1]: powers of the points."""
    powers = np.vander(_finite_points(tile + taps - 1), tile, increasing=True).T
    return np.concatenate([powers, np.eye(tile)[:, -1:]], axis=1)


def _finite_points(count: int) -> list[float]:
    """Return all of `count` points but infinity, which is the last."""
    return [0.0] * _has_zero(count) + [s * p for p in POINTS[count] for s in (1.0, -1.0)]


def _has_zero(count: int) -> bool:
    return count % 2 == 0


def filter_forms(g: Sequence[Expr], tile: int) -> list[Expr]:
    """Return G g of the taps of a window, one expression per row: the even taps, then the odd."""
    taps = [*range(0, len(g), 2), *range(1, len(g), 2)]
    rows = []
    for row in filter_matrix(tile, len(g))[:-1]:
        total = g[0] * Const.of(float(row[0]), g[0].dtype)
        for k in taps[1:]:
            if row[k]:
                total = _plus(total, float(row[k]), g[k])
        rows.append(total)
    return [*rows, g[-1]]


def input_forms(d: Sequence[Expr]) -> list[Expr]:
    """Return B^T d, one expression per row: the polynomial d seen without one point each."""
    points = POINTS[len(d)]
    squares = _without(points)
    zero = _has_zero(len(d))
    rows = [_weighted(squares, d[:-1:2])] if zero else []
    for p in points:
        others = _without([q for q in points if q != p])
        high, low = _weighted(others, d[1 + zero : -1 : 2]), _weighted(others, d[zero:-1:2])
        rows += [_plus(high, p, low), _plus(high, -p, low)]
    return [*rows, _weighted(squares, d[zero::2])]


def output_forms(m: Sequence[Expr], tile: int) -> list[Expr]:
    """Return A^T m, one expression per row: row k weighs the value at point p by p^k."""
    points = POINTS[len(m)]
    zero = _has_zero(len(m))
    pairs = [(m[zero + 2 * i], m[zero + 1 + 2 * i]) for i in range(len(points))]
    sums, differences = [a + b for a, b in pairs], [a - b for a, b in pairs]
    rows = []
    for k in range(tile):
        start = m[0] if k == 0 and zero else m[-1] if k == tile - 1 else None
        rows.append(_power_sum([p**k for p in points], differences if k % 2 else sums, start))
    return rows


def _without(points: Sequence[float]) -> list[float]:
    """Return the coefficients of the product of (x^2 - p^2), lowest first."""
    coefficients = np.ones(1)
    for p in points:
        coefficients = np.convolve(coefficients, [-p * p, 1.0])
    return [float(c) for c in coefficients]


def _weighted(coefficients: Sequence[float], values: Sequence[Expr]) -> Expr:
    """Return the sum of products; the last coefficient is 1."""
    total = values[-1]
    for c, value in zip(coefficients[:-1], values[:-1], strict=True):
        total = _plus(total, c, value)
    return total


def _power_sum(weights: Sequence[float], values: Sequence[Expr], start: Expr | None) -> Expr:
    total = start
    for w, value in zip(weights, values, strict=True):
        if total is None:
            total = value if w == 1.0 else value * Const.of(w, value.dtype)
        else:
            total = _plus(total, w, value)
    assert total is not None
    return total


def _plus(total: Expr, factor: float, value: Expr) -> Expr:
    if factor in (1.0, -1.0):
        return total + value if factor > 0 else total - value
    return te.fma(value, Const.of(factor, value.dtype), total)


def filter_transform(axes: Sequence[FilterAxis], w: te.Tensor) -> te.Tensor:
    """Return U = G g G^T, [oc/ob, point, point, chunk, ib, ob]; a row of G by its number.

    Chunks are ic/ib * kd, of each of the images of a stride.
    """
    high, wide = axes
    filters, chunks, ib, _, _, ob = w.shape
    matrix = filter_matrix(high.tile, high.taps)

    def at_point(o: Expr, i: Expr, j: Expr, c: Expr, icb: Expr, obk: Expr) -> Expr:
        phase, c = te.floordiv(c, chunks), te.floormod(c, chunks)
        top, left = te.floordiv(phase, wide.stride), te.floormod(phase, wide.stride)
        row = [element_at([Const.of(float(f), w.dtype) for f in tap], i) for tap in matrix.T]

        def tap(r: int, s: int) -> Expr:
            y, z = r * high.stride + top, s * wide.stride + left
            value, inside = w[o, c, icb, y, z, obk], []
            if (r + 1) * high.stride > high.kernel:
                inside.append(y < high.kernel)
            if (s + 1) * wide.stride > wide.kernel:
                inside.append(z < wide.kernel)
            return te.if_then_else(te.all(*inside), value, 0.0) if inside else value

        columns = []
        for s in range(wide.taps):
            total = tap(0, s)
            if high.taps > 1:
                total = total * row[0]
            for r in range(1, high.taps):
                total = te.fma(tap(r, s), row[r], total)
            columns.append(total)
        return element_at(filter_forms(columns, wide.tile), j)

    count = simplify(chunks * images_of(axes))
    shape = (filters, high.points, wide.points, count, ib, ob)
    return te.compute_one(shape, at_point, name="filter_transform")
