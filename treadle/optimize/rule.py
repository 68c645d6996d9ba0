# SPDX-License-Identifier: Apache-2.0
"""Rewrite rules on the graph and the engine that applies a table of them until nothing changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from treadle.errors import InternalError, TypeMismatch
from treadle.graph.nodes import Call, Function, Node, operands, topological, with_operands
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType, Type, same_dim
from treadle.limits import RULE_ROUNDS
from treadle.settings import get


@dataclass(slots=True)
class Uses:
    """How often values are used: rules ask before they change a producer."""

    counts: dict[Node, int]

    def is_single(self, node: Node) -> bool:
        """True when `node` has one use. Nodes a rule has just made have one."""
        return self.counts.get(node, 1) == 1


TRACED = 7
"""The setting `debug` from which on every rewrite is printed with its rule."""

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


def with_arguments(call: Call, args: Sequence[Node]) -> Call | None:
    """Return a call of the same type with other arguments; None where the operator refuses them.

    Not every operator broadcasts both ways: the slope of prelu fits the input, never the reverse.
    """
    if not isinstance(call.op, Operator):
        return None
    try:
        fresh = call.op.call(call.attrs, args, origin=call.origin)
    except TypeMismatch:
        return None
    return fresh if _has_type(fresh, call) else None


def _has_type(a: Call, b: Call) -> bool:
    x, y = a.type, b.type
    if not isinstance(x, TensorType) or not isinstance(y, TensorType):
        return False
    shapes = zip(x.shape, y.shape, strict=False)
    return x.dtype == y.dtype and x.ndim == y.ndim and all(same_dim(p, q) for p, q in shapes)


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
    engine = _Engine(table, first, get().debug >= TRACED)
    for _ in range(RULE_ROUNDS):
        rewritten = engine.visit(function)
        if rewritten is function:
            break
        function = rewritten
    return function


@dataclass(slots=True)
class _Engine:
    table: Mapping[object, Sequence[Rule]]
    first: RuleFn | None
    is_traced: bool

    def visit(self, function: Function) -> Function:
        """Return `function` with every call settled once, operands first."""
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
            done[node] = fresh = self.settle(fresh, uses)
            uses.counts[fresh] = uses.counts.get(fresh, 0) + old_counts[node]
        body = done[function.body]
        if body is function.body:
            return function
        return Function(function.params, body, function.name, dict(function.attrs))

    def settle(self, node: Node, uses: Uses) -> Node:
        """Return `node` rewritten until no rule applies at it."""
        for _ in range(RULE_ROUNDS):
            replaced = self.rewrite(node, uses) if isinstance(node, Call) else None
            if replaced is None:
                break
            node = replaced
        return node

    def rewrite(self, call: Call, uses: Uses) -> Node | None:
        """Return what the first rule that applies makes of a call."""
        folded = None if self.first is None else self.first(call, uses)
        if folded is not None:
            return folded
        for rule in self.table.get(call.op, ()):
            replaced = rule.apply(call, uses)
            if replaced is None or replaced is call:
                continue
            # Equal symbolic extents may be written differently: such a call stays as it is.
            if replaced.type == call.type:
                self._trace(rule, call)
                return replaced
            if _is_static(call.type) and _is_static(replaced.type):
                raise InternalError(
                    f"rule {rule.name!r} turns a {call.type} into a {replaced.type}",
                    at=f"operator {call.op}, node {call.origin or '(unnamed)'}",
                )
        return None

    def _trace(self, rule: Rule, call: Call) -> None:
        if self.is_traced:
            print(f"rule {rule.name}: {call.op} {call.origin or '(unnamed)'}", file=sys.stderr)


def _is_static(type_: Type) -> bool:
    if isinstance(type_, TensorType):
        return type_.is_static
    return all(_is_static(f) for f in type_.fields)
