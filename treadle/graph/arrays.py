# SPDX-License-Identifier: Apache-2.0
"""Arrays of weights in row-major order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np

from treadle.dtype import from_numpy
from treadle.runtime.array import empty_numpy, is_ready
from treadle.runtime.pages import release_pages

Parts: TypeAlias = Sequence[tuple[int, ...]]
MOST_THREADS = 8
"""Threads that copy: more wait for memory."""

TILE = 1 << 14
"""Elements: a tile of this size stays in cache, whatever the orders of reading and writing."""

SMALL = 1 << 18
"""Elements: arrays up to this size are copied at once."""


PIECE = 1 << 20
"""Elements that are copied before the pages they came from are given back."""

SLICE = 8 * PIECE
"""Elements of a slice of an array in another order, of which the same holds."""


LARGE = 1 << 16
"""Bytes from which on a weight is worth a place of its own that no executor has to copy it to."""


def in_place(array: np.ndarray) -> np.ndarray:
    """Return an array that was made here where executors read it: row-major, large ones aligned.

    A copy that was made together with an executor would exist in addition to the one that the graph
    holds: all weights of a model twice.
    """
    made = row_major(array)
    return made if made.nbytes < LARGE or is_ready(made) else _taken(made)


def _taken(array: np.ndarray) -> np.ndarray:
    """Return an aligned copy of a row-major array.

    Pages of a mapped file go as soon as they are copied: a table of words never lies in memory
    twice.
    """
    made = empty_numpy(array.shape, from_numpy(array.dtype))
    source, target = array.reshape(-1), made.reshape(-1)
    for start in range(0, array.size, PIECE):
        piece = source[start : start + PIECE]
        target[start : start + PIECE] = piece
        release_pages(piece)
    return made


def row_major(array: np.ndarray) -> np.ndarray:
    """Return `array` if its elements lie in row-major order, else a copy that does.

    Large arrays are copied tile by tile: several times faster for a transposed weight. Pages of a
    mapped file go as soon as they are copied.
    """
    if array.flags.c_contiguous:
        return array
    if array.size <= SMALL:
        return np.ascontiguousarray(array)
    # Aligned as kernels want it: the executor then reads it where it is.
    copy = empty_numpy(array.shape, from_numpy(array.dtype))
    # What is far apart in memory follows each other: a part of it is a part of the file.
    outer = max(range(array.ndim), key=lambda axis: abs(array.strides[axis]))
    rows = max(1, SLICE * array.shape[outer] // array.size)
    for start in range(0, array.shape[outer], rows):
        part = (slice(None),) * outer + (slice(start, start + rows),)
        _copy(array[part], copy[part])
        release_pages(array[part])
    return copy


def _copy(array: np.ndarray, copy: np.ndarray) -> None:
    """Copy an array tile by tile."""
    tile = list(array.shape)
    while prod(tile) > TILE:
        longest = tile.index(max(tile))
        tile[longest] = -(-tile[longest] // 2)
    corners = (range(0, n, t) for n, t in zip(array.shape, tile, strict=True))

    def move(corner: tuple[int, ...]) -> None:
        part = tuple(slice(c, c + t) for c, t in zip(corner, tile, strict=True))
        copy[part] = array[part]

    _for_each(move, list(product(*corners)), array.size)


def _for_each(move: Callable[[tuple[int, ...]], None], parts: Parts, elements: int) -> None:
    """Do something with all parts, in several threads where they have many elements.

    The threads end with the call: a process that is forked later has none to miss.
    """
    threads = min(MOST_THREADS, elements // PIECE, _cores())
    if threads < 2:
        for part in parts:
            move(part)
        return
    share = -(-len(parts) // threads)
    shares = [parts[k : k + share] for k in range(0, len(parts), share)]

    def work(some: Parts) -> None:
        for part in some:
            move(part)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, shares))


def _cores() -> int:
    has_mask = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_mask else os.cpu_count() or 1
