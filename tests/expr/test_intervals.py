# SPDX-License-Identifier: Apache-2.0
"""The interval of an operation holds every result of elements of its operands' intervals."""

from __future__ import annotations

import itertools

import pytest

from treadle.expr.intervals import (
    ANY,
    BOOL,
    FAR,
    OF_BINARY,
    ZERO,
    Interval,
    absolute,
    add,
    decide,
    dtype_interval,
    excludes_zero,
    fits,
    multiply,
    subtract,
    truth,
)

BOUNDS = (-5, -2, -1, 0, 1, 3, 6)
SMALL = [Interval(a, b) for a, b in itertools.combinations_with_replacement(BOUNDS, 2)]


def elements(i: Interval) -> range:
    assert i.lo is not None
    assert i.hi is not None
    return range(i.lo, i.hi + 1)


def truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


MEANING = {
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y,
    "floormod": lambda x, y: x % y,
    "truncdiv": truncated,
    "truncmod": lambda x, y: x - y * truncated(x, y),
    "min": min,
    "max": max,
    "bitand": lambda x, y: x & y,
    "bitor": lambda x, y: x | y,
    "bitxor": lambda x, y: x ^ y,
    "shl": lambda x, y: x << y,
    "shr": lambda x, y: x >> y,
}
DIVIDES = {"floordiv", "floormod", "truncdiv", "truncmod"}


def inside(i: Interval, value: int) -> bool:
    return i.contains(Interval(value, value))


@pytest.mark.parametrize("op", MEANING)
def test_every_result_is_inside(op: str) -> None:
    for a, b in itertools.product(SMALL, repeat=2):
        found = OF_BINARY[op](a, b)
        for x, y in itertools.product(elements(a), elements(b)):
            if (op in DIVIDES and y == 0) or (op in ("shl", "shr") and y < 0):
                continue  # undefined
            assert inside(found, MEANING[op](x, y)), (op, a, b, x, y)


@pytest.mark.parametrize("op", MEANING)
def test_a_side_without_a_bound_loosens_the_result(op: str) -> None:
    """What holds of all x >= lo must hold of every [lo, hi]: no bound may come from nothing."""
    for a, b in itertools.product(SMALL, repeat=2):
        for wide in (Interval(a.lo, None), Interval(None, a.hi), ANY):
            for x, y in itertools.product(elements(a), elements(b)):
                if not ((op in DIVIDES and y == 0) or (op in ("shl", "shr") and y < 0)):
                    assert inside(OF_BINARY[op](wide, b), MEANING[op](x, y))


@pytest.mark.parametrize(
    ("operation", "meaning"), [(add, lambda x, y: x + y), (subtract, lambda x, y: x - y)]
)
def test_sums_are_exact(operation: object, meaning: object) -> None:
    for a, b in itertools.product(SMALL, repeat=2):
        found = operation(a, b)  # type: ignore[operator]
        results = [meaning(x, y) for x in elements(a) for y in elements(b)]  # type: ignore[operator]
        assert found == Interval(min(results), max(results))


def test_products_and_absolute_values_are_exact() -> None:
    for a in SMALL:
        sizes = [abs(x) for x in elements(a)]
        assert absolute(a) == Interval(min(sizes), max(sizes))
        for b in SMALL:
            results = [x * y for x in elements(a) for y in elements(b)]
            assert multiply(a, b) == Interval(min(results), max(results))
    assert multiply(ANY, ZERO) == ZERO
    assert multiply(Interval(0, None), Interval(None, -1)).hi == 0


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_decisions_are_those_of_every_element(op: str) -> None:
    for d in SMALL:
        answers = {getattr(x, f"__{op}__")(0) for x in elements(d)}
        known = decide(op, d)
        assert known is None or answers == {known}
        assert (known is not None) == (len(answers) == 1)
        assert truth(known) == (BOOL if known is None else Interval(int(known), int(known)))


def test_sets_of_elements() -> None:
    for a, b in itertools.product(SMALL, repeat=2):
        assert a.union(b).contains(a)
        assert a.union(b).contains(b)
        common = set(elements(a)) & set(elements(b))
        if common:
            assert set(elements(a.intersect(b))) == common
        assert excludes_zero(a) == (0 not in elements(a))


def test_types_bound_what_they_hold() -> None:
    assert dtype_interval("int8") == Interval(-128, 127)
    assert dtype_interval("uint16") == Interval(0, 65535)
    assert dtype_interval("float32") == ANY
    assert fits(Interval(0, 127), "int8")
    assert not fits(Interval(0, 128), "int8")
    assert not fits(Interval(0, None), "int32")
    assert fits(Interval(0, None), "int64")  # an index without a bound is assumed to fit


def test_numbers_that_stand_for_no_bound_give_none() -> None:
    """A slice that ends at 2**63 - 1 must not make its size look bounded by that."""
    assert OF_BINARY["min"](Interval(0, None), Interval((1 << 63) - 1, (1 << 63) - 1)).hi is None
    assert OF_BINARY["min"](Interval(0, None), Interval(7, 7)).hi == 7
    assert OF_BINARY["max"](Interval(None, 0), Interval(-FAR, -FAR)).lo is None
