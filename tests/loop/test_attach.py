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
