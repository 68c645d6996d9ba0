# SPDX-License-Identifier: Apache-2.0
"""Concatenations that hold the values of others: those are written once, in the largest.

    concat(a, b), concat(a, b, c)  ->  p = concat(a, b), concat(p, c)

Every layer of a DenseNet reads all earlier ones. A value is written where one concatenation holds
it and copied into all others; a concatenation is a part of the next one, with all that it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.graph.nodes import Call, Function, Node, rewrite
from treadle.ops.movement import concat
from treadle.optimize.rule import attrs_of

_Parts = tuple[Node, ...]


def share_runs(function: Function) -> Function:
    """Return `function` with concatenations of values that others hold side by side made of those.

    Of several the longest counts.
    """
    known: dict[tuple[int, Node], list[tuple[_Parts, Call]]] = {}

    def share(node: Node) -> Node | None:
        if not isinstance(node, Call) or node.op is not concat:
            return None
        axis: int = attrs_of(node).axis
        parts = tuple(node.args)
        shared = _shared(parts, known, axis)
        made = node if shared is None else concat.call(node.attrs, shared, origin=node.origin)
        if len(parts) > 1:
            known.setdefault((axis, parts[0]), []).append((parts, made))
        return None if shared is None else made

    made = rewrite(function, share)
    return function if made.body is function.body else made


def _shared(
    parts: _Parts, known: dict[tuple[int, Node], list[tuple[_Parts, Call]]], axis: int
) -> Sequence[Node] | None:
    """Return the parts with the longest run of them that another concatenation holds as that."""
    runs = [
        (len(held), at, made)
        for at, first in enumerate(parts)
        for held, made in known.get((axis, first), ())
        if parts[at : at + len(held)] == held
    ]
    if not runs:
        return None
    length, at, made = max(runs, key=lambda run: run[0])
    return None if length == len(parts) else (*parts[:at], made, *parts[at + length :])
