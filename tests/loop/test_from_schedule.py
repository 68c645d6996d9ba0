# SPDX-License-Identifier: Apache-2.0
"""Loops are built with exact extents: no test in a hot loop, and buffers no larger than needed."""

from __future__ import annotations

import re

import numpy as np
import pytest

import treadle
from tests import loop_eval
from tests.te.scripts import check, matrix_product
from treadle import te
from treadle.loop.from_schedule import Case, cases_to_func
from treadle.lower.pipeline import LOOPS
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule
from treadle.te.tensor import compute_one


def elementwise(*shape: object) -> tuple[Schedule, Tensor, Tensor]:
    a = te.placeholder(shape, name="A")  # type: ignore[arg-type]
    c = compute_one(shape, lambda *i: a[i] * 2.0, name="C")  # type: ignore[arg-type]
    return te.create_schedule(c.op), a, c


def lines_inside(text: str, loop: str) -> list[str]:
    """Return the lines inside the first loop whose head contains `loop`."""
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if loop in line)
    indent = len(lines[start]) - len(lines[start].lstrip())
    found = []
    for line in lines[start + 1 :]:
        if len(line) - len(line.lstrip()) <= indent:
            break
        found.append(line.strip())
    return found


@pytest.mark.parametrize(("extent", "factor"), [(100, 16), (130, 16), (7, 16), (16, 16), (33, 32)])
def test_a_tail_is_a_loop_of_its_own(extent: int, factor: int) -> None:
    s, a, c = elementwise(extent)
    _, inner = s[c].split(s[c].op.axis[0], factor=factor)
    s[c].vectorize(inner)
    text = str(treadle.lower(s, [a, c]))
    assert "if " not in text
    widths = [int(w) for w in re.findall(r"vectorized\((\d+)\)", text)]
    full, rest = divmod(extent, factor)
    assert widths == [w for w in (factor if full else 0, rest) if w > 1]
    check(s, [a, c])


def test_uneven_tiles_of_a_product_have_no_test_inside() -> None:
    a, b, c = matrix_product(20, 36, 9)
    s = te.create_schedule(c.op)
    i, j = c.op.axis  # type: ignore[union-attr]
    _, _, ii, ji = s[c].tile(i, j, 6, 16)
    (k,) = s[c].op.reduce_axis  # type: ignore[union-attr]
    ko, ki = s[c].split(k, factor=4)
    s[c].reorder(ko, ki, ii, ji)
    s[c].vectorize(ji)
    text = str(treadle.lower(s, [a, b, c]))
    assert "if " not in text
    assert set(re.findall(r"vectorized\((\d+)\)", text)) == {"16", "4"}
    check(s, [a, b, c])


def test_a_parallel_loop_asks_once_per_turn() -> None:
    s, a, c = elementwise(100)
    outer, inner = s[c].split(s[c].op.axis[0], factor=16)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    text = str(treadle.lower(s, [a, c]))
    assert text.count("if ") == 1
    assert not any("if " in line for line in lines_inside(text, "vectorized(16)"))
    check(s, [a, c])


def test_symbolic_size_is_cut_in_full_tiles_and_a_rest() -> None:
    s, a, c = elementwise(te.var("n"))
    _, inner = s[c].split(s[c].op.axis[0], factor=16)
    s[c].vectorize(inner)
    text = str(treadle.lower(s, [a, c]))
    assert "if " not in text
    assert "for i0.outer in range((n // 16)):" in text
    assert "vectorized(16)" in text


def test_a_factor_may_be_symbolic() -> None:
    n = te.var("n")
    s, a, c = elementwise(100)
    s[c].split(s[c].op.axis[0], factor=n)
    text = str(treadle.lower(s, [a, c, n]))
    assert "def main(A: float32[100], C: float32[100], n: int64):" in text


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


def test_rfactor_of_every_axis_can_be_inlined() -> None:
    a = te.placeholder((4, 10), name="A")
    k = te.reduce_axis((0, 10), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, where=k % 3 != 1), name="C")
    s = te.create_schedule(c.op)
    partial = s.rfactor(c, k)
    s[partial].compute_inline()
    check(s, [a, c])


