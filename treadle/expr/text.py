# SPDX-License-Identifier: Apache-2.0
"""Names for long parts that several expressions share, so that their text stays short.

The text of one expression names its own (`operands`). `Parts` takes the long parts out of many, to
be defined in one place; the text of expressions with n nodes has at most n * LONG words:

    (%0 + %0)    %0 := (a * b * ... )
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from treadle.expr.nodes import Expr, Var
from treadle.expr.operands import LONG
from treadle.expr.traversal import walk

DEEP = 100
"""Levels: a part that nests deeper is named wherever it stands."""


class Parts:
    """Names for the parts of expressions that are long or nest `deep`, made by `pattern` ("%{}").

    `values` are the names in order and what they stand for: an expression over earlier names. A
    name is a variable that is printed and never computed: what stands for a branch of a lazy
    select is still evaluated only where the branch is chosen.
    """

    def __init__(self, pattern: str, deep: int = DEEP) -> None:
        self.pattern = pattern
        self.deep = deep
        self.values: list[tuple[Var, Expr]] = []
        self._short: dict[Expr, Expr] = {}
        self._extent: dict[Expr, tuple[int, int]] = {}

    def shorten(self, roots: Iterable[Expr], *, repeated: bool = False) -> list[Expr]:
        """Return `roots` with names for long parts that occur in them more than once.

        Where the roots themselves are `repeated`, every long part does.
        """
        roots = list(roots)
        order = list(dict.fromkeys(node for root in roots for node in walk(root)))
        uses = Counter(child for node in order for child in node.children)
        uses.update(roots)
        for node in order:
            if node not in self._short:
                self._add(node, repeated or uses[node] > 1)
        return [self._short[root] for root in roots]

    def _add(self, node: Expr, is_repeated: bool) -> None:
        children = node.children
        extents = [self._extent[c] for c in children]
        nodes = 1 + sum(n for n, _ in extents)
        depth = 1 + max((d for _, d in extents), default=0)
        short = node.with_children(tuple(self._short[c] for c in children)) if children else node
        if (nodes > LONG and is_repeated) or depth > self.deep:
            name = Var(self.pattern.format(len(self.values)), node.dtype, node.lanes)
            self.values.append((name, short))
            short, nodes, depth = name, 1, 1
        self._short[node] = short
        self._extent[node] = nodes, depth
