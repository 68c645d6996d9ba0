# SPDX-License-Identifier: Apache-2.0
"""Common extents of sizes of which only a run knows whether they are 1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from treadle.expr.nodes import Const, Var, int_value
from treadle.expr.simplify import simplify
from treadle.expr.traversal import substitute
from treadle.graph.broadcasting import (
    common_dim,
    common_shape,
    stretch_rules,
    stretches,
    taken_dim,
)
from treadle.graph.types import Dim, same_dim

a, b, c = (Var(n, "int64") for n in "abc")
EXTENTS = (0, 1, 2, 5)


def at(dim: Dim, **sizes: int) -> int:
    """Return the number of a size."""
    if isinstance(dim, int):
        return dim
    known = {v: Const.of(sizes[v.name], "int64") for v in (a, b, c) if v.name in sizes}
    found = int_value(simplify(substitute(dim, known)))
    assert found is not None
    return found


def fits(extents: Sequence[int]) -> bool:
    return len({e for e in extents if e != 1}) < 2


def common(x: Dim, y: Dim) -> Dim:
    found = common_dim(x, y)
    assert found is not None
    return found


def test_the_common_extent_is_the_one_that_is_not_1() -> None:
    whole = common(common(a, b), c)
    for x, y, z in filter(fits, product(EXTENTS, repeat=3)):
        wanted = next((e for e in (x, y, z) if e != 1), 1)
        assert at(whole, a=x, b=y, c=z) == wanted


def test_a_common_extent_takes_in_what_it_is_made_of() -> None:
    whole = common(a, b)
    assert same_dim(common(whole, a), whole)
    assert same_dim(common(whole, whole), whole)
    assert same_dim(common(common(whole, c), b), common(whole, c))


@pytest.mark.parametrize(
    ("x", "y", "wanted"),
    [(a, 5, 5), (5, a, 5), (a, 1, a), (1, a, a), (a, 0, 0), (2, 3, None), (a, a, a), (3, 3, 3)],
)
def test_known_extents_decide(x: Dim, y: Dim, wanted: Dim | None) -> None:
    found = common_dim(x, y)
    assert found is wanted or (isinstance(wanted, int) and found == wanted)


def test_shapes_are_aligned_at_their_ends() -> None:
    found = common_shape((a, 1, 4), (b, 1))
    assert found is not None
    assert same_dim(found[0], a)
    assert same_dim(found[1], b)
    assert found[2] == 4
    assert common_shape((2,), (a, 3)) is None


def test_the_rules_hold_exactly_where_the_extents_fit() -> None:
    whole = common(a, b)
    rules = [*stretch_rules((a,), (whole,)), *stretch_rules((b,), (whole,))]
    assert len(rules) == 1  # the first is 1 or the whole by definition
    for x, y in product(EXTENTS, repeat=2):
        holds = all(at(r.a, a=x, b=y) == at(r.b, a=x, b=y) for r in rules)
        assert holds == fits((x, y))


def test_a_wanted_extent_is_checked_too() -> None:
    target = taken_dim(b, a)  # x[a] expanded to b
    (rule,) = stretch_rules((a,), (target,))
    for x, y in product(EXTENTS, repeat=2):
        assert (at(rule.a, a=x, b=y) == at(rule.b, a=x, b=y)) == fits((x, y))


def test_what_may_be_repeated() -> None:
    whole = common(a, b)
    assert not stretches((1, 3), (a, 3))
    assert not stretches((a,), (a,))
    assert len(stretches((a, b), (whole, whole))) == 2
    assert not stretches((a + 2,), (5,))  # at least 2