@pytest.mark.parametrize("pads", [(0, 0), (1, 0), (0, 3), (2, 2)])
def test_peeled_borders(pads: tuple[int, int]) -> None:
    before, after = pads
    a = te.placeholder((6, 20), name="A")
    b = te.compute((6, 20), lambda i, j: a[i, j] + 1.0, name="B")
    width = 20 + before + after
    zero = te.const(0.0, "float32")
    c = te.compute(
        (6, width),
        lambda i, j: te.if_then_else(te.all(j >= before, j < before + 20), b[i, j - before], zero),
        name="C",
    )
    s = te.create_schedule(c.op)
    s[b].compute_inline()
    _, j = s[c].op.axis
    s[c].peel(j, before, before + 20)
    _, inner = s[c].split(j, factor=8)
    s[c].vectorize(inner)
    text = str(treadle.lower(s, [a, c]))
    assert "if" not in text
    check(s, [a, c])


def test_peeled_borders_of_a_symbolic_width() -> None:
    n = te.var("n")
    a = te.placeholder((6, n), name="A")
    b = te.compute((6, n), lambda i, j: a[i, j] + 1.0, name="B")
    zero = te.const(0.0, "float32")
    c = te.compute(
        (6, n + 3),
        lambda i, j: te.if_then_else(te.all(j >= 1, j < n + 1), b[i, j - 1], zero),
        name="C",
    )
    s = te.create_schedule(c.op)
    _, j = s[c].op.axis
    s[c].peel(j, 1, n + 1)
    outer, inner = s[c].split(j, factor=4)
    s[c].unroll(inner)
    s[b].compute_at(s[c], outer)
    made = treadle.lower(s, [a, c])
    assert "if" not in str(made)
    assert "min(" not in str(made)
    for width in (0, 1, 3, 4, 17):
        x = np.arange(6 * width, dtype=np.float32).reshape(6, width)
        y = np.full((6, width + 3), np.nan, np.float32)
        loop_eval.run(made, [x, y], {n: width})
        np.testing.assert_array_equal(y, np.pad(x + 1, ((0, 0), (1, 2))))


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


