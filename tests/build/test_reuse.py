# SPDX-License-Identifier: Apache-2.0
"""Arenas that are written again when caches have let go of them, and those that stay dense."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from tests.build.test_memory_plan import TARGET, grow, planned
from tests.optimize.cases import function, var
from treadle.build.memory_plan import MemoryPlan, plan_memory
from treadle.build.reuse import Caches, caches_of
from treadle.graph.nodes import Function, Module, Node
from treadle.ops.elementwise import add
from treadle.settings import use
from treadle.target.parse import parse_target

X = var("x", 64, 16)
ROWS = 64 * 16 * 4
LENGTH = 40


def chain(length: int) -> Function:
    """Products with weights of their own, each of the one before: two values live at once."""
    value: Node = X
    for k in range(length):
        value = grow(value, str(k))
    return function(value, params=[X])


def distances(plan: MemoryPlan) -> list[int]:
    """Return how many steps lie between a write of arena memory and the last use of it before."""
    last: dict[int, int] = {}
    found = []
    for position, step in enumerate(plan.steps):
        for value in step.args:
            owner, offset = value.address
            if owner.kind not in ("arena", "workspace"):
                continue
            lines = range(offset // 64, (offset + value.nbytes) // 64)
            if value in step.outputs and lines[0] in last:
                found.append(position - last[lines[0]])
            last |= dict.fromkeys(lines, position)
    return found


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arenas may grow by all of the weights."""
    monkeypatch.setattr(import_module("treadle.build.reuse"), "ARENA_GROWTH", 1.0)


def sized(length: int, caches: Caches | None) -> tuple[int, int]:
    """Return the bytes of a chain's arena, and the fewest steps after which it is written again."""
    plan = planned(chain(length), caches=caches)
    return plan.arena_bytes, min(distances(plan))


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize("rows", [2, 3, 5, 8])
def test_memory_is_written_again_when_caches_have_let_go_of_it(rows: int) -> None:
    """Of what a step reads and writes, each of two caches has a half: one value a step."""
    assert sized(LENGTH, None) == (2 * ROWS, 1)
    assert sized(LENGTH, Caches(rows * ROWS, 2, near_bytes=0)) == ((rows + 1) * ROWS, rows)


def test_weights_say_how_much_more_it_may_take() -> None:
    """A twenty-fifth of these weights is less than one value."""
    assert sized(LENGTH, Caches(5 * ROWS, 2, near_bytes=0)) == (2 * ROWS, 1)


@pytest.mark.usefixtures("roomy")
def test_a_small_arena_stays_near() -> None:
    assert sized(LENGTH, Caches(5 * ROWS, 2, near_bytes=2 * ROWS)) == (2 * ROWS, 1)


@pytest.mark.usefixtures("roomy")
def test_no_gain_no_growth() -> None:
    """Caches that hold all that there is room for are no reason to take it."""
    assert sized(LENGTH, Caches(1 << 30, 2, near_bytes=0)) == (2 * ROWS, 1)


@pytest.mark.usefixtures("roomy")
def test_workspaces_and_branches_take_part() -> None:
    value: Node = grow(X)
    kept = [value]
    for k in range(40):
        value = grow(value, str(k))
        kept += [value] if k % 9 == 0 else []
    for other in kept:
        value = add(value, other)
    workspaces = [ROWS // 2 * (k % 3) for k in range(60)]
    near = Caches(nbytes=2 * ROWS, count=2, near_bytes=0)
    spread = planned(function(value, params=[X]), workspaces, near).arena_bytes
    dense = planned(function(value, params=[X]), workspaces).arena_bytes
    assert spread > dense


def test_caches_of_machines() -> None:
    two = caches_of(parse_target("llvm -mcpu=znver4 -num-cores=2"))
    assert two is not None
    assert two.count == 2
    many = caches_of(parse_target("llvm -mcpu=znver4 -num-cores=64"))
    assert many is not None
    assert many.count == 8
    sockets = caches_of(parse_target("llvm -mcpu=skylake-avx512 -num-cores=40"))
    assert sockets is not None
    assert sockets.count == 2
    assert caches_of(parse_target("llvm -mcpu=skylake-avx512 -num-cores=20")) is None
    assert caches_of(parse_target("llvm -mcpu=znver4 -num-cores=1")) is None
    assert caches_of(replace(TARGET, family="gpu")) is None


def test_cores_that_share_their_last_cache_need_no_room() -> None:
    board = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a53 -num-cores=4")
    assert caches_of(board) is None


@pytest.mark.parametrize(("threads", "is_spread"), [(1, False), (2, True)])
def test_a_process_with_one_thread_has_one_cache(
    monkeypatch: pytest.MonkeyPatch, threads: int, is_spread: bool
) -> None:
    compiling, seen = import_module("treadle.build.compile"), []

    def plan(*args: Any, **how: Any) -> MemoryPlan:
        seen.append(how["caches"])
        return plan_memory(*args, **how)

    monkeypatch.setattr(compiling, "plan_memory", plan)
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver3 -num-cores=2"
    with use(num_threads=threads):
        compiling.compile_model(Module(chain(2), ("y",)), target=target)
    assert [caches is not None for caches in seen] == [is_spread]
