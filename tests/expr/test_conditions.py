# SPDX-License-Identifier: Apache-2.0
"""Conjunctions and disjunctions mean what Python's `all` and `any` mean, of none too."""

from __future__ import annotations

import itertools

from tests.expr.evaluate import evaluate
from treadle.expr.conditions import all_of, any_of, conjuncts
from treadle.expr.nodes import Var


def test_all_and_any_mean_what_python_does() -> None:
    for count in range(4):
        names = [Var(f"p{k}", "bool") for k in range(count)]
        for values in itertools.product((False, True), repeat=count):
            given = dict(zip(names, values, strict=True))
            assert evaluate(all_of(names), given) is all(values)
            assert evaluate(any_of(names), given) is any(values)


def test_conjuncts_are_all_parts_in_order() -> None:
    p, q, r = (Var(n, "bool") for n in "pqr")
    assert conjuncts(all_of([p, q, r])) == [p, q, r]
    assert conjuncts(p & (q & r)) == [p, q, r]
    assert len(conjuncts(p | q)) == 1
