# SPDX-License-Identifier: Apache-2.0
"""What the methods say of one call, and what it becomes."""

from __future__ import annotations

from dataclasses import dataclass

from tests.optimize.cases import function
from treadle.graph.nodes import Call, Function, Var, topological
from treadle.graph.operator import Operator
from treadle.optimize.layout import choose_layouts
from treadle.optimize.methods.method import NO_CHOICES, Choices
from treadle.passes import Candidate, recorded_decisions
from treadle.target.base import Target


@dataclass(frozen=True)
class Asked:
    """The method chosen for a call, why, what all said of it, and the graph that was made."""

    choice: str
    reason: str
    candidates: dict[str, Candidate]
    made: Function

    @property
    def calls(self) -> list[Call]:
        """The calls of operators in the graph that was made."""
        nodes = topological([self.made.body])
        return [n for n in nodes if isinstance(n, Call) and isinstance(n.op, Operator)]

    def call_of(self, operator: Operator) -> Call:  # type: ignore[type-arg]  # of any attributes
        """Return the only call of an operator in what was made."""
        (found,) = (c for c in self.calls if c.op is operator)
        return found

    def against(self, method: str) -> str:
        """Return why a method was not chosen."""
        return self.candidates[method].reason


def asked(call: Call, target: Target, choices: Choices = NO_CHOICES) -> Asked:
    """Return what is said of the last call of a graph with all its parameters free."""
    params = [n for n in topological([call]) if isinstance(n, Var)]
    with recorded_decisions() as decisions:
        made = choose_layouts(function(call, params=params), target, choices)
    first = next(
        d for d in decisions if d.topic == "method" and d.candidates and d.origin == call.origin
    )
    return Asked(first.choice, first.reason, {c.name: c for c in first.candidates}, made)
