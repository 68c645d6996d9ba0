# SPDX-License-Identifier: Apache-2.0
"""Loops are built with exact extents: no test in a hot loop, and buffers no larger than needed."""

from __future__ import annotations

import numpy as np

import treadle
from tests.te.scripts import check
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


def test_rfactor_of_every_axis_can_be_inlined() -> None:
    a = te.placeholder((4, 10), name="A")
    k = te.reduce_axis((0, 10), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k, where=k % 3 != 1), name="C")
    s = te.create_schedule(c.op)
    partial = s.rfactor(c, k)
    s[partial].compute_inline()
    check(s, [a, c])


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
