# SPDX-License-Identifier: Apache-2.0
"""Results that take the memory of an operand."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.build.test_memory_plan import copies, grow, planned
from tests.optimize.cases import constant, function, inputs_of, var
from treadle.build.compile import compile_model, kernels_of
from treadle.build.in_place import overwritable
from treadle.build.kernel import Kernel
from treadle.build.memory_plan import Launch, plan_memory
from treadle.graph import interpret
from treadle.graph import nodes as g
from treadle.graph.nodes import Function, Node
from treadle.ops import elementwise as ew
from treadle.ops.reduce import sum_
from treadle.ops.reshaping import transpose
from treadle.optimize.fuse import fuse
from treadle.settings import use
from treadle.target.parse import parse_target

X, Y = var("x", 16, 16), var("y", 16, 16)
ROW = var("row", 16)


def test_a_residual_sum_takes_the_memory_of_what_it_adds() -> None:
    first = grow(X, "a")
    second = grow(first, "b")
    total = ew.add(second, first)
    plan = planned(function(grow(ew.relu(total), "c"), params=[X]))
    assert copies(plan) == 0
    assert plan.arena_bytes == 2 * 1024  # not three: the sum lies where a summand was


def test_what_is_needed_later_stays() -> None:
    first = grow(X, "a")
    total = ew.relu(first)
    planned(function(ew.multiply(grow(total, "b"), first), params=[X]))
    planned(function(total, ew.multiply(grow(total, "b"), first), params=[X]))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ew.add(X, Y), (0, 1)),
        (ew.relu(ew.add(X, ROW)), (0,)),
        (ew.add(X, transpose(X, perm=(1, 0))), ()),
        (ew.add(Y, transpose(X, perm=(1, 0))), (1,)),
        (ew.add(X, sum_(X, axes=(1,), keepdims=True)), ()),
        (ew.add(Y, sum_(X, axes=(1,), keepdims=True)), (1,)),
        (sum_(ew.relu(X), axes=(1,), keepdims=True), ()),
        (transpose(ew.add(X, Y), perm=(1, 0)), ()),
        (ew.greater(X, Y), ()),
        (grow(X), ()),
        (ew.add(ew.exp(Y), grow(X)), (1,)),
    ],
)
def test_operands_read_element_by_element(body: Node, expected: tuple[int, ...]) -> None:
    params = [p for p in (X, Y, ROW) if p in g.topological([body])]
    assert overwritable(Function(tuple(params), body)) == expected


def test_the_kernel_knows_that_memory_may_be_shared() -> None:
    target = parse_target("llvm -num-cores=2")
    ir = Kernel(function(ew.add(ew.relu(X), ROW), params=[X, ROW]), target).source()
    inner = re.search(r"define internal i32 @\S+\.run\((.*)\) noinline", ir)
    assert inner is not None
    x, row, result = inner[1].split(", ")[1:4]
    assert "noalias" in row
    assert "noalias" not in x
    assert "noalias" not in result


@pytest.mark.parametrize("threads", [1, 2])
def test_chains_of_residual_sums_compute_the_same(threads: int) -> None:
    value: Node = grow(X, "a")
    for k in range(4):
        value = ew.relu(ew.add(grow(value, f"w{k}"), value))
    f = function(ew.multiply(value, constant(16, 1, key="s")), params=[X])
    inputs = inputs_of(f)
    with use(num_threads=threads):
        compiled = compile_model(g.Module(f))
        (got,) = compiled(*inputs.values())
    (want,) = interpret.run(f, inputs)
    assert np.max(np.abs(got - want)) <= 1e-5 * np.max(np.abs(want))


def test_small_results_may_stay_where_they_are() -> None:
    first = grow(X, "a")
    main = fuse(function(grow(ew.add(grow(first, "b"), first), "c"), params=[X]), limit=1)
    _, calls = kernels_of(main, parse_target("llvm -num-cores=2"))
    uses = {c: Launch("kernel") for c in calls}
    assert plan_memory(main, uses, (), overwrite_from=1024).arena_bytes == 2 * 1024
    assert plan_memory(main, uses, (), overwrite_from=1025).arena_bytes == 3 * 1024
