# SPDX-License-Identifier: Apache-2.0
"""Square tiles are read along memory, turned by steps of evens and odds, and written whole."""

from __future__ import annotations

import numpy as np
import pytest

from tests.loop_eval import run
from treadle import te
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import Allocate, PrimFunc, walk_stmts
from treadle.lower.flatten_buffers import flatten_buffers
from treadle.lower.mask_tails import mask_tails
from treadle.lower.partition_loops import partition_loops
from treadle.lower.transpose_tiles import transpose_tiles


def turned(rows: int, columns: int) -> tuple[PrimFunc, PrimFunc]:
    """Return y[i, j] = x[j, i] + i over one tile, before and after the pass."""
    x = te.placeholder((columns, rows), name="x")
    y = te.compute((rows, columns), lambda i, j: x[j, i] * 2.0, name="y")
    s = te.create_schedule(y.op)
    i, j = y.op.axis
    s[y].unroll(i)
    s[y].vectorize(j)
    before = flatten_buffers(schedule_to_func(s, [x, y], "f"))
    return before, transpose_tiles(before)


def tiles(func: PrimFunc) -> int:
    return sum(isinstance(s, Allocate) for s in walk_stmts(func.body))


@pytest.mark.parametrize("shape", [(4, 4), (8, 8), (16, 16), (3, 4), (5, 16), (16, 7), (6, 6)])
def test_turned_tiles_keep_their_elements(shape: tuple[int, int]) -> None:
    _, after = turned(*shape)
    side = next(n for n in (4, 8, 16) if n >= max(shape))
    assert tiles(after) == side.bit_length()  # what is read, then one more per step
    x = np.arange(shape[0] * shape[1], dtype=np.float32)
    y = np.zeros_like(x)
    run(after, [x, y])
    np.testing.assert_array_equal(y.reshape(shape), 2 * x.reshape(shape[::-1]).T)


@pytest.mark.parametrize("shape", [(2, 16), (16, 2), (17, 17)])
def test_tiles_that_are_thin_or_large_are_left(shape: tuple[int, int]) -> None:
    before, after = turned(*shape)
    assert tiles(before) == tiles(after) == 0


def test_a_reduction_over_rows_is_no_tile() -> None:
    x = te.placeholder((64,), name="x")
    k = te.reduce_axis((0, 4), "k")
    y = te.compute((8,), lambda j: te.max(x[j * 3 + k], [k]), name="y")
    s = te.create_schedule(y.op)
    s[y].reorder(k, y.op.axis[0])
    s[y].unroll(k)
    s[y].vectorize(y.op.axis[0])
    func = flatten_buffers(schedule_to_func(s, [x, y], "f"))
    assert tiles(transpose_tiles(func)) == 0


@pytest.mark.parametrize("count", [1, 3, 15, 16, 17, 40])
def test_a_tile_without_its_last_columns_is_turned(count: int) -> None:
    """Its columns that are off are not read: they may lie outside of the operand."""
    n = te.var("n")
    x = te.placeholder((n, 16), name="x")
    y = te.compute((16, n), lambda i, j: x[j, i] * 2.0, name="y")
    s = te.create_schedule(y.op)
    i, j = y.op.axis
    outer, inner = s[y].split(j, factor=16)
    s[y].reorder(outer, i, inner)
    s[y].unroll(i)
    s[y].vectorize(inner)
    cut = partition_loops(schedule_to_func(s, [x, y], "f"))
    after = transpose_tiles(flatten_buffers(mask_tails(cut, least_masked=4)))
    assert tiles(after) == 2 * 5  # full tiles, and the rest
    given = np.arange(count * 16, dtype=np.float32)
    got = np.zeros_like(given)
    run(after, [given, got], {v: count for v in after.sizes})
    np.testing.assert_array_equal(got.reshape(16, count), 2 * given.reshape(count, 16).T)
