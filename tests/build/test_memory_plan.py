# SPDX-License-Identifier: Apache-2.0
"""Where values live: aliases, concatenations in place, results, and how little memory it takes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tests.build import plan_eval
from tests.optimize.cases import constant, function, inputs_of, var
from treadle.build.memory_plan import MemoryPlan, Value, assign_offsets
from treadle.build.reuse import Caches
from treadle.graph import interpret
from treadle.graph.nodes import Function, Node
from treadle.graph.types import TensorType
from treadle.loop.nodes import ALIGNMENT
from treadle.ops import elementwise as ew
from treadle.ops.matmul import matmul
from treadle.ops.movement import concat
from treadle.ops.reshaping import reshape
from treadle.optimize.fuse import fuse
from treadle.target.parse import parse_target

TARGET = parse_target("llvm -num-cores=2")


def planned(
    f: Function, workspaces: Sequence[int] = (), caches: Caches | None = None
) -> MemoryPlan:
    """Return the plan of `f`, one kernel per operator, after running it."""
    main = fuse(f, limit=1)
    plan = plan_eval.plan_of(main, TARGET, workspaces, caches)
    inputs = inputs_of(f)
    for got, want in zip(plan_eval.run(plan, inputs), interpret.run(f, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return plan


def copies(plan: MemoryPlan) -> int:
    return sum(step.is_copy for step in plan.steps)


X = var("x", 1, 16)


def grow(node: Node, key: str = "") -> Node:
    """A value that must be made: a product with constant weights."""
    width = node.type.shape[-1]  # type: ignore[union-attr]
    return matmul(node, constant(int(width), 16, key=key))  # type: ignore[arg-type]


def test_a_chain_needs_two_buffers() -> None:
    value: Node = X
    for k in range(9):
        value = grow(value, str(k))
    plan = planned(function(value, params=[X]))
    assert plan.arena_bytes == 2 * 64
    assert plan.naive_bytes == 8 * 64
    assert copies(plan) == 0


def test_a_reshape_is_another_view() -> None:
    made = reshape(grow(X), shape=(4, 4))
    plan = planned(function(ew.relu(made), ew.abs(made), params=[X]))
    assert copies(plan) == 0
    assert [s.kernel for s in plan.steps] == ["kernel"] * 3
    assert plan.arena_bytes == 64


def test_reshapes_of_inputs_and_results() -> None:
    plan = planned(function(reshape(X, shape=(4, 4)), params=[X]))
    assert copies(plan) == 1
    made = grow(X)
    plan = planned(function(made, reshape(made, shape=(4, 4)), params=[X]))
    assert copies(plan) == 1


def test_parts_are_written_into_the_concatenation() -> None:
    parts = [grow(X, str(k)) for k in range(3)]
    plan = planned(function(ew.relu(concat(*parts, axis=1)), params=[X]))
    assert copies(plan) == 0
    assert len(plan.steps) == 4
    made = [step.outputs[0] for step in plan.steps[:3]]
    assert [v.place()[1] for v in made] == [0, 64, 128]
    assert len({v.place()[0] for v in made}) == 1


def test_reshaped_parts_are_written_into_the_concatenation() -> None:
    parts = [reshape(grow(X, str(k)), shape=(1, 4, 4)) for k in range(2)]
    plan = planned(function(ew.relu(concat(*parts, axis=1)), params=[X]))
    assert copies(plan) == 0
    assert [step.outputs[0].place()[1] for step in plan.steps[:2]] == [0, 64]
    part, other = reshape(grow(X, "a"), shape=(1, 4, 4)), reshape(grow(X, "b"), shape=(1, 4, 4))
    plan = planned(function(ew.relu(concat(part, other, axis=1)), part, params=[X]))
    assert copies(plan) == 1


def test_nested_concatenations() -> None:
    """As in a DenseNet: every layer reads all before it, joined."""
    whole: Node = grow(X, "first")
    for k in range(4):
        whole = concat(whole, grow(whole, str(k)), axis=1)
    plan = planned(function(ew.relu(whole), params=[X]))
    assert copies(plan) == 0


def test_a_concatenation_as_the_result() -> None:
    parts = [grow(X, str(k)) for k in range(2)]
    plan = planned(function(concat(*parts, axis=1), params=[X]))
    assert copies(plan) <= 1


@pytest.mark.parametrize(
    ("name", "most"),
    [("input", 1), ("constant", 1), ("twice", 1), ("result", 1), ("two wholes", 1)],
)
def test_parts_that_cannot_be_written_in_place(name: str, most: int) -> None:
    a, b = grow(X, "a"), grow(X, "b")
    cases: dict[str, list[Node]] = {
        "input": [ew.relu(concat(X, a, axis=1))],
        "constant": [ew.relu(concat(a, constant(1, 16), axis=1))],
        "twice": [ew.relu(concat(a, a, axis=1))],
        "result": [ew.relu(concat(a, b, axis=1)), b],
        "two wholes": [ew.relu(concat(a, b, axis=1)), ew.abs(concat(b, constant(1, 8), axis=1))],
    }
    plan = planned(function(*cases[name], params=[X]))
    assert copies(plan) <= most + 1
    assert copies(plan) >= (name in ("input", "constant", "twice"))


def test_an_odd_part_is_joined_by_a_kernel() -> None:
    part = matmul(X, constant(16, 3))
    plan = planned(function(ew.relu(concat(part, grow(X), axis=1)), params=[X]))
    assert copies(plan) == 0
    assert len(plan.steps) == 4


def test_results_that_are_not_made() -> None:
    weights = constant(2, 3)
    made = grow(X)
    plan = planned(function(X, weights, made, made, X, params=[X]))
    assert [name for name, _ in plan.outputs] == [f"output_{k}" for k in range(5)]
    assert copies(plan) == 4
    assert len({v for _, v in plan.outputs}) == 5


def test_workspaces_take_part() -> None:
    value: Node = X
    for k in range(4):
        value = grow(value, str(k))
    plan = planned(function(value, params=[X]), workspaces=[0, 1000, 0, 5000])
    assert 5000 <= plan.arena_bytes <= 5056 + 2 * 64
    assert [s.workspace is not None for s in plan.steps] == [False, True, False, True]


def test_placement_is_dense_for_equal_sizes() -> None:
    """With equal sizes, the greedy placement takes as many slots as are live at once."""
    spans = list(itertools.combinations(range(7), 2))
    values = [Value(TensorType((16,), "float32"), "arena", first=a, last=b) for a, b in spans]
    most = max(sum(a <= t <= b for a, b in spans) for t in range(7))
    assert most * ALIGNMENT <= assign_offsets(values) <= (most + 2) * ALIGNMENT
    for v, w in itertools.combinations(values, 2):
        if v.first <= w.last and w.first <= v.last:
            assert v.offset != w.offset


def test_nothing_to_place() -> None:
    assert assign_offsets([]) == 0
