# SPDX-License-Identifier: Apache-2.0
"""A stage that is computed inside a loop covers what is read there, and no more."""

from __future__ import annotations

import re

import pytest

import treadle
from tests.te.scripts import check, matrix_product
from treadle import te


@pytest.mark.parametrize(
    ("tile", "buffer"), [(1, "B: float32[3]"), (5, "B: float32[7]"), (8, "B: float32[10]")]
)
def test_a_local_buffer_holds_what_its_tile_reads(tile: int, buffer: str) -> None:
    a = te.placeholder((42,), name="A")
    b = te.compute((42,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((40,), lambda i: b[i] + b[i + 1] + b[i + 2], name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].op.axis[0], factor=tile)
    s[b].compute_at(s[c], outer)
    text = str(treadle.lower(s, [a, c]))
    assert buffer in text
    assert re.search(r"B\[i_?\d*\] = ", text)  # counted from where the region starts
    check(s, [a, c])


@pytest.mark.parametrize(("n", "tile"), [(24, 4), (23, 4), (22, 5)])
def test_a_tile_of_one_phase_reads_that_phase_alone(n: int, tile: int) -> None:
    """Elements that lie a stride apart: one remainder, neighbours in the quotient."""
    a = te.placeholder((2, 12), name="A")
    b = te.compute((2, 12), lambda p, q: a[p, q] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[i % 2, i // 2], name="C")
    s = te.create_schedule(c.op)
    step, phase = s[c].split(s[c].op.axis[0], factor=2)
    outer, inner = s[c].split(step, factor=tile)
    s[c].reorder(phase, outer, inner)
    s[b].compute_at(s[c], outer)
    assert f"B: float32[1, {tile}]" in str(treadle.lower(s, [a, c]))
    check(s, [a, c])


def test_what_a_reduction_inside_reads_is_all_it_runs_over() -> None:
    """The producer of a reduction and the reduction, both computed in a loop of their user."""
    a, b, _ = matrix_product(12, 9, 7)
    twice = te.compute((12, 7), lambda i, k: a[i, k] * 2.0, name="twice")
    r = te.reduce_axis((0, 7), "r")
    c = te.compute((12, 9), lambda i, j: te.sum(twice[i, r] * b[r, j], axis=r), name="sums")
    d = te.compute((12, 9), lambda i, j: c[i, j] + 1.0, name="D")
    s = te.create_schedule(d.op)
    outer, _ = s[d].split(s[d].op.axis[0], factor=4)
    s[c].compute_at(s[d], outer)
    s[twice].compute_at(s[d], outer)
    assert "twice: float32[4, 7]" in str(treadle.lower(s, [a, b, d]))
    check(s, [a, b, d])


def test_groups_of_tiles_of_an_uneven_axis_read_whole_tiles_of_their_producer() -> None:
    a = te.placeholder((8, 4), name="A")
    b = te.compute((8, 4), lambda t, i: a[t, i] * 2.0, name="B")
    c = te.compute((30,), lambda y: b[y // 4, y % 4], name="C")
    s = te.create_schedule(c.op)
    tile, _ = s[c].split(s[c].op.axis[0], factor=4)
    group, _ = s[c].split(tile, factor=2)
    s[b].compute_at(s[c], group)
    text = str(treadle.lower(s, [a, c]))
    assert "B: float32[2, 4]" in text
    assert "min(" not in text
    check(s, [a, c])


def test_both_branches_of_a_concatenation_stay_inside() -> None:
    """An empty region lies inside its tensor too (found by the fuzzer)."""
    a = te.placeholder((9,), name="A")
    b = te.compute((9,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((18,), lambda i: te.if_then_else(i < 9, b[i], b[i - 9]), name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], s[c].op.axis[0])
    check(s, [a, c])


def test_a_region_of_a_fused_axis_that_starts_inside_a_row() -> None:
    a = te.placeholder((7, 7), name="A")
    b = te.compute((7, 7), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((7, 7), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    fused = s[c].fuse(*s[c].op.axis)
    _, inner = s[c].split(fused, factor=8)
    part, _ = s[c].split(inner, factor=7)
    s[b].compute_at(s[c], part)
    check(s, [a, c])


def test_a_fused_uneven_split_stays_inside() -> None:
    a = te.placeholder((5,), name="A")
    c = te.compute((5,), lambda i: a[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    copy = s.cache_read(a, "local", [c])
    outer, inner = s[c].split(s[c].op.axis[0], nparts=3)
    tile, _ = s[c].split(s[c].fuse(outer, inner), factor=5)
    s[copy].compute_at(s[c], tile)
    check(s, [a, c])
