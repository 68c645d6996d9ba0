# SPDX-License-Identifier: Apache-2.0
"""A stage computed at a loop that its readers are not inside is refused, and the step is named."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests import loop_eval
from treadle import te
from treadle.loop.from_schedule import schedule_to_func
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule


def chain() -> tuple[Schedule, Tensor, Tensor, Tensor, Tensor]:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((8,), lambda i: b[i] * 2.0, name="C")
    d = te.compute((8,), lambda i: c[i] - 3.0, name="D")
    for t in (a, b, c, d):
        assert isinstance(t, Tensor)
    return te.create_schedule(d), a, b, c, d  # type: ignore[return-value]


def refusal(s: Schedule, *args: Tensor) -> str:
    with pytest.raises(treadle.ScheduleError) as caught:
        treadle.lower(s, args)
    return str(caught.value)


def test_at_an_inlined_stage() -> None:
    s, a, b, c, d = chain()
    s[b].compute_at(s[c], c.op.axis[0])
    s[c].compute_inline()
    assert refusal(s, a, d) == (
        "B cannot be computed at i of C: C is inlined and has no loops"
        "\n  at    s[B].compute_at(s[C], i)"
        "\n  hint  compute it at a loop of a stage that reads it, or at root"
    )


def test_below_its_reader() -> None:
    s, a, b, _, d = chain()
    s[b].compute_at(s[d], d.op.axis[0])
    assert refusal(s, a, d) == (
        "B is computed inside loop i of D, but C, which reads it, is not inside that loop"
        "\n  at    s[B].compute_at(s[D], i)"
        "\n  hint  compute it at a loop that encloses all its readers, or at root"
    )


def test_further_in_than_its_reader() -> None:
    s, a, b, c, d = chain()
    outer, inner = s[d].split(d.op.axis[0], factor=4)
    s[b].compute_at(s[d], inner)
    s[c].compute_at(s[d], outer)
    assert "C, which reads it, is not inside that loop" in refusal(s, a, d)


def test_at_the_loops_of_a_peeled_stage() -> None:
    s, a, b, c, d = chain()
    s[b].compute_inline()
    s[d].peel(d.op.axis[0], 1, 7)
    s[c].compute_at(s[d], d.op.axis[0])
    assert refusal(s, a, d) == (
        "C is computed inside loop i of D, but the border of D, which is peeled, reads it outside "
        "of that loop"
        "\n  at    s[C].compute_at(s[D], i)"
        "\n  hint  compute it at root, or peel only what does not read it"
    )


def test_two_at_each_other() -> None:
    s, a, b, c, d = chain()
    s[b].compute_at(s[c], c.op.axis[0])
    s[c].compute_at(s[b], b.op.axis[0])
    assert "is not inside that loop" in refusal(s, a, d)


def test_a_legal_nest_of_three() -> None:
    s, a, b, c, d = chain()
    s[c].compute_at(s[d], d.op.axis[0])
    s[b].compute_at(s[c], c.op.axis[0])
    treadle.lower(s, [a, d])


def test_what_a_padded_read_divides_by_may_be_zero() -> None:
    """Of an empty tensor the padding alone is computed: nothing is made for a read of it."""
    m = te.var("m")
    a = te.placeholder((8, m), "float32", "A")
    b = te.compute((8, m), lambda i, j: a[i, j] + 1.0, "B")

    flat = te.compute((m * 8,), lambda i: b[i // m, i % m], "flat")

    def padded(i: te.Expr) -> te.Expr:
        return te.if_then_else(te.all(i >= 2, i < m * 8 + 2), flat[i - 2], 0.0)

    c = te.compute((m * 8 + 3,), padded, "C")
    s = te.create_schedule(c)
    s[flat].compute_inline()
    at = s[c].fuse(*s[c].split(s[c].op.axis[0], 2))
    s[b].compute_at(s[c], at)
    compiled = treadle.build(s, [a, c])
    for size in (0, 1, 3):
        data = np.arange(8 * size, dtype=np.float32).reshape(8, size)
        result = np.full(8 * size + 3, np.nan, np.float32)
        loop_eval.run(schedule_to_func(s, [a, c], "padded"), [data, result], {m: size})
        wanted = np.pad(data.ravel() + 1, (2, 1))
        np.testing.assert_array_equal(result, wanted)
        result[:] = np.nan
        compiled(data, result)
        np.testing.assert_array_equal(result, wanted)


# ---- stored further out than computed ------------------------------------------------------------


def tiled() -> tuple[Schedule, list[te.IterVar], Tensor, Tensor, Tensor]:
    """C[i, j] = sum of B[j, k] over k, B = 2 A, in the loops i.outer, k, i.inner, j."""
    a = te.placeholder((5, 6), name="A")
    b = te.compute((5, 6), lambda j, k: a[j, k] * 2.0, name="B")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((8, 5), lambda i, j: te.sum(b[j, k], axis=k), name="C")
    assert isinstance(b, Tensor)
    assert isinstance(c, Tensor)
    s = te.create_schedule(c)
    i, j = s[c].op.axis  # type: ignore[union-attr]
    outer, inner = s[c].split(i, factor=3)
    s[c].reorder(outer, k, inner, j)
    return s, [outer, k, inner, j], a, b, c


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("stored", [0, 1, 2, 3])
def test_what_is_stored_is_computed_once(stored: int, at: int) -> None:
    s, loops, a, b, c = tiled()
    s[b].compute_at(s[c], loops[at])
    s[b].store_at(s[c], loops[stored])
    if stored > at:
        assert "no loop around the one where the stage is computed" in refusal(s, a, c)
        return
    values, made = np.arange(30, dtype=np.float32).reshape(5, 6), np.zeros((8, 5), np.float32)
    func = schedule_to_func(s, [a, c], "main")
    loop_eval.run(func, [values, made], {}, 0)
    np.testing.assert_array_equal(made, np.tile(2 * values.sum(1), (8, 1)))


def test_stored_at_no_loop_around() -> None:
    s, loops, a, b, c = tiled()
    s[b].compute_at(s[c], loops[0])
    s[b].store_at(s[c], loops[1])
    assert refusal(s, a, c) == (
        "B cannot be stored at k of C: it is no loop around the one where the stage is computed"
        "\n  at    s[B].store_at(s[C], k)"
        "\n  hint  store it further out"
    )


def test_stored_where_two_are_computed_at_each_other() -> None:
    s, a, b, c, d = chain()
    s[b].compute_at(s[c], c.op.axis[0])
    s[c].compute_at(s[b], b.op.axis[0])
    s[b].store_at(s[d], d.op.axis[0])
    assert "is not inside that loop" in refusal(s, a, d)


def test_stored_around_iterations_at_the_same_time() -> None:
    s, a, b, c, d = chain()
    s[b].compute_inline()
    outer, inner = s[d].split(d.op.axis[0], factor=2)
    far, near = s[d].split(outer, factor=2)
    s[c].compute_at(s[d], inner)
    s[c].store_at(s[d], far)
    s[d].parallel(near)
    assert refusal(s, a, d) == (
        "C cannot be stored at i.outer.outer of D: the iterations of i.outer.inner of D, in "
        "between, are parallel"
        "\n  at    s[C].store_at(s[D], i.outer.outer)"
        "\n  hint  what they share is to be computed before them"
    )


def test_stored_where_it_is_rounded_up() -> None:
    s, a, b, c, d = chain()
    s[b].compute_inline()
    outer, inner = s[d].split(d.op.axis[0], factor=4)
    s[c].compute_at(s[d], inner)
    s[c].store_at(s[d], outer)
    s[c].round_up(c.op.axis[0])
    assert "its axis i is rounded up, past the end of what is kept" in refusal(s, a, d)


def test_stored_for_iterations_that_need_other_parts() -> None:
    """Of every row of a triangle, a later one needs more than the first has computed."""
    a = te.placeholder((6,), name="A")
    b = te.compute((6,), lambda j: a[j] * 2.0, name="B")
    k = te.reduce_axis((0, 6), "k")
    seen = te.compute((6,), lambda i: te.sum(te.if_then_else(k <= i, b[k], 0.0), axis=k), name="S")
    c = te.compute((6,), lambda i: seen[i] + 1.0, name="C")
    s = te.create_schedule(c)
    outer, inner = s[c].split(c.op.axis[0], factor=6)  # type: ignore[union-attr]
    s[seen].compute_at(s[c], inner)
    s[seen].trim(k, s[seen].op.axis[0], 0)  # type: ignore[union-attr]
    s[b].compute_at(s[seen], k)
    s[b].store_at(s[c], outer)
    assert "need other parts than the first" in refusal(s, a, c)  # type: ignore[arg-type]
