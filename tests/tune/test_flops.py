# SPDX-License-Identifier: Apache-2.0
"""How many operations a tensor expression has."""

from __future__ import annotations

import pytest

from treadle import te
from treadle.tune.flops import flops_of

pytestmark = pytest.mark.tiny


def test_products_sums_and_elements_count_and_indices_do_not() -> None:
    a, b = te.placeholder((6, 7), name="a"), te.placeholder((7, 5), name="b")
    k = te.reduce_axis((0, 7), "k")
    c = te.compute_one((6, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute_one((6, 4), lambda i, j: te.exp(c[i, j + 1]) - 1.0, name="d")
    guarded = te.compute_one(
        (6, 4), lambda i, j: te.if_then_else(i * 2 < j, d[i, j] + 1.0, 0.0), name="guarded"
    )
    assert flops_of([a.op, b.op, c.op]) == 2 * 6 * 7 * 5
    assert flops_of([c.op, d.op]) == 2 * 6 * 7 * 5 + 2 * 6 * 4
    assert flops_of([guarded.op]) == 6 * 4
