# SPDX-License-Identifier: Apache-2.0
"""Conditions leave the loops that do not change them; what is computed stays the same."""

from __future__ import annotations

import numpy as np

from tests.loop_eval import run
from treadle import te
from treadle.loop.from_schedule import schedule_to_func
from treadle.loop.nodes import For, If, PrimFunc, func_text, walk_stmts
from treadle.lower.hoist_conditions import hoist_conditions
from treadle.lower.simplify_loops import simplify_loops


def masked_sum(*, prefetch: bool = False, parallel: bool = False) -> tuple[PrimFunc, PrimFunc]:
    """Return y[i] = sum of x[t, k] where i + t < 4, before and after the pass."""
    x = te.placeholder((3, 8), name="x")
    t, k = te.reduce_axis((0, 3), "t"), te.reduce_axis((0, 8), "k")
    y = te.compute((4,), lambda i: te.sum(x[t, k], [t, k], where=te.all(i + t < 4, k < 6)), "y")
    s = te.create_schedule(y.op)
    if parallel:
        s[y].parallel(y.op.axis[0])
    if prefetch:
        outer, _ = s[y].split(k, factor=4)
        s[y].prefetch(x, outer, 1)
    before = simplify_loops(schedule_to_func(s, [x, y], "f"))
    return before, hoist_conditions(before)


def assert_same(before: PrimFunc, after: PrimFunc) -> None:
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    results = [np.zeros(4, np.float32) for _ in range(2)]
    for func, y in zip((before, after), results, strict=True):
        run(func, [x, y])
    np.testing.assert_array_equal(results[0], results[1])
    expected = [x[: max(0, 4 - i), :6].sum() for i in range(4)]
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-6)


def conditions_inside(func: PrimFunc, loop: str) -> list[str]:
    """Return the conditions inside the first loop over `loop`."""
    loops = (s for s in walk_stmts(func.body) if isinstance(s, For) and s.var.name == loop)
    return [str(s.cond) for s in walk_stmts(next(loops).body) if isinstance(s, If)]


def test_only_what_a_loop_changes_is_asked_inside_it() -> None:
    before, after = masked_sum()
    assert conditions_inside(before, "k") == ["(((i + t) < 4) and (k < 6))"]
    assert conditions_inside(after, "k") == ["(k < 6)"]
    assert conditions_inside(after, "t") == ["((i + t) < 4)", "(k < 6)"]
    assert_same(before, after)


def test_hints_go_along() -> None:
    before, after = masked_sum(prefetch=True)
    assert func_text(after).index("i + t") < func_text(after).index("prefetch")
    assert_same(before, after)


def test_parallel_loops_stay_outside() -> None:
    before, after = masked_sum(parallel=True)
    assert isinstance(after.body, For)
    assert after.body.kind == "parallel"
    assert_same(before, after)


def test_without_conditions_nothing_changes() -> None:
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, "y")
    func = schedule_to_func(te.create_schedule(y.op), [x, y], "f")
    assert hoist_conditions(func) is func
