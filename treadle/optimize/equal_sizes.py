# SPDX-License-Identifier: Apache-2.0
"""Write sizes that every run must find equal alike.

before: add(broadcast_to(scores, [q, c]), broadcast_to(mask, [1, c])), then a product with v[k, n]
after:  add(scores, broadcast_to(mask, [1, k])), then the same product

c is the common extent of k and that of the mask (`treadle.graph.broadcasting`). The product needs c
equal to k, and every run checks it, as the graph before asks. So no run repeats the scores, and
what takes softmax and product together meets a graph without c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from treadle.expr.nodes import Expr, Select
from treadle.expr.traversal import substitute, walk
from treadle.graph.nodes import Call, Function, Node, rewrite, topological
from treadle.graph.operator import Operator, bodies_of
from treadle.graph.size_rules import SizeRule
from treadle.graph.types import Dim, normal_size


def with_equal_sizes(function: Function, rules: Iterable[SizeRule]) -> Function:
    """Return `function` with common extents as the sizes that `rules` say they are equal to.

    `rules` are what every run checks of this function. One with branches or loops stays as it is:
    their bodies take sizes of their own.
    """
    known = _settled(rules)
    if not known or any(isinstance(n, Call) and bodies_of(n) for n in topological([function.body])):
        return function

    def settle(node: Node) -> Node | None:
        if not isinstance(node, Call) or not isinstance(node.op, Operator) or node.attrs is None:
            return None
        values = {f.name: getattr(node.attrs, f.name) for f in fields(node.attrs)}
        fresh = {name: _replaced(value, known) for name, value in values.items()}
        if all(fresh[name] is value for name, value in values.items()):
            return None
        return node.op.call(replace(node.attrs, **fresh), node.args, origin=node.origin)

    return rewrite(function, settle)


def _settled(rules: Iterable[SizeRule]) -> dict[Expr, Expr]:
    """Return common extents with the sizes they are equal to in every run that goes on."""
    known: dict[Expr, Expr] = {}
    for rule in rules:
        for common, other in ((rule.a, rule.b), (rule.b, rule.a)):
            if rule.rule != "equal" or not isinstance(common, Select) or common in known:
                continue
            value = _substituted(other, known)
            if isinstance(value, Expr) and not any(isinstance(n, Select) for n in walk(value)):
                known[common] = value
    return known


def _replaced(value: Any, known: Mapping[Expr, Expr]) -> Any:  # Any: an attribute of any type
    if isinstance(value, tuple):
        fresh = tuple(_replaced(v, known) for v in value)
        return value if all(a is b for a, b in zip(value, fresh, strict=True)) else fresh
    return _substituted(value, known) if isinstance(value, Expr) else value


def _substituted(size: Dim, known: Mapping[Expr, Expr]) -> Dim:
    """Return a size with the common extents in it replaced, outer ones first."""
    if not isinstance(size, Expr) or not any(n in known for n in walk(size)):
        return size
    return normal_size(substitute(size, dict(known)))
