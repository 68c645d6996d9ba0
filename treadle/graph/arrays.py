# SPDX-License-Identifier: Apache-2.0
"""Arrays of weights in row-major order."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from treadle.dtype import from_numpy
from treadle.runtime.array import empty_numpy, ready

TILE = 1 << 14
"""Elements: a tile of this size stays in cache, whatever the orders of reading and writing."""

SMALL = 1 << 18
"""Elements: arrays up to this size are copied at once."""


LARGE = 1 << 16
"""Bytes from which on a weight is worth a place of its own that no executor has to copy it to."""


def in_place(array: np.ndarray) -> np.ndarray:
    """Return an array that was made here where executors read it: row-major, large ones aligned.

    A copy that was made together with an executor would exist in addition to the one that the graph
    holds: all weights of a model twice.
    """
    made = row_major(array)
    return ready(made) if made.nbytes >= LARGE else made


def row_major(array: np.ndarray) -> np.ndarray:
    """Return `array` if its elements lie in row-major order, else a copy that does.

    Large arrays are copied tile by tile: several times faster for a transposed weight.
    """
    if array.flags.c_contiguous:
        return array
    if array.size <= SMALL:
        return np.ascontiguousarray(array)
    tile = list(array.shape)
    while prod(tile) > TILE:
        longest = tile.index(max(tile))
        tile[longest] = -(-tile[longest] // 2)
    # Aligned as kernels want it: the executor then reads it where it is.
    copy = empty_numpy(array.shape, from_numpy(array.dtype))
    corners = (range(0, n, t) for n, t in zip(array.shape, tile, strict=True))
    for corner in product(*corners):
        part = tuple(slice(c, c + t) for c, t in zip(corner, tile, strict=True))
        copy[part] = array[part]
    return copy
