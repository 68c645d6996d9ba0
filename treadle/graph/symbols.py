# SPDX-License-Identifier: Apache-2.0
"""Which symbolic sizes the nodes of a function use and decide, and an order that respects it.

A size that a value gives its number (`bind_size`, the results of branches and loops) is known only
when that value is; whatever speaks of it comes later, also where no data goes from one to the
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from treadle.expr.nodes import Expr, Var
from treadle.expr.traversal import free_vars
from treadle.graph.nodes import Call, Function, Node, topological
from treadle.graph.operator import Operator, bodies_of
from treadle.graph.types import Dim, TensorType, Type


def symbols_in(dims: Iterable[object]) -> dict[Var, None]:
    """Return the symbols of the expressions among `dims`, and in tuples there, in order."""
    found: dict[Var, None] = {}
    for d in dims:
        if isinstance(d, Expr):
            found |= dict.fromkeys(free_vars(d))
        elif isinstance(d, tuple):
            found |= symbols_in(d)
    return found


def _extents(type_: Type) -> list[Dim]:
    if isinstance(type_, TensorType):
        return list(type_.shape)
    return [d for f in type_.fields for d in _extents(f)]


def used_symbols(node: Node) -> dict[Var, None]:
    """Return the sizes that a node's type, attributes, callee and bodies speak of."""
    found = symbols_in(_extents(node.type))
    if not isinstance(node, Call):
        return found
    if isinstance(node.op, Function):
        return found | free_symbols(node.op)
    if node.attrs is not None:
        found |= symbols_in(getattr(node.attrs, f.name) for f in fields(node.attrs))
    for body in bodies_of(node):
        found |= free_symbols(body)
    return found


def given_by_params(function: Function) -> dict[Var, None]:
    """Return the sizes that are extents of parameters."""
    dims = (d for p in function.params for d in _extents(p.type))
    return {d: None for d in dims if isinstance(d, Var)}


def decided_by(node: Node) -> dict[Var, None]:
    """Return the sizes that a call gives their numbers."""
    if not isinstance(node, Call) or not isinstance(node.op, Operator) or node.op.binds is None:
        return {}
    return {s: None for s in node.op.binds(node.attrs) if isinstance(s, Var)}


def deciders(order: Iterable[Node]) -> dict[Var, Node]:
    """Return the value that decides each size: a number, or the results of a branch or loop."""
    found: dict[Var, Node] = {}
    for node in order:
        for size in decided_by(node):
            assert isinstance(node, Call)
            is_value = not bodies_of(node)
            found.setdefault(size, node.args[-1] if is_value else node)
    return found


def free_symbols(function: Function) -> dict[Var, None]:
    """Return the sizes a body uses that neither its parameters nor its calls decide."""
    order = topological([function.body])
    known = given_by_params(function) | dict.fromkeys(deciders(order))
    if function.attrs.get("primitive"):
        known = {}  # a kernel is given all of them
    used: dict[Var, None] = {}
    for node in (*function.params, *order):
        used |= used_symbols(node)
    return {s: None for s in used if s not in known}


def in_order(function: Function) -> tuple[list[Node], Mapping[Var, Node]]:
    """Return the nodes of a function, operands and what decides sizes before their users.

    The second result is the value that decides each size.
    """
    order = topological([function.body])
    values = deciders(order)
    if not values:
        return order, values

    def decide(node: Node) -> list[Node]:
        return [values[s] for s in used_symbols(node) if s in values]

    return topological(order, decide), values
