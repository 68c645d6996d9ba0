# SPDX-License-Identifier: Apache-2.0
"""Every test of a node leads every number, NaN and infinities among them, where ONNX says."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from treadle.build.compile import compile_model
from treadle.errors import ModelError, TypeMismatch
from treadle.frontend.onnx.ml.tree_scores import combined
from treadle.frontend.onnx.ml.tree_walks import MEMBER, Forest
from treadle.graph.nodes import Function, Module, Node, Var
from treadle.graph.types import TensorType
from treadle.ops.trees import walk_trees

MODES = (operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne)
VALUES = (-np.inf, -1.0, -0.0, 0.0, 5e-324, 0.5, 1.0, np.inf)
WIDTH = 3


def forest_of(rng: np.random.Generator, trees: int, levels: int, dtype: str) -> Forest:
    """Return random trees, lopsided ones and lone leaves among them, with every kind of test."""
    nodes: list[list[int]] = []  # the children of interior nodes; leaves are numbered -1, -2, ...
    leaves = 0

    def grow(depth: int) -> int:
        nonlocal leaves
        if depth == 0 or rng.random() < 0.2:
            leaves += 1
            return -leaves
        nodes.append([])
        own = len(nodes) - 1
        nodes[own] = [grow(depth - 1), grow(depth - 1)]
        return own

    roots = [grow(levels) for _ in range(trees)]
    count = len(nodes)
    total = count + leaves
    number = np.array([n if n >= 0 else count - n - 1 for pair in nodes for n in pair], "int64")
    own = np.arange(count, total)
    return Forest(
        roots=np.array([n if n >= 0 else count - n - 1 for n in roots], "int64"),
        features=rng.integers(0, WIDTH, total),
        splits=rng.choice([*VALUES, np.nan], total).astype(dtype),
        modes=rng.integers(0, MEMBER + 1, total) * (np.arange(total) < count),
        yes=np.concatenate([number[::2], own]),
        no=np.concatenate([number[1::2], own]),
        missing=rng.random(total) < 0.5,
        members=np.where(
            rng.random((total, 3)) < 0.4, np.nan, rng.choice(VALUES, (total, 3))
        ).astype(dtype),
        interior=count,
        width=WIDTH,
    )


def leaf_of(forest: Forest, node: int, row: np.ndarray) -> int:
    """Return the leaf that one tree leads one row to, as the standard says."""
    while node < forest.interior:
        value, mode = row[forest.features[node]], forest.modes[node]
        if np.isnan(value) and forest.missing[node]:
            goes = True
        elif mode == MEMBER:
            goes = bool((forest.members[node] == value).any())
        else:
            goes = bool(MODES[mode](value, forest.splits[node]))
        node = int((forest.yes if goes else forest.no)[node])
    return node


def rows_of(rng: np.random.Generator, count: int, dtype: str) -> np.ndarray:
    """Return rows of numbers that splits are equal to, and NaN."""
    return rng.choice([*VALUES, np.nan], (count, WIDTH)).astype(dtype)


def run(data: Var, made: Node, x: np.ndarray) -> np.ndarray:
    """Return what `made` is of `x`."""
    (found,) = compile_model(Module(Function((data,), made, "main")))(x)
    return np.asarray(found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("trees", "targets"), [(1, 1), (5, 1), (13, 2), (30, 3)])
def test_rows_are_led_where_the_standard_says(dtype: str, trees: int, targets: int) -> None:
    rng = np.random.default_rng(trees)
    forest = forest_of(rng, trees, 6, dtype)
    weights = rng.integers(-99, 99, (forest.yes.size, targets)).astype(dtype)
    given = rng.random(weights.shape) < 0.7
    given[: forest.interior] = False
    x = rows_of(rng, 70, dtype)
    ends = [[leaf_of(forest, root, row) for root in forest.roots.tolist()] for row in x]
    wanted = np.where(given, weights, 0)[np.array(ends)].sum(axis=1)
    data = Var("x", TensorType((70, WIDTH), dtype))
    made = combined(forest, data, weights, given, "SUM")
    np.testing.assert_array_equal(run(data, made, x), wanted)


def test_trees_of_one_target_each_are_summed_apart() -> None:
    rng = np.random.default_rng(5)
    forest = forest_of(rng, 4, 3, "float64")
    given = np.zeros((forest.yes.size, 2), "bool")
    for k, root in enumerate(forest.roots.tolist()):
        reached = {leaf_of(forest, root, row) for row in rows_of(rng, 200, "float64")}
        given[sorted(reached), k % 2] = True
    x = rows_of(rng, 9, "float64")
    weights = rng.integers(-9, 9, given.shape).astype("float64")
    ends = np.array([[leaf_of(forest, r, row) for r in forest.roots.tolist()] for row in x])
    for how, merge in (("MIN", np.min), ("MAX", np.max), ("AVERAGE", None)):
        data = Var("x", TensorType((9, WIDTH), "float64"))
        made = combined(forest, data, weights, given, how)  # type: ignore[arg-type]
        each = [weights[ends[:, c::2], c] for c in (0, 1)]
        wanted = [w.sum(1) / 4 if merge is None else merge(w, axis=1) for w in each]
        np.testing.assert_array_equal(run(data, made, x), np.stack(wanted, 1))


def test_trees_without_an_end_are_refused() -> None:
    forest = forest_of(np.random.default_rng(2), 1, 3, "float32")
    forest.yes[: forest.interior] = 0
    data = Var("x", TensorType((1, WIDTH), "float32"))
    with pytest.raises(ModelError, match="levels"):
        combined(
            forest, data, np.zeros((forest.yes.size, 1), "float32"), forest.yes[:, None] > 0, "SUM"
        )


def test_a_walk_needs_room_for_its_trees() -> None:
    x, words = Var("x", TensorType((2, 3), "float32")), Var("w", TensorType((8,), "int64"))
    starts, steps = (Var(n, TensorType(s, "int32")) for n, s in (("s", (2, 4)), ("n", (2,))))
    with pytest.raises(TypeMismatch, match="do not hold 9 trees"):
        walk_trees(x, words, starts, steps, trees=9)
