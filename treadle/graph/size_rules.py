# SPDX-License-Identifier: Apache-2.0
"""What a call asks of the sizes of its operands, so that no kernel reads outside of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from treadle.expr.nodes import convert
from treadle.graph.types import Dim, Type, known_true, product_of, same_dim, tensor_type

Rule = Literal["equal", "within", "filled", "kept", "never", "asked"]


@dataclass(frozen=True, slots=True)
class SizeRule:
    """`a` is equal to `b`, or within `b` (at most that), or filled: not 0 unless `b` is 0.

    Or it is kept by a squeeze without axes: not 1, whatever `b` is.
    Or it never holds, for the `reason` given. Or the model asks for it: `a` is at most `b`, and
    `reason` is what it says.

    `axis` is the axis of the operand that `a` (or, for "within", `b`) is the extent of.
    """

    rule: Rule
    a: Dim
    b: Dim
    axis: int = 0
    reason: str = ""

    @property
    def always_holds(self) -> bool:
        """True where the rule holds at every size, so that no run need look."""
        if self.rule == "equal":
            return same_dim(self.a, self.b)
        if self.rule in ("within", "asked"):
            return known_true(convert(self.a) <= self.b) is True
        if self.rule == "never":
            return False
        if self.rule == "kept":
            return known_true(convert(self.a) != 1) is True
        return known_true(convert(self.a) > 0) is True or same_dim(self.b, 0)

    @property
    def never_holds(self) -> bool:
        """True where the sizes are known and break the rule."""
        known = isinstance(self.a, int) and (self.rule == "kept" or isinstance(self.b, int))
        return known and not self.always_holds

    def __str__(self) -> str:
        """What breaks the rule, as what follows the name of a node."""
        if self.rule == "equal":
            return f"combines tensors of different sizes: {self.a} and {self.b}"
        if self.rule == "within":
            return f"reads {self.a} elements along axis {self.axis} of a tensor that has {self.b}"
        if self.rule == "asked":
            return f"asks for other sizes: {self.reason}"
        if self.rule == "never":
            return f"is a branch that cannot run: {self.reason}"
        if self.rule == "kept":
            return f"drops axis {self.axis} too, and the rank of its result changes"
        return f"reads an axis {self.axis} that is empty, and its result is not"


def equal(pairs: Iterable[tuple[Dim, Dim]]) -> Iterator[SizeRule]:
    """Yield the rules that the two sizes of every pair are equal."""
    return (SizeRule("equal", a, b) for a, b in pairs)


def aligned(shape: Sequence[Dim], whole: Sequence[Dim]) -> Iterator[SizeRule]:
    """Yield the rules that extents that meet where `shape` is broadcast to `whole` are equal."""
    pairs = zip(shape, whole[len(whole) - len(shape) :], strict=True)
    return equal((a, b) for a, b in pairs if not (isinstance(a, int) and a == 1))


def within(needed: Sequence[Dim], operand: Type, axes: Iterable[int]) -> Iterator[SizeRule]:
    """Yield the rules that an operand has at least `needed[axis]` elements along each axis."""
    shape = tensor_type(operand).shape
    return (SizeRule("within", needed[k], shape[k], k) for k in axes)


def filled(operand: Type, axes: Iterable[int], result: Type) -> Iterator[SizeRule]:
    """Yield the rules that axes of an operand have elements, unless the result has none.

    They are for positions that are brought inside an axis: an empty one has no inside.
    """
    shape, count = tensor_type(operand).shape, product_of(tensor_type(result).shape)
    return (SizeRule("filled", shape[k], count, k) for k in axes)
