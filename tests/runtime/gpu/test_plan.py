# SPDX-License-Identifier: Apache-2.0
"""Plans at the sizes of one run; no device is needed."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.errors import InputError, SizesError
from treadle.runtime.gpu.plan import decides_by_data, placed

FIXED: dict[str, Any] = {
    "version": 1,
    "arena_bytes": 192,
    "values": [
        {"kind": "input", "dtype": "float32", "shape": [4], "bytes": 16},
        {"kind": "arena", "dtype": "float32", "shape": [2, 2], "bytes": 16, "offset": 64},
        {"kind": "constant", "dtype": "float32", "shape": [4], "bytes": 16, "param": "p0"},
        {"kind": "workspace", "dtype": "uint8", "shape": [50], "bytes": 50, "offset": 128},
        {"kind": "output", "dtype": "float32", "shape": [4], "bytes": 16},
    ],
    "inputs": [{"name": "x", "value": 0}],
    "outputs": [{"name": "y", "value": 4}],
    "instructions": [
        {"op": "call", "kernel": "k", "args": [0, 2, 1, 3], "dims": [], "origin": "first"},
        {"op": "copy", "from": 1, "to": 4, "origin": "output y"},
    ],
}


def open_plan(**more: Any) -> dict[str, Any]:
    """Return a plan over a size n and 2n: a chain of calls, a view, scratch memory."""
    n, twice = {"size": 0}, {"size": 1}
    return {
        "version": 2,
        "sizes": [{"name": "n", "input": 0, "axis": 0}, {"op": "mul", "a": n, "b": 2}],
        "values": [
            {"kind": "input", "dtype": "float32", "shape": [n]},
            {"kind": "arena", "dtype": "float32", "shape": [twice]},
            {"kind": "view", "dtype": "float32", "shape": [n], "of": 1, "offset": 64},
            {"kind": "workspace", "dtype": "uint8", "shape": [], "bytes": twice},
            {"kind": "arena", "dtype": "float32", "shape": [n]},
            {"kind": "output", "dtype": "float32", "shape": [n]},
        ],
        "inputs": [{"name": "x", "value": 0}],
        "outputs": [{"name": "y", "value": 5}],
        "instructions": [
            {"op": "call", "kernel": "a", "args": [0, 1, 3], "dims": [n]},
            {"op": "call", "kernel": "b", "args": [2, 4], "dims": [n, twice, 7]},
            {"op": "call", "kernel": "c", "args": [4, 5], "dims": []},
        ],
        **more,
    }


def test_a_plan_of_fixed_sizes_has_its_own_places() -> None:
    plan = placed(FIXED, ((4,),))
    assert plan.arena_bytes == 192
    first, copy = plan.steps
    spans = [(v.span.space, v.span.begin, v.span.end) for v in first.args]
    assert spans == [
        (("input", "x"), 0, 16),
        (("constant", "p0"), 0, 16),
        (("arena", ""), 64, 80),
        (("arena", ""), 128, 178),
    ]
    assert copy.op == "copy"
    assert copy.args == (first.args[2], plan.outputs["y"])


def test_places_follow_from_the_sizes_of_a_run() -> None:
    plan = placed(open_plan(), ((100,),))
    first, second, third = plan.steps
    assert second.dims == (100, 200, 7)
    assert [v.shape for v in second.args] == [(100,), (100,)]
    whole, view = first.args[1].span, second.args[0].span
    assert (view.begin, view.end) == (whole.begin + 64, whole.begin + 464)
    assert first.args[2].nbytes == 200
    assert third.args[1] == plan.outputs["y"]


def test_values_that_live_at_once_share_no_memory() -> None:
    for n in (1, 3, 100, 1000):
        plan = placed(open_plan(), ((n,),))
        first, second, _ = plan.steps
        assert not first.args[1].span.meets(first.args[2].span)
        assert not first.args[1].span.meets(second.args[1].span)
        assert all(v.span.end <= plan.arena_bytes for v in (first.args[1], second.args[1]))


def test_inputs_that_disagree_about_a_size_are_refused() -> None:
    plan = open_plan()
    plan["values"].append({"kind": "input", "dtype": "float32", "shape": [{"size": 0}]})
    plan["inputs"].append({"name": "z", "value": 6})
    with pytest.raises(
        InputError, match='input "z" has 5 elements along axis 0, the model expects 4'
    ):
        placed(plan, ((4,), (5,)))


@pytest.mark.parametrize(
    ("check", "error", "words"),
    [
        ({"a": {"size": 0}, "b": 5}, InputError, "combines tensors of different sizes: 4 and 5"),
        ({"a": 9, "b": {"size": 0}, "rule": "within", "axis": 1}, InputError, "reads 9 elements"),
        ({"a": 9, "b": 8, "rule": "asked"}, InputError, "was not made for"),
        ({"a": 0, "b": 8, "rule": "filled", "axis": 0}, InputError, "is empty, its result is not"),
        ({"a": 1, "b": 0, "rule": "kept", "axis": 2}, SizesError, "drops axis 2 too"),
        ({"a": 0, "b": 0, "rule": "never"}, SizesError, "a branch that cannot run"),
    ],
)
def test_broken_rules_are_refused(
    check: dict[str, Any], error: type[InputError], words: str
) -> None:
    with pytest.raises(error, match=words):
        placed(open_plan(checks=[{**check, "origin": "node"}]), ((4,),))


def test_rules_that_hold_are_passed() -> None:
    rows = [
        {"a": {"size": 1}, "b": 8, "origin": "node"},
        {"a": 4, "b": {"size": 0}, "rule": "within", "axis": 0, "origin": "node"},
        {"a": 2, "b": 0, "rule": "kept", "axis": 0, "origin": "node"},
    ]
    assert placed(open_plan(checks=rows), ((4,),)).steps


def test_negative_extents_are_refused() -> None:
    plan = open_plan()
    plan["sizes"][1] = {"op": "sub", "a": {"size": 0}, "b": 5}
    with pytest.raises(InputError, match=r"a value of the shape \[-1\]"):
        placed(plan, ((4,),))
    plan["sizes"][1] = {"op": "floordiv", "a": 4, "b": {"size": 0}}
    with pytest.raises(InputError, match="impossible to compute"):
        placed(plan, ((0,),))


def test_plans_that_data_decides_are_told() -> None:
    assert not decides_by_data(FIXED)
    row = {"op": "size", "from": 1, "sizes": [1], "origin": "nonzero"}
    assert decides_by_data(open_plan(instructions=[row]))
