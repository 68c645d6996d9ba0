# SPDX-License-Identifier: Apache-2.0
"""Rewrite rules on the graph and the engine that applies a table of them until nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from treadle.errors import InternalError
from treadle.graph.nodes import Call, Function, Node, operands, topological, with_operands
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType, Type

ROUNDS = 12
"""How often the whole graph is visited at most; tables converge in two or three rounds."""


@dataclass(slots=True)
class Uses:
    """How often values are used: rules ask before they change a producer."""

    counts: dict[Node, int]

    def is_single(self, node: Node) -> bool:
        """True when `node` has one use. Nodes a rule has just made have one."""
        return self.counts.get(node, 1) == 1


RuleFn: TypeAlias = Callable[[Call, Uses], Node | None]
"""Gets a call whose operands are rewritten already; returns its replacement, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A rewrite of calls of some operators; the replacement must have the same type."""

    name: str
    operators: tuple[Operator[Any], ...]
    apply: RuleFn


def attrs_of(call: Call) -> Any:  # the attribute record of whatever operator a rule is about
    """Return the attributes of a call whose operator the caller knows."""
    return call.attrs


def apply_rules(function: Function, rules: Sequence[Rule], first: RuleFn | None = None) -> Function:
    """Return `function` rewritten by `rules` until no rule applies; unchanged: the same object.

    `first` is tried on every call before the rules of its operator.

    Raises:
        InternalError: a rule changes the type of a value; the error names the rule.
    """
    table: dict[object, list[Rule]] = {}
    for rule in rules:
        for operator in rule.operators:
            table.setdefault(operator, []).append(rule)
    for _ in range(ROUNDS):
        rewritten = _apply_once(function, table, first)
        if rewritten is function:
            break
        function = rewritten
    return function


def _apply_once(
    function: Function, table: Mapping[object, Sequence[Rule]], first: RuleFn | None
) -> Function:
    order = topological([function.body])
    old_counts = dict.fromkeys(order, 0)
    old_counts[function.body] = 1
    for node in order:
        for operand in operands(node):
            old_counts[operand] += 1
    uses = Uses({})
    done: dict[Node, Node] = {}
    for node in order:
        fresh = with_operands(node, [done[o] for o in operands(node)])
        if isinstance(fresh, Call):
            fresh = _settle(fresh, table, first, uses)
        done[node] = fresh
        uses.counts[fresh] = uses.counts.get(fresh, 0) + old_counts[node]
    body = done[function.body]
    if body is function.body:
        return function
    return Function(function.params, body, function.name, dict(function.attrs))


def _settle(
    call: Call, table: Mapping[object, Sequence[Rule]], first: RuleFn | None, uses: Uses
) -> Node:
    """Return `call` rewritten until no rule applies at it."""
    current: Node = call
    for _ in range(ROUNDS):
        if not isinstance(current, Call):
            break
        replaced = _rewrite_call(current, table, first, uses)
        if replaced is None:
            break
        current = replaced
    return current


def _rewrite_call(
    call: Call, table: Mapping[object, Sequence[Rule]], first: RuleFn | None, uses: Uses
) -> Node | None:
    if first is not None:
        folded = first(call, uses)
        if folded is not None:
            return folded
    for rule in table.get(call.op, ()):
        replaced = rule.apply(call, uses)
        if replaced is None or replaced is call:
            continue
        if replaced.type == call.type:
            return replaced
        if _is_static(call.type) and _is_static(replaced.type):
            raise InternalError(
                f"rule {rule.name!r} turns a {call.type} into a {replaced.type}",
                at=f"operator {call.op}, node {call.origin or '(unnamed)'}",
            )
        # Equal symbolic extents may be written differently: leave such a call as it is.
    return None


def _is_static(type_: Type) -> bool:
    if isinstance(type_, TensorType):
        return type_.is_static
    return all(_is_static(f) for f in type_.fields)
