# SPDX-License-Identifier: Apache-2.0
"""Random networks keep their meaning: through the graph passes, in a plan, and compiled."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

import treadle
from tests.build import plan_eval
from tests.build.graphs import Network
from tests.build.sequences import Sequence as SequenceNetwork
from tests.targets import AVX2 as NARROW
from tests.targets import AVX512 as WIDE
from treadle.build.in_place import overwritable
from treadle.build.memory_plan import MemoryPlan, Value
from treadle.graph import interpret
from treadle.graph.nodes import Function, Module
from treadle.graph.text import function_text
from treadle.optimize.pipeline import optimize

PER_TEST = 40

kinds = pytest.mark.parametrize("kind", [Network, SequenceNetwork], ids=["images", "sequences"])


def expected_of(net: Network) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return interpret.run(net.function, net.inputs)


def compare(got: Sequence[np.ndarray], net: Network, what: str) -> None:
    for mine, theirs in zip(got, expected_of(net), strict=True):
        assert mine.dtype == theirs.dtype
        finite = np.abs(theirs[np.isfinite(theirs)])
        atol = 1e-4 * max(1.0, float(finite.max(initial=0)))
        np.testing.assert_allclose(
            mine, theirs, rtol=1e-4, atol=atol, err_msg=f"{what}\n{function_text(net.function)}"
        )


def check_lives(plan: MemoryPlan) -> None:
    """Values that are live at the same step do not overlap; everything lies in the arena."""
    lives: dict[Value, list[int]] = {}
    for position, step in enumerate(plan.steps):
        for value in step.args:
            owner, _ = value.place()
            if owner.kind in ("arena", "workspace"):
                lives.setdefault(owner, []).append(position)
    owners = list(lives)
    for owner in owners:
        assert owner.offset % 64 == 0
        assert owner.offset + owner.nbytes <= plan.arena_bytes
    assert plan.arena_bytes <= sum(-(-owner.nbytes // 64) * 64 for owner in owners)
    for i, a in enumerate(owners):
        for b in owners[:i]:
            if lives[a][0] <= lives[b][-1] and lives[b][0] <= lives[a][-1]:
                apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
                follows = follows_in_place(plan, a, b, lives)
                follows = follows or follows_in_place(plan, b, a, lives)
                assert apart or follows, f"{a} and {b} overlap while both are live"


def follows_in_place(
    plan: MemoryPlan, late: Value, early: Value, lives: dict[Value, list[int]]
) -> bool:
    """True where a result takes the memory of an operand that its kernel reads in place."""
    step = plan.steps[lives[late][0]]
    if lives[early][-1] != lives[late][0] or step.node is None or step.outputs != (late,):
        return False
    assert isinstance(step.node.op, Function)
    read = [step.inputs[i].place()[0] for i in overwritable(step.node.op)]
    return early in read and (late.offset, late.nbytes) == (early.offset, early.nbytes)


@kinds
@pytest.mark.parametrize("group", range(8))
def test_layouts_and_fusion(group: int, kind: type[Network]) -> None:
    for seed in range(group * PER_TEST, (group + 1) * PER_TEST):
        net = kind(seed)
        for target in (NARROW, WIDE):
            with np.errstate(all="ignore"):
                got = interpret.run(optimize(net.function, target, 3), net.inputs)
            compare(got, net, f"seed {seed}, {target}")


@kinds
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("group", range(4))
def test_plans(group: int, level: int, kind: type[Network]) -> None:
    for seed in range(group * PER_TEST, (group + 1) * PER_TEST):
        net, chance = kind(seed, 14), random.Random(seed)
        workspaces = [chance.choice((0, 0, 100, 3000)) for _ in range(99)]
        plan = plan_eval.plan_of(optimize(net.function, NARROW, level), NARROW, workspaces)
        check_lives(plan)
        with np.errstate(all="ignore"):
            compare(plan_eval.run(plan, net.inputs), net, f"seed {seed}, level {level}")


def check_compiled(net: Network, seed: int) -> None:
    for level in (0, 3):
        executable = treadle.compile(Module(net.function), opt_level=level)
        got = [np.asarray(output) for output in executable.run(net.inputs)]
        compare(got, net, f"seed {seed}, level {level}")


@kinds
@pytest.mark.parametrize("seed", range(20))
def test_compiled(seed: int, kind: type[Network]) -> None:
    check_compiled(kind(seed, 10), seed)


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("seed", range(20, 400))
def test_many_more_compiled(seed: int, kind: type[Network]) -> None:
    check_compiled(kind(seed, 10), seed)
