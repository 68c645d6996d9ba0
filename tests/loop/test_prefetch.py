# SPDX-License-Identifier: Apache-2.0
"""What schedules ask to fetch ahead is fetched once, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

import treadle
from tests import loop_eval
from treadle import te
from treadle.expr.nodes import int_value


def product_of_panels(
    panels: int, width: int
) -> tuple[te.Schedule, tuple[te.Tensor, te.Tensor, te.Tensor], te.IterVar, te.IterVar]:
    """Return C[i, j] = W[i, k, j] * A[k] over k of 40, by tiles of so many panels i; i and k."""
    weights, data = te.placeholder((panels, 40, 16), name="W"), te.placeholder((40,), name="A")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((panels, 16), lambda i, j: te.sum(weights[i, k, j] * data[k], axis=k), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis  # type: ignore[union-attr]
    outer, inner = s[c].split(i, factor=width)
    s[c].reorder(outer, k, inner, j)
    return s, (weights, data, c), i, k


def lines_fetched(s: te.Schedule, tensors: Sequence[te.Tensor]) -> list[int]:
    """Return which lines of its buffer, of 64 bytes, each hint of a function names, in order."""
    func = treadle.lower(s, tensors)
    shapes = [[int_value(d) for d in p.shape] for p in func.params]
    fetched: list[tuple[str, int]] = []
    loop_eval.run(func, [np.ones(shape, "float32") for shape in shapes], fetched=fetched)
    return [at // 16 for _, at in fetched]


@pytest.mark.parametrize(("width", "skipped"), [(1, "0"), (3, "2")])
def test_past_the_end_of_panels_side_by_side_the_next_ones_are_fetched(
    width: int, skipped: str
) -> None:
    s, (weights, data, c), _, k = product_of_panels(6, width)
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


@pytest.mark.parametrize(
    ("lanes", "stride", "lines", "index"),
    [(16, 2, 4, "(B.line * 2), 0"), (8, 1, 2, "(B.line * 2), 0"), (8, 3, 4, "(B.line * 3), 0")],
)
def test_of_rows_that_are_not_read_no_lines_are_fetched(
    lanes: int, stride: int, lines: int, index: str
) -> None:
    """Rows of a line or half of one, of which every `stride`-th is read."""
    b, k = te.placeholder((40, 4 * stride, lanes), name="B"), te.reduce_axis((0, 40), "k")
    c = te.compute((4, lanes), lambda i, j: te.sum(b[k, i * stride, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    s[c].reorder(k, *s[c].op.axis)  # type: ignore[union-attr]
    s[c].prefetch(b, k, 8)
    text = str(treadle.lower(s, [b, c]))
    assert f"B.line in unrolled({lines})" in text
    assert f"prefetch(B[(k + 8), {index}])" in text


def test_lines_of_panels_are_fetched_at_the_first_values_of_the_axes_inside() -> None:
    s, (weights, data, c), i, k = product_of_panels(6, 3)
    s[c].prefetch_panel(weights, k, [i], step=3)
    text = str(treadle.lower(s, [weights, data, c]))
    places = ("min(((i.outer * 3) + 3), 5)", "min(((i.outer * 3) + 4), 5)", "5")
    lines = [f"prefetch(W[{place}, k, 0])" for place in places]
    assert [text.count(line) for line in lines] == [1, 1, 1]
    assert text.count("prefetch") == 3


@pytest.mark.parametrize(
    ("tiles", "place"),
    [
        (16, "((i.outer * 40) + k)"),  # a tile of sixteen: an element each
        (4, "((i.outer * 160) + (k * 4))"),
        (1, "(k * 16)"),
        (None, "((min(i.outer, 7) * 80) + (k * 2))"),  # of any number: eight
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
    assert f"prefetch(W[min((p + 1), 5), 0, {place}])" in text


def test_of_a_cut_reduction_the_next_block_is_fetched() -> None:
    """Four blocks of ten steps; after the last one comes the first of the next panel."""
    weights, data = te.placeholder((6, 40, 16), name="W"), te.placeholder((8, 40), name="A")
    k = te.reduce_axis((0, 10), "k")
    c = te.compute(
        (4, 6, 8, 16),
        lambda b, p, i, j: te.sum(weights[p, b * 10 + k, j] * data[i, b * 10 + k], axis=k),
        name="C",
    )
    s = te.create_schedule(c.op)
    b, p, i, j = s[c].op.axis  # type: ignore[union-attr]
    outer, inner = s[c].split(i, factor=2)
    s[c].reorder(p, b, outer, k, inner, j)
    s[c].prefetch_panel(weights, k, [p, b], tiles=[([i], 2)])
    text = str(treadle.lower(s, [weights, data, c]))
    (hint,) = re.findall(r"prefetch\((.*)\)", text)
    block = "select((2 < b), 0, (b + 1))"
    panel = "min((select((2 < b), 1, 0) + p), 5)"
    assert hint == f"W[{panel}, ({block} * 10), ((i.outer * 40) + (k * 4))]"


@pytest.mark.parametrize(("panels", "width", "tiles"), [(6, 1, 4), (6, 1, 1), (7, 3, 1), (7, 2, 2)])
def test_tiles_of_the_last_panel_fetch_nothing_past_it(panels: int, width: int, tiles: int) -> None:
    """Past the last panel may lie a page that does not exist, which takes long to find out."""
    weights, data = te.placeholder((panels, 40, 16), name="W"), te.placeholder((12, 40), name="A")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute(
        (12, panels, 16), lambda i, p, j: te.sum(weights[p, k, j] * data[i, k], axis=k), name="C"
    )
    s = te.create_schedule(c.op)
    i, p, j = s[c].op.axis  # type: ignore[union-attr]
    outer, inner = s[c].split(i, nparts=tiles)
    panel, beside = s[c].split(p, factor=width)
    s[c].reorder(panel, outer, k, inner, beside, j)
    s[c].prefetch_panel(weights, k, [p], step=width, tiles=[([i], 12 // tiles)])
    lines = set(lines_fetched(s, [weights, data, c]))
    assert max(lines) < panels * 40
    assert lines >= set(range(width * 40, panels * 40))  # and all the others


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("tiles", [2, 12])
@pytest.mark.parametrize("cut", [1, 2])
def test_all_lines_of_the_next_panels_are_fetched_however_short_a_vector_is(
    lanes: int, tiles: int, cut: int
) -> None:
    """By tiles of 2 panels of 6 blocks of 8 channels, of a reduction that may be cut in `cut`."""
    weights = te.placeholder((6, 6, 8, lanes), name="W")
    data = te.placeholder((12, 6, 8), name="A")
    k, m = te.reduce_axis((0, 6 // cut), "k"), te.reduce_axis((0, 8), "m")
    c = te.compute(
        (cut, 12, 6, lanes),
        lambda b, i, p, j: te.sum(
            weights[p, b * (6 // cut) + k, m, j] * data[i, b * (6 // cut) + k, m], axis=[k, m]
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    b, i, p, j = s[c].op.axis  # type: ignore[union-attr]
    outer, _ = s[c].split(i, nparts=tiles)
    panel, inner = s[c].split(p, factor=2)
    s[c].reorder(panel, b, outer, k, m, inner, j)
    s[c].prefetch_panel(weights, k, [p, b], step=2, tiles=[([i], 12 // tiles)])
    lines, every = set(lines_fetched(s, [weights, data, c])), 6 * 6 * 8 * lanes // 16
    first = {  # of the panels and the block that nothing comes before
        line for line in range(every // 3) if line % (every // 6) < every // 6 // cut
    }
    assert lines | first == set(range(every))


def test_lines_of_rows_side_by_side_are_fetched_once() -> None:
    """The first panel of weights fetches 3 rows of 8 floats of V for the next one."""
    v, weights = te.placeholder((5, 4, 6, 8), name="V"), te.placeholder((5, 2, 4), name="W")
    k = te.reduce_axis((0, 4), "k")
    c = te.compute(
        (5, 2, 6, 8), lambda x, p, t, j: te.sum(v[x, k, t, j] * weights[x, p, k], axis=k), name="C"
    )
    s = te.create_schedule(c.op)
    x, p, t, j = s[c].op.axis  # type: ignore[union-attr]
    outer, inner = s[c].split(t, factor=3)
    s[c].reorder(x, p, outer, k, inner, j)
    s[c].prefetch_panel(v, k, [x], tiles=[([p], 1)], once=True)
    assert str(treadle.lower(s, [v, weights, c])).count("prefetch(") == 2
    assert set(lines_fetched(s, [v, weights, c])) >= set(range(12, 60))


@pytest.mark.parametrize("width", [1, 2])
def test_steps_of_the_last_of_many_panels_fetch_nothing_past_it(width: int) -> None:
    s, (weights, data, c), _, k = product_of_panels(18, width)
    s[c].prefetch(weights, k, 8)
    lines = set(lines_fetched(s, [weights, data, c]))
    assert max(lines) < 18 * 40
    assert lines >= set(range(width * 40, (18 - width) * 40))  # and the others all but the first


def test_steps_along_weights_of_points_go_on_with_the_next_point() -> None:
    """Of panels side by side whose next is not what follows in memory, none is left out."""
    weights, data = te.placeholder((4, 9, 8, 16), name="W"), te.placeholder((9, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute(
        (9, 4, 16), lambda x, p, j: te.sum(weights[p, x, k, j] * data[x, k], axis=k), name="C"
    )
    s = te.create_schedule(c.op)
    x, p, j = s[c].op.axis  # type: ignore[union-attr]
    panel, beside = s[c].split(p, factor=2)
    s[c].reorder(panel, x, k, beside, j)
    s[c].prefetch(weights, k, 12)
    lines = lines_fetched(s, [weights, data, c])
    assert lines[:2] == [12, 9 * 8 + 12]
    assert max(lines) < 4 * 9 * 8


@pytest.mark.parametrize(("tiles", "place"), [(16, "((i * 40) + k_1)"), (1, "(k_1 * 16)")])
def test_rows_of_what_a_stage_is_made_of_are_fetched_whole(tiles: int, place: str) -> None:
    """D is made of a row of W, where C needs it."""
    w, data = te.placeholder((6, 4, 40, 4), name="W"), te.placeholder((tiles, 40), name="A")
    d = te.compute((6, 40), lambda p, k: w[p, 0, k, 0] + w[p, 3, k, 3], name="D")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((6, tiles), lambda p, i: te.sum(d[p, k] * data[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    p, i = s[c].op.axis  # type: ignore[union-attr]
    s[d].compute_at(s[c], p)
    s[c].prefetch_panel(w, k, [p], tiles=[([i], 1)])
    assert f"prefetch(W[min((p + 1), 5), 0, 0, {place}])" in str(treadle.lower(s, [w, data, c]))


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
