# SPDX-License-Identifier: Apache-2.0
"""Rules over sizes: decided where the sizes are known, kept for the run where they are not."""

from __future__ import annotations

import pytest

from treadle.expr.nodes import Expr, Var, maximum
from treadle.graph.size_rules import Rule, SizeRule, aligned, equal, filled, within
from treadle.graph.types import TensorType

pytestmark = pytest.mark.tiny

N, M = Var("n"), Var("m")


def holds(rule: Rule, a: int, b: int) -> bool:
    """What the rules say, in plain words of Python."""
    return {
        "equal": a == b, "within": a <= b, "filled": a != 0 or b == 0, "kept": a != 1,
        "never": False, "asked": a <= b,
    }[rule]  # fmt: skip


@pytest.mark.parametrize("rule", ["equal", "within", "filled", "kept", "never", "asked"])
def test_known_sizes_are_decided(rule: Rule) -> None:
    for a in range(4):
        for b in range(4):
            made = SizeRule(rule, a, b, reason="why")
            assert made.always_holds == holds(rule, a, b)
            assert made.never_holds != made.always_holds


@pytest.mark.parametrize(
    ("rule", "a", "b"),
    [("equal", N, N), ("within", N, N + 1), ("within", 0, N),
     ("filled", N + 1, M), ("filled", maximum(N, 1), M), ("filled", N, 0), ("kept", N + 2, 0)],
)  # fmt: skip
def test_what_holds_at_every_size_is_not_left_to_runs(rule: Rule, a: Expr, b: Expr) -> None:
    assert SizeRule(rule, a, b).always_holds


@pytest.mark.parametrize(
    ("rule", "a", "b"),
    [("equal", N, M), ("within", N + 1, N), ("filled", N, M), ("kept", N, 0), ("asked", N, 3)],
)
def test_what_depends_on_sizes_is_neither(rule: Rule, a: Expr, b: Expr) -> None:
    made = SizeRule(rule, a, b)
    assert not made.always_holds
    assert not made.never_holds


def test_rules_of_operands() -> None:
    operand = TensorType((N, 4), "float32")
    assert [(r.a, r.b) for r in equal([(2, 3)])] == [(2, 3)]
    assert [(r.a, r.b) for r in aligned((1, N), (2, 5, M))] == [(N, M)]
    assert [(r.rule, r.a, r.b, r.axis) for r in within((7, 2), operand, (0, 1))] == [
        ("within", 7, N, 0), ("within", 2, 4, 1),
    ]  # fmt: skip
    (rule,) = filled(operand, (0,), TensorType((3, 2), "float32"))
    assert (rule.a, rule.b) == (N, 6)


def test_texts_name_sizes_and_axes() -> None:
    assert str(SizeRule("equal", N, 3)) == "combines tensors of different sizes: n and 3"
    assert "reads 5 elements along axis 2 of a tensor that has n" in str(
        SizeRule("within", 5, N, 2)
    )
    assert "cannot run: why" in str(SizeRule("never", 0, 0, reason="why"))
