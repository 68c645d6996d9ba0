# SPDX-License-Identifier: Apache-2.0
"""What every expression node keeps of its operands, and of what was found out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.expr.vocabulary import HAS_VECTOR

if TYPE_CHECKING:
    from treadle.expr.nodes import Expr

_NO_LEAVES: frozenset[object] = frozenset()


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
