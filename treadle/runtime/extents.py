# SPDX-License-Identifier: Apache-2.0
"""Extents of kernel arguments that are computed from the kernel's sizes, such as n * 2 + 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

Formula: TypeAlias = "int | list[Formula | str]"
"""A number, ["size", k] for size number k of the kernel, or [operation, a, b]."""

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
        return _sizes_of(self.formula)

    def of(self, sizes: Sequence[int | None]) -> int:
        """Return the extent for given sizes; those it is not made of may be None."""
        return _value(self.formula, sizes)

    def is_linear_in(self, size: int) -> bool:
        """True when the extent is a * size + b, where a and b do not depend on that size."""
        return _degree(self.formula, size) == 1

    def solved(self, size: int, sizes: Sequence[int | None], extent: int) -> int | None:
        """Return what a size must be for the extent to be `extent`, None where there is no such.

        The extent is linear in it, and the other sizes are known.
        """

        def at(value: int) -> int:
            return self.of([*sizes[:size], value, *sizes[size + 1 :]])

        begin, step = at(0), at(1) - at(0)
        found = (extent - begin) // step if step else 0
        return found if found >= 0 and at(found) == extent else None


def _parts(formula: list[Formula | str]) -> tuple[str, Formula, Formula]:
    name, a, b = formula
    return cast(str, name), cast(Formula, a), cast(Formula, b)


def _sizes_of(formula: Formula) -> frozenset[int]:
    if isinstance(formula, int):
        return frozenset()
    if formula[0] == "size":
        return frozenset([cast(int, formula[1])])
    _, a, b = _parts(formula)
    return _sizes_of(a) | _sizes_of(b)


def _value(formula: Formula, sizes: Sequence[int | None]) -> int:
    if isinstance(formula, int):
        return formula
    if formula[0] == "size":
        return cast(int, sizes[cast(int, formula[1])])
    name, a, b = _parts(formula)
    return _OPERATIONS[name](_value(a, sizes), _value(b, sizes))


def _degree(formula: Formula, size: int) -> int:
    """Return the degree of a formula in a size; 2 for more than 1 and for what is no polynomial."""
    if isinstance(formula, int):
        return 0
    if formula[0] == "size":
        return int(formula[1] == size)
    name, a, b = _parts(formula)
    degrees = _degree(a, size), _degree(b, size)
    if name in ("add", "sub"):
        return max(degrees)
    if name == "mul":
        return min(sum(degrees), 2)
    return 2 if any(degrees) else 0
