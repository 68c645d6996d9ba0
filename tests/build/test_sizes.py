# SPDX-License-Identifier: Apache-2.0
"""Sizes as data: written, read over other symbols, and worked out for the inputs of a run."""

from __future__ import annotations

import json

import pytest

from treadle.build.sizes import (
    SizeTable,
    can_tell,
    number_of,
    size_from_json,
    size_to_json,
    sizes_of_run,
)
from treadle.expr.nodes import Expr, Var, cast, maximum, minimum
from treadle.expr.traversal import substitute
from treadle.graph.broadcasting import taken_dim
from treadle.graph.types import as_dim

pytestmark = pytest.mark.tiny

N, M = Var("n"), Var("m")


def test_a_size_is_the_same_over_other_symbols() -> None:
    a, b = Var("a"), Var("b")
    size = as_dim(2 * N * M + (N + 3) // 4)
    data = size_to_json(size, (N, M))
    assert size_from_json(data, (a, b)) == as_dim(2 * a * b + (a + 3) // 4)


def test_a_number_needs_only_the_sizes_it_is_made_of() -> None:
    data = size_to_json(as_dim(2 * N * N + 1), (N, M))
    assert number_of(data, [5, None]) == 51
    assert number_of(data, [None, 5]) is None
    assert number_of(7, [None]) == 7


def test_only_some_arithmetic_can_be_told() -> None:
    assert can_tell(3, ())
    assert can_tell(maximum(N, 2 * M), (N, M))
    assert not can_tell(N + M, (N,))
    assert not can_tell(cast(cast(N, "float32"), "int64"), (N,))


def test_the_sizes_of_a_run_follow_from_its_inputs() -> None:
    table = SizeTable({N: (0, 1), M: (1, 0)}, decided=[Var("k")])
    table.row_of(as_dim(N * M + 2))
    sizes = sizes_of_run(table.rows, [(9, 4), (6,)])
    assert sizes[:3] == [4, 6, None]
    assert sizes[-1] == 26


def test_a_size_that_broadcasts_is_the_one_that_is_not_1() -> None:
    size = taken_dim(N, M)
    assert can_tell(size, (N, M))
    data = size_to_json(as_dim(2 * size), (N, M))
    assert [number_of(data, sizes) for sizes in ([1, 7], [7, 1], [7, None])] == [14, 14, None]


def test_what_sizes_share_is_written_once() -> None:
    size: Expr = N + M
    for step in range(1, 60):
        size = maximum(size - step, 0) - minimum(size, 1)
    data = size_to_json(size, (N, M))
    assert can_tell(size, (N, M))
    assert isinstance(data, list)
    assert data[0] == "let"
    assert len(json.dumps(data)) < 20_000
    a, b = Var("a"), Var("b")
    assert size_from_json(data, (a, b)) is as_dim(substitute(size, {N: a, M: b}))
    assert number_of(data, [1000, 2000]) == 3000 - sum(range(1, 60)) - 59
    table = SizeTable({N: (0, 0), M: (1, 0)})
    table.row_of(size)
    assert len(table.rows) < 300
    assert sizes_of_run(table.rows, [(1000,), (2000,)])[-1] == 1171


def test_short_sizes_are_trees() -> None:
    assert size_to_json((N + M) * (N + M), (N, M)) == [
        "mul", ["add", ["size", 0], ["size", 1]], ["add", ["size", 0], ["size", 1]],
    ]  # fmt: skip