@pytest.mark.parametrize(("width", "skipped"), [(1, "0"), (3, "2")])
def test_past_the_end_of_panels_side_by_side_the_next_ones_are_fetched(
    width: int, skipped: str
) -> None:
    weights, data = te.placeholder((6, 40, 16), name="W"), te.placeholder((40,), name="A")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((6, 16), lambda i, j: te.sum(weights[i, k, j] * data[k], axis=k), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis  # type: ignore[union-attr]
    outer, inner = s[c].split(i, factor=width)
    s[c].reorder(outer, k, inner, j)
    s[c].prefetch(weights, k, 8)
    text = str(treadle.lower(s, [weights, data, c]))
    assert text.count("prefetch(") == 1
    assert ("select" in text) is (skipped != "0")
    assert skipped == "0" or re.search(rf"select\(\(31 < k\), {skipped}, 0\)", text)


@pytest.mark.parametrize(
    ("dtype", "shape", "lines", "index"),
    [
        ("float32", (40, 64), 4, "k + 8), (B.line * 16)"),
        ("int8", (40, 128, 4), 8, "k + 8), (B.line * 16), 0"),  # rows of 4 bytes
        ("float32", (40, 6, 2, 8), 6, "k + 8), B.line, 0, 0"),  # a line is a row of two axes
        ("float32", (40, 6, 3), 6, "k + 8), B.line, 0"),  # rows that no line is made up of
    ],
)
def test_every_line_is_fetched_once_however_short_the_rows_are(
    dtype: str, shape: tuple[int, ...], lines: int, index: str
) -> None:
    b, k = te.placeholder(shape, dtype, name="B"), te.reduce_axis((0, shape[0]), "k")
    c = te.compute(shape[1:], lambda *i: te.sum(b[(k, *i)].astype("int32"), axis=k), name="C")
    s = te.create_schedule(c.op)
    s[c].reorder(k, *s[c].op.axis)  # type: ignore[union-attr]
    s[c].prefetch(b, k, 8)
    text = str(treadle.lower(s, [b, c]))
    assert f"B.line in unrolled({lines})" in text
    assert f"prefetch(B[({index}])" in text


def test_lines_of_panels_are_fetched_at_the_first_values_of_the_axes_inside() -> None:
    weights, data = te.placeholder((6, 40, 16), name="W"), te.placeholder((40,), name="A")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((6, 16), lambda i, j: te.sum(weights[i, k, j] * data[k], axis=k), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis  # type: ignore[union-attr]
    outer, inner = s[c].split(i, factor=3)
    s[c].reorder(outer, k, inner, j)
    s[c].prefetch_panel(weights, k, [i], step=3)
    text = str(treadle.lower(s, [weights, data, c]))
    lines = [f"prefetch(W[((i.outer * 3) + {p}), k, 0])" for p in (3, 4, 5)]
    assert [text.count(line) for line in lines] == [1, 1, 1]
    assert text.count("prefetch") == 3


@pytest.mark.parametrize(
    ("tiles", "place"),
    [
        (16, "((i.outer * 40) + k)"),  # a tile of sixteen: an element each
        (4, "((i.outer * 160) + (k * 4))"),
        (1, "(k * 16)"),
        (None, "((min(i.outer, 8) * 80) + (k * 2))"),  # of any number: eight
    ],
)
def test_tiles_share_a_panel_evenly(tiles: int | None, place: str) -> None:
    rows = te.var("m") if tiles is None else tiles * 3
    weights, data = te.placeholder((6, 40, 16), name="W"), te.placeholder((rows, 40), name="A")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute(
        (rows, 6, 16), lambda i, p, j: te.sum(weights[p, k, j] * data[i, k], axis=k), name="C"
    )
    s = te.create_schedule(c.op)
    i, p, j = s[c].op.axis  # type: ignore[union-attr]
    outer, inner = s[c].split(i, factor=3)
    s[c].reorder(p, outer, k, inner, j)
    s[c].prefetch_panel(weights, k, [p], tiles=[([i], 3)])
    text = str(treadle.lower(s, [weights, data, c]))
    assert f"prefetch(W[(p + 1), 0, {place}])" in text


def test_what_is_not_made_of_panels_is_not_fetched() -> None:
    weights, data = te.placeholder((40, 96), name="W"), te.placeholder((40,), name="A")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((96,), lambda j: te.sum(weights[k, j] * data[k], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=16)
    s[c].reorder(outer, k, inner)
    s[c].prefetch_panel(weights, k, [c.op.axis[0]], step=16)
    assert "prefetch" not in str(treadle.lower(s, [weights, data, c]))


def test_panels_at_indices_in_memory_are_not_fetched_as_their_indices_end() -> None:
    weights, rows = te.placeholder((9, 4, 16), name="W"), te.placeholder((6,), "int64", name="X")
    k = te.reduce_axis((0, 4), "k")
    c = te.compute((6, 16), lambda i, j: te.sum(weights[rows[i], k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis  # type: ignore[union-attr]
    s[c].reorder(i, k, j)
    s[c].prefetch_panel(weights, k, [i], step=3)  # X[i + 3] would be read past its end
    text = str(treadle.lower(s, [weights, rows, c]))
    assert "prefetch" not in text


@pytest.mark.parametrize("panel", [False, True])
def test_a_hint_divides_by_no_extent_that_may_be_zero(panel: bool) -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m, m), name="A")
    c = te.compute((n, m, m), lambda i, j, k: a[i, (i + j) % m, k] + 1.0, name="C")
    s = te.create_schedule(c.op)
    i, j, k = s[c].op.axis  # type: ignore[union-attr]
    if panel:
        s[c].prefetch_panel(a, i, [i, k, j], step=4, tiles=[([i, j], 2, 6)])
    else:
        s[c].prefetch(a, i, 2)
    func = treadle.lower(s, [a, c])
    assert "prefetch" in str(func)
    empty = np.zeros(0, "float32")
    loop_eval.run(func, [empty, empty], {n: 3, m: 0})
    treadle.build(func)(empty.reshape(3, 0, 0), empty.reshape(3, 0, 0))


def test_how_much_a_hint_fetches_divides_by_no_extent_that_may_be_zero() -> None:
    p = te.var("p")
    width = (p + 1) // 2
    a = te.placeholder((p, p), name="A")
    c = te.compute((p, width), lambda i, j: a[i, j * 2] + 1.0, name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(s[c].fuse(*c.op.axis), nparts=5)  # type: ignore[union-attr]
    s[c].prefetch(a, outer, 1)
    func = treadle.lower(s, [a, c])
    empty = np.zeros(0, "float32")
    loop_eval.run(func, [empty, empty], {p: 0})
    treadle.build(func)(empty.reshape(0, 0), empty.reshape(0, 0))


@pytest.mark.parametrize(("at", "lines"), [("outer", 4), ("inner", 0)])
def test_lines_of_a_stage_that_is_complete_are_fetched_where_asked(at: str, lines: int) -> None:
    data = te.placeholder((32, 64), name="A")
    b = te.compute((32, 64), lambda i, j: data[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 64), "k")
    c = te.compute((32,), lambda i: te.sum(b[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(s[c].op.axis[0], factor=4)  # type: ignore[union-attr]
    s[c].reorder(outer, inner, k)
    s[b].compute_at(s[c], outer if at == "outer" else inner)
    (i,) = s[c].op.axis  # type: ignore[union-attr]
    s[c].prefetch_panel(b, inner, [i], tiles=[([i], 4, 12)], once=True)
    text = str(treadle.lower(s, [data, c]))
    found = [f"prefetch(B[(i.inner + 1), {column}])" in text for column in (0, 16, 32, 48)]
    assert found == [lines > 0] * 4
    assert text.count("prefetch") == text.count("if ((i.outer % 3) == 0):") == lines


def rounded(n: te.Var) -> tuple[Schedule, Tensor, Tensor]:
    """Return sums of rows [n] in tiles of 8 that are computed whole."""
    a = te.placeholder((n, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((n,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(s[c].op.axis[0], factor=8, tail="guard")
    s[c].unroll(inner)
    s[b].compute_at(s[c], outer)
    s[b].round_up(b.op.axis[0])  # type: ignore[union-attr]
    s[b].reorder(k, b.op.axis[0])  # type: ignore[union-attr]
    s[b].vectorize(b.op.axis[0])  # type: ignore[union-attr]
    return s, a, c


def test_tiles_that_are_rounded_up_have_constant_extents_and_stay_inside() -> None:
    s, a, c = rounded(te.var("n"))
    text = str(treadle.lower(s, [a, c]))
    assert text.count("vectorized(8)") == 2
    assert "B: float32[8]" in text
    assert "min(((i.outer * 8) + i_1), (n - 1))" in text
    module = treadle.build(s, [a, c])
    for size in (0, 1, 7, 8, 9, 30):
        given, made = np.random.rand(size, 5).astype(np.float32), np.zeros(size, np.float32)
        module(given, made)
        np.testing.assert_allclose(made, given.sum(1) * 2, rtol=1e-6)


def test_what_a_rounded_stage_reads_is_rounded_too() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[i] * 3.0, name="C")
    d = te.compute((n,), lambda i: c[i] * 2.0, name="D")
    s = te.create_schedule(d.op)
    outer, _ = s[d].split(s[d].op.axis[0], factor=8, tail="guard")
    for x in (b, c):
        s[x].compute_at(s[d], outer)
    s[c].round_up(c.op.axis[0])  # type: ignore[union-attr]
    with pytest.raises(treadle.ScheduleError) as caught:
        treadle.lower(s, [a, d])
    assert str(caught.value) == (
        "stage C is rounded up, but B, which it reads, is not\n  at    stage B"
        "\n  hint  round up i of B, too"
    )
    with pytest.raises(treadle.ScheduleError, match="an output ends where its tensor ends"):
        s[d].round_up(s[d].op.axis[0])


def test_a_shortened_tail_is_the_same_code() -> None:
    s, a, c = elementwise(te.var("n"))
    s[c].split(s[c].op.axis[0], factor=16, tail="shorten")
    text = str(treadle.lower(s, [a, c]))
    assert text.count("for ") == 2
    assert "min((n - (i0.outer * 16)), 16)" in text
    module = treadle.build(s, [a, c])
    for size in (0, 5, 16, 33):
        given, made = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        module(given, made)
        np.testing.assert_array_equal(made, given * 2)


def test_cases_of_one_function() -> None:
    n = te.var("n")
    cases = []
    for when, factor in ((n <= 20, 4), (None, 16)):
        s, a, c = elementwise(n)
        _, inner = s[c].split(s[c].op.axis[0], factor=factor)
        s[c].vectorize(inner)
        cases.append(Case(s, [a, c], when))
    func = LOOPS.run(cases_to_func(cases))
    text = str(func)
    assert text.index("if (n < 21)") < text.index("vectorized(4)") < text.index("vectorized(16)")
    module = treadle.build(func)
    for size in (3, 20, 21, 50):
        given, made = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        module(given, made)
        np.testing.assert_array_equal(made, given * 2)
