# SPDX-License-Identifier: Apache-2.0
"""Branches and loops of plans: bodies, states, rows, sizes, and hostile plans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.native import hostile
from tests.native.test_dynamic import call, size, value
from tests.runtime.artifacts import Plan
from treadle.errors import ArtifactError, InputError
from treadle.runtime.executor import Executor

KERNELS = ("add", "append", "below_four", "count_positive", "keep_positive")


def scalar(kind: str, dtype: str) -> Plan:
    return {"kind": kind, "dtype": dtype, "shape": []}


def plan_of(sizes: list[Plan], values: list[Plan], instructions: list[Plan]) -> Plan:
    """Return a plan whose inputs and outputs are the values of those kinds, in order."""

    def ports(kind: str) -> list[Plan]:
        found = [v for v, row in enumerate(values) if row["kind"] == kind]
        return [{"name": f"{kind}_{v}", "value": v} for v in found]

    return {
        "version": 2,
        "target": "llvm",
        "cpu_features": [],
        "sizes": sizes,
        "values": values,
        "inputs": ports("input"),
        "outputs": ports("output"),
        "instructions": instructions,
    }


def doubling_body() -> Plan:
    return plan_of(
        [{"name": "n", "input": 0, "axis": 0}],
        [value("input", size(0)), value("output", size(0))],
        [call("add", [0, 0, 1], [size(0)], "double")],
    )


def keeping_body() -> Plan:
    return plan_of(
        [{"name": "n", "input": 0, "axis": 0}, {"name": "count"}],
        [
            value("input", size(0)),
            {"kind": "arena", "dtype": "int64", "shape": [2]},
            value("output", size(1)),
        ],
        [
            call("count_positive", [0, 1], [size(0)], "count"),
            {"op": "size", "from": 1, "sizes": [1], "origin": "count"},
            call("keep_positive", [0, 2], [size(0)], "keep"),
        ],
    )


def branching_plan() -> Plan:
    """out = x + x where the condition holds, else the positive elements of x."""
    plan = plan_of(
        [{"name": "n", "input": 0, "axis": 0}, {"name": "k"}],
        [value("input", size(0)), scalar("input", "bool"), value("output", size(1))],
        [
            {
                "op": "if",
                "then": 0,
                "else": 1,
                "args": [1, 0],
                "given": [],
                "sizes": [{"size": 1, "result": 0, "axis": 0}],
                "origin": "pick",
            },
            {"op": "result", "index": 0, "to": 2, "origin": "pick"},
        ],
    )
    plan["plans"] = [doubling_body(), keeping_body()]
    return plan


def looping_plan() -> Plan:
    """Append to a vector while the iteration is below 4, and collect x + x each time."""
    body = plan_of(
        [
            {"name": "d", "input": 2, "axis": 0},
            {"name": "n", "given": 0},
            {"op": "add", "a": size(0), "b": 1},
        ],
        [
            scalar("input", "int64"),
            scalar("input", "bool"),
            value("input", size(0)),
            value("input", size(1)),
            scalar("output", "bool"),
            value("output", size(2)),
            value("output", size(1)),
        ],
        [
            call("below_four", [0, 4], [], "test"),
            call("append", [2, 5], [size(0)], "append"),
            call("add", [3, 3, 6], [size(1)], "double"),
        ],
    )
    plan = plan_of(
        [{"name": "n", "input": 0, "axis": 0}, {"name": "last"}, {"name": "count"}],
        [
            value("input", size(0)),
            scalar("input", "int64"),
            scalar("input", "bool"),
            value("output", size(1)),
            value("output", size(2), size(0)),
        ],
        [
            {
                "op": "loop",
                "body": 0,
                "states": 1,
                "args": [1, 2, 0, 0],
                "given": [size(0)],
                "sizes": [
                    {"size": 1, "result": 0, "axis": 0},
                    {"size": 2, "result": 1, "axis": 0},
                ],
                "origin": "repeat",
            },
            {"op": "result", "index": 0, "to": 3, "origin": "repeat"},
            {"op": "result", "index": 1, "to": 4, "origin": "repeat"},
        ],
    )
    plan["plans"] = [body]
    return plan


def load(plan: Plan | bytes) -> Executor:
    return hostile.load(plan, KERNELS)


def vector(random: np.random.Generator, n: int) -> np.ndarray:
    return random.standard_normal(n, np.float32)


def test_a_branch_runs_one_body(random: np.random.Generator) -> None:
    executor = load(branching_plan())
    for n in (5, 5, 300, 0, 7):
        for condition in (True, False):
            x = vector(random, n)
            (out,) = executor.run([x, np.array(condition)])
            np.testing.assert_array_equal(out.numpy(), 2 * x if condition else x[x > 0])


def test_a_loop_hands_states_on_and_collects_rows(random: np.random.Generator) -> None:
    executor = load(looping_plan())
    for n, limit, start in [(3, 3, True), (3, 9, True), (50, 1, True), (4, 0, True), (4, 9, False)]:
        x = vector(random, n)
        state, rows = executor.run([x, np.array(limit), np.array(start)])
        turns = min(limit, 5) if start else 0  # the condition ends it
        want = [*x, *range(n, n + turns)]
        np.testing.assert_array_equal(state.numpy(), np.array(want, np.float32))
        np.testing.assert_array_equal(rows.numpy(), np.stack([2 * x] * turns or [x])[:turns])


def test_a_loop_inside_a_branch(random: np.random.Generator) -> None:
    outer = looping_plan()
    plan = plan_of(
        [{"name": "n", "input": 0, "axis": 0}, {"name": "a"}, {"name": "b"}],
        [*outer["values"][:3], value("output", size(1)), value("output", size(2), size(0))],
        [
            {
                "op": "if",
                "then": 0,
                "else": 0,
                "args": [2, 0, 1, 2],
                "given": [],
                "sizes": [
                    {"size": 1, "result": 0, "axis": 0},
                    {"size": 2, "result": 1, "axis": 0},
                ],
            },
            {"op": "result", "index": 0, "to": 3},
            {"op": "result", "index": 1, "to": 4},
        ],
    )
    plan["plans"] = [outer]
    x = vector(random, 6)
    state, rows = load(plan).run([x, np.array(2), np.array(True)])
    assert (state.shape, rows.shape) == ((8,), (2, 6))


def test_memory_stays_flat(random: np.random.Generator) -> None:
    executor = load(looping_plan())
    x = vector(random, 1000)
    for _ in range(300):
        executor.run([x, np.array(5), np.array(True)])
    assert executor.arena_bytes < 1 << 20


def test_branches_that_give_another_size_than_promised() -> None:
    plan = branching_plan()
    plan["values"][2]["shape"] = [size(0)]
    plan["instructions"][0]["sizes"] = []
    plan["sizes"].pop()
    executor = load(plan)
    with pytest.raises(InputError, match="result 0 of pick has 1 elements along axis 0 where 2"):
        executor.run([np.array([1, -1], np.float32), np.array(False)])


Change = Callable[[Plan], object]
BAD: dict[str, tuple[Callable[[], Plan], Change, str]] = {
    "a body that is not there": (
        branching_plan,
        lambda p: p["instructions"][0].update({"else": 2}),
        "inner plan 2 does not exist; the plan has 2 inner plans",
    ),
    "a body with other inputs": (
        branching_plan,
        lambda p: p["instructions"][0].update(args=[1, 0, 0]),
        "a body has another number of inputs",
    ),
    "an operand of another rank": (
        branching_plan,
        lambda p: p["values"][0].update(shape=[size(0), 1]),
        "differs in element type or rank from the input of a body",
    ),
    "no condition": (
        branching_plan,
        lambda p: p["instructions"][0].update(args=[0, 0]),
        "the condition is no truth value",
    ),
    "a size of a result that is not there": (
        branching_plan,
        lambda p: p["instructions"][0]["sizes"][0].update(result=1),
        "result 1 does not exist",
    ),
    "a size of an axis that is not there": (
        branching_plan,
        lambda p: p["instructions"][0]["sizes"][0].update(axis=1),
        "a result has no such axis",
    ),
    "a result before its block": (
        branching_plan,
        lambda p: p["instructions"].reverse(),
        "a result does not follow a branch or loop",
    ),
    "a result to an input": (
        branching_plan,
        lambda p: p["instructions"][1].update(to=0),
        "a result goes to an input or constant",
    ),
    "a result of another type": (
        branching_plan,
        lambda p: p["instructions"][1].update(to=1),
        "a result goes to a value of another element type or rank",
    ),
    "a damaged body": (
        branching_plan,
        lambda p: p["plans"][0].pop("values"),
        '"values" must be a list but is missing',
    ),
    "a body of fixed sizes": (
        branching_plan,
        lambda p: p["plans"][0].update(version=1, arena_bytes=0),
        "plan",
    ),
    "too few given sizes": (
        looping_plan,
        lambda p: p["instructions"][0].update(given=[]),
        "a body is not given as many sizes as it takes",
    ),
    "a given size outside of a body": (
        looping_plan,
        lambda p: p["sizes"].append({"name": "g", "given": 0}),
        '"given" numbers the sizes that a body is given',
    ),
    "more states than the body has": (
        looping_plan,
        lambda p: p["instructions"][0].update(states=3),
        "a loop has more states than its body",
    ),
    "a limit that is no count": (
        looping_plan,
        lambda p: p["instructions"][0].update(args=[2, 2, 0, 0]),
        "a loop takes a count and a condition first",
    ),
    "a result's size that is used too early": (
        looping_plan,
        lambda p: p["instructions"][0].update(given=[size(1)]),
        "a size it needs is read later",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plan_is_refused(name: str) -> None:
    make, change, message = BAD[name]
    plan = make()
    change(plan)
    hostile.refused(plan, message, KERNELS)


def test_bodies_inside_bodies_without_end_are_refused() -> None:
    plan = doubling_body()
    for _ in range(18):
        plan = doubling_body() | {"plans": [plan]}
    with pytest.raises(ArtifactError, match="deeper than 16"):
        load(plan)


def test_damaged_plans_never_do_worse_than_an_error(random: np.random.Generator) -> None:
    for plan in (branching_plan(), looping_plan()):
        hostile.damage(plan, 1000, random, KERNELS)
