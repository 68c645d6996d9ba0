# SPDX-License-Identifier: Apache-2.0
"""Peeled borders have loops of their own, and what is inside has no guards."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests import loop_eval
from tests.te.scripts import check
from treadle import te


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
