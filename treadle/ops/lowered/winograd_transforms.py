# SPDX-License-Identifier: Apache-2.0
"""The transforms of Winograd's minimal filtering: matrices, and expressions that multiply by them.

A, B and G follow from m + 1 points at which polynomials are evaluated, and infinity
(Toom and Cook). The points come in pairs +-p: even and odd parts are shared, and any p costs the
same. They are picked for the least error; with 5/8 and 3/2 it is a quarter of that of the
usual 1 and 2, and all constants of the transforms stay exact in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle import te
from treadle.expr.nodes import Const, Expr
from treadle.ops.numeric import element_at

KERNEL = 3
"""Height and width of the windows."""
TILES = (2, 3, 4)
"""Heights and widths of the tiles of outputs: rounding errors of larger ones are too large."""
POINTS: dict[int, tuple[float, ...]] = {3: (1.0,), 4: (1.0,), 5: (0.5, 1.25), 6: (0.625, 1.5)}
"""By the number of points the positive ones; the others are their negatives, infinity, and 0 where
the number is even."""


def taps_of_phase(stride: int) -> int:
    """Return how many taps of the window rows (or columns) a stride apart meet at most."""
    return -(-KERNEL // stride)


def filter_matrix(tile: int, taps: int = KERNEL) -> np.ndarray:
    """Return G as float64[tile + taps - 1, taps]: u = G g G^T are the transformed weights.

    Row i is the value of the filter at point i, over the product of that point's distances.
    """
    points = _finite_points(tile + taps - 1)
    rows = []
    for p in points:
        distances = [p - q for q in points if q != p]
        rows.append(np.power(p, np.arange(taps)) / np.prod(distances))
    return np.stack([*rows, np.eye(taps)[-1]])


def at_points(tile: int, w: np.ndarray) -> np.ndarray:
    """Return plain weights [oc/ob, chunks, ib, 3, 3, ob] at all points, as float64."""
    matrix = filter_matrix(tile)
    made: np.ndarray = np.einsum("ir,ocbrsk,js->oijcbk", matrix, w.astype(np.float64), matrix)
    return made


def input_matrix(tile: int, taps: int = KERNEL) -> np.ndarray:
    """Return B^T, a square of tile + taps - 1: products of (x - point), lowest power first."""
    points = _finite_points(tile + taps - 1)
    rows = [np.poly([q for q in points if q != p])[::-1] for p in points]
    return np.stack([*(np.append(row, 0.0) for row in rows), np.poly(points)[::-1]])


def output_matrix(tile: int, taps: int = KERNEL) -> np.ndarray:
    """Return A^T as float64[tile, tile + taps - 1]: powers of the points."""
    powers = np.vander(_finite_points(tile + taps - 1), tile, increasing=True).T
    return np.concatenate([powers, np.eye(tile)[:, -1:]], axis=1)


def _finite_points(count: int) -> list[float]:
    """Return all of `count` points but infinity, which is the last."""
    return [0.0] * _has_zero(count) + [s * p for p in POINTS[count] for s in (1.0, -1.0)]


def _has_zero(count: int) -> bool:
    return count % 2 == 0


def filter_forms(g: Sequence[Expr], tile: int) -> list[Expr]:
    """Return G g of the three taps of a window, one expression per row."""
    rows = []
    for row in filter_matrix(tile)[:-1]:
        low, middle, high = (float(f) for f in row)
        even = g[0] * Const.of(low, g[0].dtype)
        if high:
            even = _plus(_plus(even, high, g[2]), middle, g[1])
        rows.append(even)
    return [*rows, g[2]]


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


def filter_transform(tile: int, w: te.Tensor) -> te.Tensor:
    """Return U = G g G^T, [oc/ob, point, point, ic/ib * kd, ib, ob]; a row of G by its number."""
    matrix, (filters, chunks, ib, _, _, ob) = filter_matrix(tile), w.shape

    def at_point(o: Expr, i: Expr, j: Expr, c: Expr, icb: Expr, obk: Expr) -> Expr:
        row = [element_at([Const.of(float(f), w.dtype) for f in tap], i) for tap in matrix.T]
        columns = []
        for s in range(KERNEL):
            total = w[o, c, icb, 0, s, obk] * row[0]
            for r in range(1, KERNEL):
                total = te.fma(w[o, c, icb, r, s, obk], row[r], total)
            columns.append(total)
        return element_at(filter_forms(columns, tile), j)

    points = len(matrix)
    shape = (filters, points, points, chunks, ib, ob)
    return te.compute_one(shape, at_point, name="filter_transform")
