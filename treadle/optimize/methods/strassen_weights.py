# SPDX-License-Identifier: Apache-2.0
"""Weights of Strassen's algorithm, and which weights it keeps exact enough."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treadle.ops.lowered.matmul_strassen import BLOCKS, PRODUCTS, RIGHT

MOST_SPREAD = 1024.0
"""How much larger a row of weights may be than the one it is added to: values that the smaller one
meets lose digits, unless many others are as large."""


def pack_strassen(w: np.ndarray, width: int, units: np.ndarray | None = None) -> np.ndarray:
    """Return weights [k, n], k even, as [ceil(n / (2 width)), 7, k / 2, width], rounded once.

    `units` are what `column_units` says of them.
    """
    k, n = w.shape
    made = np.empty((-(-n // (2 * width)), PRODUCTS, k // 2, width), w.dtype)
    for target, four in zip(made, _blocks(w, width, units), strict=True):
        for sum_, signs in zip(target, RIGHT, strict=True):
            _round_sum(four, signs, sum_.reshape(-1))
    return made


def divided(w: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return weights [k, n], float32, with columns divided by powers of two; zeros stay zeros."""
    made: np.ndarray = w * np.divide(1.0, units, where=units > 0, out=np.zeros_like(units))
    return made


def _blocks(w: np.ndarray, width: int, units: np.ndarray | None) -> Iterator[np.ndarray]:
    """Yield the blocks 11, 12, 21, 22 of each pair of panels, float64[4, k / 2 * width]."""
    k, n = w.shape
    for start in range(0, n, 2 * width):
        part = slice(start, start + 2 * width)
        columns = w[:, part] if units is None else divided(w[:, part], units[part])
        whole = np.pad(columns.astype(np.float64), ((0, 0), (0, 2 * width - columns.shape[1])))
        yield whole.reshape(2, k // 2, 2, width).transpose(0, 2, 1, 3).reshape(BLOCKS, -1)


def _round_sum(blocks: np.ndarray, signs: np.ndarray, made: np.ndarray) -> None:
    """Write the sum of one or two blocks, one at least of them positive, rounded once."""
    (first,), rest = np.nonzero(signs > 0)[0][:1], np.nonzero(signs)[0]
    others = [k for k in rest if k != first]
    if not others:
        made[...] = blocks[first]
        return
    (other,) = others
    add = np.add if signs[other] > 0 else np.subtract
    add(blocks[first], blocks[other], out=made, casting="unsafe")


def objection(w: np.ndarray, used: int | None = None) -> str | None:
    """Say why weights [k, n] should stay as they are although that is slower; None where they need
    not. Rows from `used` on only meet zeros.
    """
    if not are_rows_even(w, used):
        return "rows of small weights would lose digits next to rows of large ones"
    if has_equal_columns(w):
        return "two columns of weights are equal, and their results would round apart"
    return None


def has_equal_columns(w: np.ndarray) -> bool:
    """True when two columns of weights [k, n], other than zeros, hold the same.

    A plain product gives them the same results, and ties between classes stay ties; here the place
    of a column decides how its results round. Columns of zeros have exact results (`column_units`).
    """
    marks = np.zeros(w.shape[1])
    for row, factor in zip(w, np.random.default_rng(0).random(len(w)), strict=True):
        marks += factor * row
    order = np.argsort(marks)
    same = np.diff(marks[order]) == 0
    pairs = zip(order[:-1][same], order[1:][same], strict=True)
    return any(w[:, a].any() and np.array_equal(w[:, a], w[:, b]) for a, b in pairs)


def are_rows_even(w: np.ndarray, used: int | None = None) -> bool:
    """True when rows of weights [k, n] are finite and about as large as those they are added to.

    Rows from `used` on only meet zeros.
    """
    rows = np.array([np.max(np.abs(row)) for row in w])
    upper, lower = rows.reshape(2, -1)
    lower = np.where(np.arange(len(upper), len(rows)) < (used or len(rows)), lower, upper)
    most, least = np.maximum(upper, lower), np.minimum(upper, lower)
    return bool(np.all(np.isfinite(rows))) and bool(np.all(most <= MOST_SPREAD * least))


def column_units(w: np.ndarray) -> np.ndarray | None:
    """Return powers of two, float32[n], by which columns of weights [k, n] are to be divided.

    Divided by them all columns are about equally large, and none loses digits when it is added to
    another; a column of zeros has 0. None where they are as they should be.
    """
    largest = np.maximum(np.max(w, axis=0), -np.min(w, axis=0))
    exponents = np.clip(np.frexp(largest)[1], -100, 100)
    if np.ptp(exponents) <= 2 and np.all(largest > 0):
        return None
    return np.where(largest > 0, np.exp2(exponents), 0).astype(np.float32)
