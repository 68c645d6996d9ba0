# SPDX-License-Identifier: Apache-2.0
"""Extents of kernel arguments that are computed from the kernel's sizes, such as n * 2 + 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

Formula: TypeAlias = "int | list[Formula | str]"
"""A number, ["size", k] for size number k of the kernel, or [operation, a, b].

["let", f, g, ..., h] is h, in which ["part", 0] stands for f, ["part", 1] for g, and so on; each
may use those before it. No "let" stands inside of another.
"""

_T = TypeVar("_T")

_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "broadcast": lambda a, b: b if a == 1 else a,
}


@dataclass(frozen=True)
class Extent:
    """An extent that follows from sizes; `text` shows it, `formula` says how."""

    text: str
    formula: Formula

    def __str__(self) -> str:
        return self.text

    @property
    def sizes(self) -> frozenset[int]:
        """The numbers of the sizes it is made of."""
        none: frozenset[int] = frozenset()
        return evaluate(
            self.formula, lambda _: none, lambda k: frozenset([k]), lambda _, a, b: a | b
        )

    def of(self, sizes: Sequence[int | None]) -> int:
        """Return the extent for given sizes; those it is not made of may be None."""
        return evaluate(
            self.formula,
            lambda number: number,
            lambda k: cast(int, sizes[k]),
            lambda name, a, b: _OPERATIONS[name](a, b),
        )

    def is_linear_in(self, size: int) -> bool:
        """True when the extent is a * size + b, where a and b do not depend on that size."""
        return evaluate(self.formula, lambda _: 0, lambda k: int(k == size), _degree) == 1

    def solved(self, size: int, sizes: Sequence[int | None], extent: int) -> int | None:
        """Return what a size must be for the extent to be `extent`, None where there is no such.

        The extent is linear in it, and the other sizes are known.
        """

        def at(value: int) -> int:
            return self.of([*sizes[:size], value, *sizes[size + 1 :]])

        begin, step = at(0), at(1) - at(0)
        found = (extent - begin) // step if step else 0
        return found if found >= 0 and at(found) == extent else None


def evaluate(
    formula: Formula,
    number: Callable[[int], _T],
    size: Callable[[int], _T],
    operation: Callable[[str, _T, _T], _T],
) -> _T:
    """Return what a formula is where its numbers, sizes and operations are what these return."""
    parts: list[_T] = []

    def value(f: Formula) -> _T:
        if isinstance(f, int):
            return number(f)
        name, *operands = f
        if name in ("size", "part"):
            k = cast(int, operands[0])
            return size(k) if name == "size" else parts[k]
        a, b = (value(cast(Formula, operand)) for operand in operands)
        return operation(cast(str, name), a, b)

    if isinstance(formula, int) or formula[0] != "let":
        return value(formula)
    for part in formula[1:]:
        parts.append(value(cast(Formula, part)))
    return parts[-1]


def _degree(operation: str, a: int, b: int) -> int:
    """Return the degree of a result in a size; 2 for more than 1 and for what is no polynomial."""
    if operation in ("add", "sub"):
        return max(a, b)
    if operation == "mul":
        return min(a + b, 2)
    return 2 if a or b else 0
