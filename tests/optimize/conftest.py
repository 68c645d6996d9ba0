# SPDX-License-Identifier: Apache-2.0
"""The check every rewrite rule gets: its text before and after, and its meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.optimize.cases import assert_same
from treadle.graph.nodes import Function
from treadle.graph.text import function_text
from treadle.optimize.rule import Rule, apply_rules

Check = Callable[..., Function]


@pytest.fixture
def check_rule(golden: Any) -> Check:
    """Return a function that applies rules, checks the golden text and the meaning."""

    def check(
        name: str,
        before: Function,
        rules: Sequence[Rule],
        *,
        rtol: float | None = None,
        special: bool = False,
    ) -> Function:
        after = apply_rules(before, rules)
        text = f"{function_text(before)}\n=>\n\n{function_text(after)}"
        golden.check(f"{name}.txt", text)
        assert after is not before, f"no rule applies to {name}"
        assert_same(before, after, rtol=rtol, special=special)
        return after

    return check
