# SPDX-License-Identifier: Apache-2.0
"""Where the results of stages lie, and how large a part of them is kept."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from treadle import te


def test_a_region_without_a_bound_is_refused() -> None:
    n = te.var("n")
    a = te.placeholder((8, n), name="A")
    b = te.compute((8, n), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, n), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], s[c].op.axis[0])
    with pytest.raises(treadle.ScheduleError) as caught:
        treadle.lower(s, [a, c])
    assert str(caught.value) == (
        "the part of B needed here has no constant bound along j: n\n  at    stage B"
        "\n  hint  compute it further out, or at root"
    )


def test_a_part_of_symbolic_size_has_its_place_in_the_workspace() -> None:
    """Rows of 6 that are no multiple of the vector, one for each task, which may run at once."""
    n = te.var("n")
    a = te.placeholder((8, n), name="A")
    b = te.compute((8, n), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, n), lambda i, j: b[i, n - 1 - j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[c].parallel(s[c].op.axis[0])
    s[b].set_scope("workspace")
    s[b].compute_at(s[c], s[c].op.axis[0])
    _, lane = s[b].split(s[b].op.axis[1], factor=4)
    s[b].vectorize(lane)
    assert "B: float32[8, n] = alloc(workspace)" in str(treadle.lower(s, [a, c]))
    module = treadle.build(s, [a, c])
    for size in (1, 6, 40):
        given = np.arange(8 * size, dtype=np.float32).reshape(8, size)
        made = np.zeros_like(given)
        module(given, made)
        np.testing.assert_array_equal(made, 2 * (given + 1)[:, ::-1])


def test_parts_that_one_thread_makes_in_turn_have_one_place() -> None:
    """Rows are made by all threads, one row after the other."""
    a = te.placeholder((8, 64), name="A")
    b = te.compute((8, 64), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 64), lambda i, j: b[i, 63 - j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    row, column = s[c].op.axis
    s[c].parallel(column)
    s[b].set_scope("workspace")
    s[b].compute_at(s[c], row)
    s[b].parallel(s[b].op.axis[1])
    assert "B: float32[1, 64] = alloc(workspace)" in str(treadle.lower(s, [a, c]))
    given = np.arange(512, dtype=np.float32).reshape(8, 64)
    made = np.zeros_like(given)
    treadle.build(s, [a, c])(given, made)
    np.testing.assert_array_equal(made, 2 * (given + 1)[:, ::-1])


def test_a_temporary_of_symbolic_size_lies_in_memory_of_its_own() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[n - 1 - i] * b[i], name="C")
    s = te.create_schedule(c.op)
    module = treadle.build(s, [a, c])
    for size in (1, 5, 300):
        given, made = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        module(given, made)
        np.testing.assert_array_equal(made, (given + 1) * (given + 1)[::-1])


def test_aligned_rows_lie_where_the_schedule_says() -> None:
    """Of three axes the first two."""
    a = te.placeholder((3, 5, 32), name="A")
    b = te.compute((3, 5, 32), lambda i, j, k: a[i, j, k] + 1.0, name="B")
    c = te.compute((3, 5, 32), lambda i, j, k: b[2 - i, 4 - j, 31 - k] * 2.0, name="C")
    s = te.create_schedule(c.op)
    first, second, third = s[b].op.axis
    s[b].storage_align(second, 32, 4)
    s[b].storage_align(first, 100)
    s[b].vectorize(third)
    assert "B: float32[3, 5, 32] = alloc(workspace, strides=[200, 36, 1])" in str(
        treadle.lower(s, [a, c])
    )
    given = np.arange(480, dtype=np.float32).reshape(3, 5, 32)
    made = np.zeros_like(given)
    treadle.build(s, [a, c])(given, made)
    np.testing.assert_array_equal(made, 2 * (given + 1)[::-1, ::-1, ::-1])


def test_rows_of_dynamic_size_are_aligned_by_each_run() -> None:
    n = te.var("n")
    a = te.placeholder((4, n), name="A")
    b = te.compute((4, n), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, n), lambda i, j: b[3 - i, n - 1 - j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    s[b].storage_align(s[b].op.axis[0], 16, 3)
    module = treadle.build(s, [a, c])
    for size in (1, 19, 40):
        given = np.arange(4 * size, dtype=np.float32).reshape(4, size)
        made = np.zeros_like(given)
        module(given, made)
        np.testing.assert_array_equal(made, 2 * (given + 1)[::-1, ::-1])


def test_a_part_of_a_stage_is_aligned_as_its_buffer_is() -> None:
    a = te.placeholder((8, 64), name="A")
    b = te.compute((8, 64), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 64), lambda i, j: b[i, 63 - j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].op.axis[0], factor=4)
    s[b].compute_at(s[c], outer)
    s[b].storage_align(s[b].op.axis[0], 64, 16)
    assert "B: float32[4, 64] = alloc(local, strides=[80, 1])" in str(treadle.lower(s, [a, c]))
    given = np.arange(512, dtype=np.float32).reshape(8, 64)
    made = np.zeros_like(given)
    treadle.build(s, [a, c])(given, made)
    np.testing.assert_array_equal(made, 2 * (given + 1)[:, ::-1])
