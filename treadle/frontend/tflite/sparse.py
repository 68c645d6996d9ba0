# SPDX-License-Identifier: Apache-2.0
"""Sparse weights written out: dimensions of which only some entries are stored.

The order of traversal lists the dimensions, those of blocks behind the others (Kjolstad et al.,
"The tensor algebra compiler", 2017).
"""

from __future__ import annotations

from math import prod

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.tflite.wire import Table

_DENSE = 0
_INDEX_KINDS = {1: "int32", 2: "uint16", 3: "uint8"}


def densified(
    sparsity: Table, raw: memoryview, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    """Return sparse weights of `shape`, zeros where nothing is stored.

    Raises: ModelError where the parts of the description do not fit each other.
    """
    order = _integers(sparsity, 0)
    blocked = _integers(sparsity, 1)
    levels = list(sparsity.tables(2))
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocked))) or len(levels) != len(order):
        raise ModelError(f"the sparse weights have the order {order} for {rank} dimensions")
    if any(not 0 <= axis < rank for axis in blocked):
        raise ModelError(f"the sparse weights have blocks along {blocked} of {rank} dimensions")
    places = np.zeros((1, len(order)), "int64")
    parents = np.zeros(1, "int64")
    for level, axis in zip(levels, order, strict=True):
        parents, chosen, kept = _children(level, parents, prod(shape))
        places = places[kept]
        places[:, axis] = chosen
    values = np.frombuffer(raw, dtype, count=len(raw) // dtype.itemsize)
    if len(values) != len(places):
        raise ModelError(f"{len(values)} sparse weights are stored, {len(places)} are described")
    at = _positions(places, blocked, levels, order, shape)
    dense = np.zeros(shape, dtype)
    dense[tuple(at.T)] = values
    return dense


def _integers(table: Table, field: int) -> list[int]:
    values = table.numbers(field, "int32")
    return [] if values is None else [int(v) for v in values[:64]]


def _children(
    level: Table, parents: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, per entry of a dimension: its number, its coordinate, and which parent it is of."""
    if level.integer(0, "int8") == _DENSE:
        size = level.integer(1, "int32")
        if size < 0 or size * len(parents) > most:
            raise ModelError(f"the sparse weights have a dimension of {size} entries")
        kept = np.repeat(np.arange(len(parents)), size)
        chosen = np.tile(np.arange(size), len(parents))
        return parents[kept] * size + chosen, chosen, kept
    segments, indices = _vector(level, 2), _vector(level, 4)
    if len(parents) and (parents.max() + 1 >= len(segments)):
        raise ModelError("the sparse weights have too few segments")
    starts, ends = segments[parents], segments[parents + 1]
    counts = ends - starts
    if (counts < 0).any() or (starts < 0).any() or (len(ends) and ends.max() > len(indices)):
        raise ModelError("the sparse weights have segments outside of their indices")
    kept = np.repeat(np.arange(len(parents)), counts)
    if len(kept) > most:
        raise ModelError(f"the sparse weights describe more than {most} elements")
    numbers = starts[kept] + np.arange(len(kept)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers, indices[numbers], kept


def _vector(level: Table, field: int) -> np.ndarray:
    """Return the union of index vectors whose type is field `field`."""
    kind = _INDEX_KINDS.get(level.integer(field, "uint8"))
    table = level.table(field + 1)
    values = None if kind is None or table is None else table.numbers(0, kind)
    if values is None:
        raise ModelError("the sparse weights lack an index vector")
    return values.astype("int64")


def _positions(
    places: np.ndarray,
    blocked: list[int],
    levels: list[Table],
    order: list[int],
    shape: tuple[int, ...],
) -> np.ndarray:
    """Return where elements are: number of the block times its size plus the place inside of it."""
    rank = len(shape)
    at = places[:, :rank].copy()
    for k, axis in enumerate(blocked):
        size = levels[order.index(rank + k)].integer(1, "int32")
        at[:, axis] = at[:, axis] * size + places[:, rank + k]
    if at.size and ((at < 0).any() or (at >= np.array(shape)).any()):
        raise ModelError("the sparse weights have elements outside of their shape")
    return at
