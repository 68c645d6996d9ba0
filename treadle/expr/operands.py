# SPDX-License-Identifier: Apache-2.0
"""What every expression node keeps of its operands, of what was found out of it, and its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from treadle.expr.vocabulary import HAS_VECTOR

if TYPE_CHECKING:
    from treadle.expr.nodes import Expr

_NO_LEAVES: frozenset[object] = frozenset()

LONG = 40
"""Nodes: a part with more in its text is named where it is used more than once."""


class Operands:
    """The part of a node that is the same for all of them, filled when the node is made.

    `children` are the operands in order of evaluation, `leaves` the variables in an expression and
    the sources that it loads from, `traits` what else is in it (bits of `vocabulary`).

    The slots that end in `_of` hold what was found out of a node once, for as long as it lives:
    the modules `affine` and `simplify` fill them, nobody else looks at them.
    """

    __slots__ = (
        "__weakref__",
        "children",
        "leaves",
        "simple_of",
        "sum_of",
        "text_of",
        "traits",
    )
    dtype: str
    lanes: int
    children: tuple[Expr, ...]
    leaves: frozenset[object]
    traits: int
    simple_of: dict[object, Expr | None] | None
    sum_of: Any  # the sum of `affine` that it is, which stands above this module
    text_of: str | None

    def hold(self, children: tuple[Expr, ...], traits: int = 0, leaf: object = None) -> None:
        """Note the operands of a node that is being made, and what is in it; `leaf` is its own."""
        leaves = _NO_LEAVES if leaf is None else frozenset((leaf,))
        if self.lanes > 1:
            traits |= HAS_VECTOR
        for child in children:
            inner = child.leaves
            if not inner <= leaves:
                leaves = inner if leaves <= inner else leaves | inner
            traits |= child.traits
        self.children, self.leaves, self.traits = children, leaves, traits
        self.simple_of = self.sum_of = self.text_of = None

    def hold_two(self, a: Expr, b: Expr, traits: int) -> None:
        """Note two operands of the same lanes: as `hold`, for most nodes that are made."""
        x, y = a.leaves, b.leaves
        self.children = (a, b)
        self.leaves = x if y <= x else y if x <= y else x | y
        self.traits = a.traits | b.traits | traits
        self.simple_of = self.sum_of = self.text_of = None

    def text(self, operands: Sequence[str]) -> str:
        """Return the text of this node around the texts of its operands."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return the text of an expression; long parts that it repeats are named.

        An expression is a graph, its text a tree: where every node is used twice, thirty nodes are
        a billion words. `(%0 * %0) where %0 = (a + ...)` grows with the nodes.
        """
        order = _distinct(self)
        uses = Counter(child for node in order for child in node.children)
        texts: dict[Operands, str] = {}
        lengths: dict[Operands, int] = {}
        named: list[str] = []
        for node in order:
            text = node.text([texts[c] for c in node.children])
            length = 1 + sum([lengths[c] for c in node.children])
            if length > LONG and uses[node] > 1:  # type: ignore[index]  # a node of the graph
                name = f"%{len(named)}"
                named.append(f"{name} = {text}")
                text, length = name, 1
            texts[node], lengths[node] = text, length
        return f"{texts[self]} where {', '.join(named)}" if named else texts[self]

    def __repr__(self) -> str:
        return str(self)


def _distinct(root: Operands) -> list[Operands]:
    """Return the distinct nodes of an expression, operands before users."""
    seen: dict[Operands, None] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = () if node in seen else [c for c in node.children if c not in seen]
        if waiting:
            stack += reversed(waiting)
        else:
            seen[node] = None
            stack.pop()
    return list(seen)
