# SPDX-License-Identifier: Apache-2.0
"""Linear algebra by builders, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.builders.functions import values_of
from treadle.frontend.builders import linalg
from treadle.graph.nodes import Constant, Node

RANDOM = np.random.default_rng(4)
SQUARES = RANDOM.uniform(-1, 1, (2, 3, 4, 4))
SIDES = RANDOM.uniform(-1, 1, (2, 1, 4, 5))


def test_determinants() -> None:
    found = values_of(linalg.determinant, SQUARES)
    np.testing.assert_allclose(found, np.linalg.det(SQUARES), rtol=1e-12)


def test_an_order_of_rows_and_what_undoes_it() -> None:
    rows = np.array([[2, 0, 3, 1]])
    assert values_of(linalg.inverse_order, rows).tolist() == [[1, 3, 0, 2]]


@pytest.mark.parametrize("is_transposed", [False, True])
def test_systems_whose_stacks_broadcast(is_transposed: bool) -> None:
    solve = linalg.solved_transposed if is_transposed else linalg.solved_by_factors

    def solved(a: Node) -> Node:
        return solve(*linalg.lu(a), Constant.of(SIDES))

    matrices = np.swapaxes(SQUARES, -1, -2) if is_transposed else SQUARES
    sides = np.broadcast_to(SIDES, (2, 3, 4, 5))
    np.testing.assert_allclose(values_of(solved, SQUARES), np.linalg.solve(matrices, sides))


@pytest.mark.parametrize("columns", [3, 5])
def test_products_of_reflectors_are_orthogonal(columns: int) -> None:
    def q(a: Node) -> Node:
        return linalg.product_of_reflectors(*linalg.reflectors(a), columns)

    made = values_of(q, RANDOM.uniform(-1, 1, (2, 5, 3)))
    np.testing.assert_allclose(
        np.swapaxes(made, 1, 2) @ made,
        np.broadcast_to(np.eye(columns), (2, columns, columns)),
        atol=1e-14,
    )
