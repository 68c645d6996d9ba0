# SPDX-License-Identifier: Apache-2.0
"""Stages that are rounded up compute whole tiles, and read nothing past an end."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from treadle import te
from treadle.expr.nodes import int_value
from treadle.loop.context import Context
from treadle.loop.required import limited
from treadle.te.loops import AxisNote
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule


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


def test_a_bound_that_is_known_in_other_terms() -> None:
    """That a size is positive changes the terms of what a condition has said of it before."""
    n, task = te.var("n"), te.var("task")
    size = te.max(n - 2, 0)
    left = size - task % ((size + 15) // 16) * 16
    vectors = (left + 15) // 16
    context = Context([n], None)
    with context.where(task >= 0), context.where(left < 16), context.where(n >= 3):
        found = context.simplify(vectors)
        assert context.known.bounds.reach(found).hi is None
        assert limited(vectors, AxisNote("serial"), context.known) is found
        assert limited(vectors, None, context.known) is found
        assert int_value(limited(vectors, AxisNote("unrolled"), context.known)) == 1
