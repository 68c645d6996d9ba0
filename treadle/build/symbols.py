# SPDX-License-Identifier: Apache-2.0
"""Which symbolic sizes the calls of a fused function use and decide, and an order that respects it.

A size that a value gives its number (`with_size`, the results of branches and loops) is known only
after that call; whatever speaks of it comes later, also where no data goes from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from treadle.build.group import function_sizes
from treadle.expr.nodes import Expr, Var, free_vars
from treadle.graph.nodes import Call, Function, Node, operands, topological
from treadle.graph.operator import bodies_of
from treadle.graph.types import Dim, TensorType, Type
from treadle.ops.control import bound_sizes


def symbols_in(dims: Iterable[Dim]) -> dict[Var, None]:
    """Return the symbols of extents, in order."""
    return {v: None for d in dims if isinstance(d, Expr) for v in free_vars(d)}


def _extents(type_: Type) -> list[Dim]:
    if isinstance(type_, TensorType):
        return list(type_.shape)
    return [d for f in type_.fields for d in _extents(f)]


def used_symbols(node: Node) -> dict[Var, None]:
    """Return the sizes a node's type, kernel and bodies speak of."""
    found = symbols_in(_extents(node.type))
    if isinstance(node, Call) and isinstance(node.op, Function):
        found |= dict.fromkeys(function_sizes(node.op))
    for body in bodies_of(node) if isinstance(node, Call) else ():
        found |= free_symbols(body)
    return found


def given_by_params(function: Function) -> dict[Var, None]:
    """Return the sizes that are extents of parameters."""
    dims = (d for p in function.params for d in _extents(p.type))
    return {d: None for d in dims if isinstance(d, Var)}


def decided_by(node: Node) -> dict[Var, None]:
    """Return the sizes that are known after a call."""
    sizes = bound_sizes(node) if isinstance(node, Call) else ()
    return {s: None for s in sizes if isinstance(s, Var)}


def free_symbols(function: Function) -> dict[Var, None]:
    """Return the sizes a body uses that neither its parameters nor its calls decide."""
    order = topological([function.body])
    known = given_by_params(function)
    for node in order:
        known |= decided_by(node)
    used: dict[Var, None] = {}
    for node in (*function.params, *order):
        used |= used_symbols(node)
    return {s: None for s in used if s not in known}


def in_order(function: Function) -> list[Node]:
    """Return the nodes of a function, operands and what decides sizes before their users."""
    order = topological([function.body])
    deciders = {s: node for node in order for s in decided_by(node)}
    if not deciders:
        return order
    done: dict[Node, None] = {}
    stack = [(node, False) for node in reversed(order)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready:
            done[node] = None
            continue
        before = [deciders[s] for s in used_symbols(node) if s in deciders]
        stack.append((node, True))
        stack += [(o, False) for o in (*operands(node), *before) if o not in done and o is not node]
    return list(done)
