# SPDX-License-Identifier: Apache-2.0
"""The engine that applies rules."""

from __future__ import annotations

import pytest

from tests.optimize.cases import function, var
from treadle.errors import InternalError
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Call, Node, topological
from treadle.ops.elementwise import exp, negative, relu, tanh
from treadle.ops.reshaping import reshape
from treadle.optimize.rule import Rule, Uses, apply_rules
from treadle.settings import use

x = var("x", 3)


def _swap(call: Call, uses: Uses) -> Node | None:
    return negative(call.args[0])


def test_rules_apply_until_none_does() -> None:
    rules = [
        Rule("exp_to_relu", (exp,), lambda c, u: relu(c.args[0])),
        Rule("relu_to_negative", (relu,), _swap),
    ]
    after = apply_rules(function(exp(exp(x)), params=[x]), rules)
    assert [n.op.name for n in topological([after.body]) if isinstance(n, Call)] == ["negative"] * 2


def test_unchanged_function_is_the_same_object() -> None:
    before = function(exp(x), params=[x])
    assert apply_rules(before, [Rule("never", (exp,), lambda c, u: None)]) is before


def test_uses_are_counted() -> None:
    seen: dict[str, bool] = {}

    def look(call: Call, uses: Uses) -> Node | None:
        seen[call.origin] = uses.is_single(call.args[0])
        return None

    shared, single = relu(x), relu(x)
    f = function(exp(shared, origin="a"), exp(shared), exp(single, origin="b"), params=[x])
    apply_rules(f, [Rule("look", (exp,), look)])
    assert seen["a"] is False
    assert seen["b"] is True


def test_result_of_the_function_counts_as_a_use() -> None:
    seen: list[bool] = []

    def look(call: Call, uses: Uses) -> Node | None:
        seen.append(uses.is_single(call.args[0]))
        return None

    inner = relu(x)
    apply_rules(function(inner, exp(inner), params=[x]), [Rule("look", (exp,), look)])
    assert seen == [False]


def test_rule_that_changes_a_type_is_named() -> None:
    rule = Rule("wrong", (exp,), lambda c, u: reshape(c, shape=(3, 1)))
    with pytest.raises(InternalError, match="'wrong' turns a float32"):
        apply_rules(function(exp(x), params=[x]), [rule])


def test_symbolic_types_written_differently_are_left_alone() -> None:
    s = var("s", Symbol("n"))
    rule = Rule("other", (exp,), lambda c, u: relu(var("t", Symbol("n"))))
    before = function(exp(s), params=[s])
    assert apply_rules(before, [rule]) is before


def test_rewrites_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rule = Rule("exp_to_relu", (exp,), lambda c, u: relu(c.args[0]))
    with use(debug=7):
        apply_rules(function(exp(x, origin="n1"), params=[x]), [rule])
    assert capsys.readouterr().err == "rule exp_to_relu: exp n1\n"


def test_endless_rules_stop() -> None:
    rules = [
        Rule("there", (exp,), lambda c, u: tanh(c.args[0])),
        Rule("back", (tanh,), lambda c, u: exp(c.args[0])),
    ]
    after = apply_rules(function(exp(x), params=[x]), rules)
    assert isinstance(after.body, Call)
