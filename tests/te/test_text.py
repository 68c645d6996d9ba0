# SPDX-License-Identifier: Apache-2.0
"""Operations print what every element is, producers first."""

from __future__ import annotations

import pytest

from treadle import te
from treadle.te.text import operations_text

pytestmark = pytest.mark.tiny


def test_a_line_for_every_result() -> None:
    a = te.placeholder((8, 4), "float32", "A")
    k = te.reduce_axis((0, 4), "k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], k), name="B")
    c = te.compute((te.var("n"),), lambda i: b[0] * 2.0, name="C")
    assert operations_text([a.op, b.op, c.op]).splitlines() == [
        "A: float32[8, 4]",
        "B: float32[8]; B[i] = sum(A[i, k], [k: 4])",
        "C: float32[n]; C[i] = (B[0] * float32(2.0))",
    ]


def test_several_results_have_a_line_each() -> None:
    a = te.placeholder((4,), "float32", "A")
    pair = te.compute((4,), lambda i: (a[i] + 1.0, a[i] - 1.0), name="P")
    lines = operations_text([pair[0].op]).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"{pair[0].name}: float32[4]; {pair[0].name}[i] = ")
    assert lines[0] != lines[1]
