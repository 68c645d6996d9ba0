# SPDX-License-Identifier: Apache-2.0
"""Plans whose sizes each run decides: sizes, places, errors, and hostile plans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.native import hostile
from tests.runtime.artifacts import Plan
from treadle.errors import ArtifactError, InputError, SizesError, TreadleError
from treadle.runtime.array import from_numpy
from treadle.runtime.executor import Executor

KERNELS = ("add", "flip", "count_positive", "keep_positive")


def size(k: int) -> dict[str, int]:
    return {"size": k}


def value(kind: str, *shape: object, **more: object) -> Plan:
    return {"kind": kind, "dtype": "float32", "shape": list(shape), **more}


def call(kernel: str, args: list[int], dims: list[object], origin: str = "") -> Plan:
    return {"op": "call", "kernel": kernel, "args": args, "dims": dims, "origin": origin}


def dynamic_plan() -> Plan:
    """out[n, m] = flip(a[m, n] + b[m, n]); the sum of the rows of the flipped one with itself."""
    matrix = (size(0), size(1))
    turned = (size(1), size(0))
    return {
        "version": 2,
        "target": "llvm",
        "cpu_features": [],
        "sizes": [
            {"name": "m", "input": 0, "axis": 0},
            {"name": "n", "input": 0, "axis": 1},
            {"op": "mul", "a": size(0), "b": size(1)},
            {"op": "mul", "a": size(2), "b": 4},
        ],
        "values": [
            value("input", *matrix),
            value("input", *matrix),
            value("arena", *matrix),
            value("workspace", bytes=size(3)),
            value("arena", *turned),
            value("output", *turned),
            value("view", size(2), of=4, offset=0),
        ],
        "inputs": [{"name": "a", "value": 0}, {"name": "b", "value": 1}],
        "outputs": [{"name": "out", "value": 5}],
        "instructions": [
            call("add", [0, 1, 2], [size(2)], "sum"),
            call("flip", [2, 4, 3], [size(0), size(1)], "turn"),
            call("add", [6, 6, 5], [size(2)], "double"),
        ],
    }


def counting_plan() -> Plan:
    """out = the positive elements of x + x, with their number computed on the way."""
    return {
        "version": 2,
        "target": "llvm",
        "cpu_features": [],
        "sizes": [{"name": "n", "input": 0, "axis": 0}, {"name": "count"}],
        "values": [
            value("input", size(0)),
            value("arena", size(0)),
            {"kind": "arena", "dtype": "int64", "shape": [2]},
            value("arena", size(1)),
            value("output", size(1)),
        ],
        "inputs": [{"name": "x", "value": 0}],
        "outputs": [{"name": "out", "value": 4}],
        "instructions": [
            call("add", [0, 0, 1], [size(0)], "double"),
            call("count_positive", [1, 2], [size(0)], "count"),
            {"op": "size", "from": 2, "sizes": [1], "origin": "count"},
            call("keep_positive", [1, 3], [size(0)], "keep"),
            {"op": "copy", "from": 3, "to": 4, "origin": "keep"},
        ],
    }


def load(plan: Plan | bytes) -> Executor:
    return hostile.load(plan, KERNELS)


def test_sizes_follow_the_inputs(random: np.random.Generator) -> None:
    executor = load(dynamic_plan())
    assert executor.inputs[0].shape == (-1, -1)
    assert executor.outputs[0].shape == (-1, -1)
    for m, n in [(3, 5), (3, 5), (1, 1), (40, 70), (0, 4), (7, 2), (40, 70)]:
        a, b = random.standard_normal((2, m, n), np.float32)
        (out,) = executor.run([a, b])
        assert out.shape == (n, m)
        np.testing.assert_array_equal(out.numpy(), 2 * (a + b).T)


def test_results_of_earlier_runs_stay_as_they_are(random: np.random.Generator) -> None:
    executor = load(dynamic_plan())
    first = random.standard_normal((4, 6), np.float32)
    (kept,) = executor.run([first, first])
    executor.run([first * 0, first])
    np.testing.assert_array_equal(kept.numpy(), 4 * first.T)


def test_the_arena_is_as_large_as_the_largest_run_needs() -> None:
    executor = load(dynamic_plan())
    assert executor.arena_bytes == 0
    most = 0
    for side in (8, 100, 3, 64, 100):
        data = np.ones((side, side), np.float32)
        executor.run([data, data])
        most = max(most, 3 * (-(-side * side * 4 // 64) * 64))
        assert executor.arena_bytes == most


def test_sizes_computed_from_data(random: np.random.Generator) -> None:
    executor = load(counting_plan())
    for n in (5, 100, 100, 3000, 0, 17, 3000):
        x = random.standard_normal(n, np.float32)
        (out,) = executor.run([x])
        np.testing.assert_array_equal(out.numpy(), 2 * x[x > 0])
    before = executor.arena_bytes
    for _ in range(20):
        x = random.standard_normal(int(random.integers(0, 3000)), np.float32)
        np.testing.assert_array_equal(executor.run([x])[0].numpy(), 2 * x[x > 0])
    assert executor.arena_bytes <= 2 * before


def test_a_negative_size_names_what_computes_it() -> None:
    plan = counting_plan()
    plan["sizes"].append({"name": "rest"})
    plan["instructions"][2]["sizes"] = [1, 2]
    with pytest.raises(InputError, match="the size rest, which count computes, is -1"):
        load(plan).run([np.ones(4, np.float32)])


def test_a_shape_that_becomes_negative_names_its_operator() -> None:
    plan = dynamic_plan()
    plan["sizes"].append({"op": "sub", "a": size(0), "b": 3})
    plan["values"][2]["shape"] = [size(4), size(1)]
    small = np.ones((2, 5), np.float32)
    with pytest.raises(InputError, match=r"with these inputs sum makes .* the shape \[-1, 5\]"):
        load(plan).run([small, small])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3), (2, 4)), 'input "b" has 4 elements along axis 1, but "n" is 3 by axis 1 of inp'),
        (((2, 3), (1, 3)), 'input "b" has 1 elements along axis 0, but "m" is 2 by axis 0 of inp'),
    ],
)
def test_inputs_that_do_not_agree(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    executor = load(dynamic_plan())
    with pytest.raises(InputError) as caught:
        executor.run([np.ones(s, np.float32) for s in shapes])
    assert message in str(caught.value)
    executor.run([np.ones((2, 3), np.float32)] * 2)


def test_inputs_of_another_rank_or_number() -> None:
    plan = dynamic_plan()
    plan["values"][0]["shape"][1] = 3
    executor = load(plan)
    with pytest.raises(
        InputError,
        match=r"is float32\[2, 4\] but float32\[\?, 3\] is expected\n"
        r"  hint  \? is a size that the model leaves open",
    ):
        executor.run([np.ones((2, 4), np.float32)] * 2)
    with pytest.raises(InputError, match="has 1 dimensions"):
        executor.run([np.ones(2, np.float32)] * 2)


def test_results_go_to_given_arrays() -> None:
    executor = load(dynamic_plan())
    data = np.ones((2, 3), np.float32)
    fitting, other = from_numpy(np.zeros((3, 2), np.float32)), from_numpy(np.zeros((2, 2), "f4"))
    executor.run([data, data], [fitting])
    np.testing.assert_array_equal(fitting.numpy(), np.full((3, 2), 4))
    with pytest.raises(InputError, match="has 16 bytes, the result has 24"):
        executor.run([data, data], [other])


def test_a_run_that_needs_more_memory_than_the_machine_has() -> None:
    plan = dynamic_plan()
    plan["sizes"][3] = {"op": "mul", "a": size(2), "b": 1 << 50}
    executor = load(plan)
    with pytest.raises(TreadleError, match="bytes of memory; this machine has"):
        executor.run([np.ones((2, 3), np.float32)] * 2)


def test_sizes_that_must_be_equal() -> None:
    plan = dynamic_plan()
    plan["checks"] = [{"a": size(0), "b": size(1), "origin": "join"}]
    executor = load(plan)
    executor.run([np.ones((3, 3), np.float32)] * 2)
    with pytest.raises(InputError, match="join combines tensors of different sizes: 2 and 3"):
        executor.run([np.ones((2, 3), np.float32)] * 2)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("within", "join reads 3 elements along axis 1 of a tensor that has 2"),
        ("filled", "axis 1 of what join reads is empty, its result is not"),
    ],
)
def test_sizes_that_reads_need(rule: str, message: str) -> None:
    plan = dynamic_plan()
    check = {"rule": rule, "axis": 1, "origin": "join"}
    plan["checks"] = [{"a": size(1), "b": size(0), **check}]
    executor = load(plan)
    executor.run([np.ones((3, 3), np.float32)] * 2)
    columns = 3 if rule == "within" else 0
    with pytest.raises(InputError, match=message):
        executor.run([np.ones((2, columns), np.float32)] * 2)


def test_sizes_that_a_model_asks_for() -> None:
    plan = dynamic_plan()
    plan["checks"] = [
        {"a": size(0), "b": 4, "rule": "asked", "axis": 0, "origin": "x.size(0) <= 4"}
    ]
    executor = load(plan)
    executor.run([np.ones((4, 3), np.float32)] * 2)
    with pytest.raises(InputError, match=r"not made for: it asks for x.size\(0\) <= 4") as error:
        executor.run([np.ones((5, 3), np.float32)] * 2)
    assert "make the model for these sizes too" in error.value.hint


def test_an_axis_that_a_squeeze_keeps() -> None:
    plan = dynamic_plan()
    plan["checks"] = [{"a": size(1), "b": 0, "rule": "kept", "axis": 1, "origin": "drop"}]
    executor = load(plan)
    for columns in (0, 3):
        executor.run([np.ones((2, columns), np.float32)] * 2)
    with pytest.raises(SizesError, match="drop, which names no axes, drops axis 1 too") as error:
        executor.run([np.ones((2, 1), np.float32)] * 2)
    assert "give the node its axes" in error.value.hint


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (3, 3), (2, 1), (0, 1), (1, 0)])
def test_the_common_extent_of_two(rows: int, columns: int) -> None:
    """The number of elements of the sum is that of the common extent and the columns."""
    plan = dynamic_plan()
    plan["sizes"].append({"op": "broadcast", "a": size(0), "b": size(1)})
    whole = columns if rows == 1 else rows
    plan["checks"] = [{"a": size(4), "b": whole, "origin": "join"}]
    load(plan).run([np.ones((rows, columns), np.float32)] * 2)
    plan["checks"] = [{"a": size(4), "b": whole + 1, "origin": "join"}]
    with pytest.raises(InputError, match=f"different sizes: {whole} and {whole + 1}"):
        load(plan).run([np.ones((rows, columns), np.float32)] * 2)


def test_a_rule_nobody_knows() -> None:
    plan = dynamic_plan()
    plan["checks"] = [{"a": size(1), "b": size(0), "rule": "less", "origin": "join"}]
    with pytest.raises(
        ArtifactError, match='"rule" must be equal, within, filled, kept, never or asked'
    ):
        load(plan)


def test_sizes_that_overflow() -> None:
    plan = dynamic_plan()
    plan["sizes"][3] = {"op": "mul", "a": size(2), "b": (1 << 63) - 1}
    with pytest.raises(InputError, match="make a size of the model impossible to compute"):
        load(plan).run([np.ones((2, 3), np.float32)] * 2)


Change = Callable[[Plan], object]

BAD_PLANS: dict[str, tuple[Change, str]] = {
    "no sizes": (lambda p: p.pop("sizes"), '"sizes" must be a list but is missing'),
    "a size of an input that is not there": (
        lambda p: p["sizes"][0].update(input=7),
        "plan size 0: input 7 has no axis 0",
    ),
    "a size of an axis that is not there": (
        lambda p: p["sizes"][0].update(axis=2),
        "plan size 0: input 0 has no axis 2",
    ),
    "a size that refers to itself": (
        lambda p: p["sizes"][2].update(a=size(2)),
        "plan size 2: size 2 does not exist; the plan has 2 sizes",
    ),
    "an unknown operation": (
        lambda p: p["sizes"][2].update(op="pow"),
        'plan size 2: "pow" is not an operation on sizes',
    ),
    "a size from nowhere": (
        lambda p: p["sizes"].append({"name": "k"}),
        "plan size 4 (k) comes from nowhere",
    ),
    "an extent of an unknown size": (
        lambda p: p["values"][2].update(shape=[size(9)]),
        "plan value 2: size 9 does not exist",
    ),
    "a view of a view": (
        lambda p: p["values"].append(value("view", 1, of=6, offset=0)),
        "value 6, which it is a part of, is a view itself",
    ),
    "a view of a later value": (lambda p: p["values"][6].update(of=6), "value 6 does not exist"),
    "a workspace without bytes": (
        lambda p: p["values"][3].pop("bytes"),
        '"bytes" must be an integer from 0 or a size but is missing',
    ),
    "a constant of unknown shape": (
        lambda p: p["values"].append(value("constant", size(0), param="p0")),
        "the shape of a constant must be numbers",
    ),
    "a negative extent": (lambda p: p["values"][2].update(shape=[-1]), "from 0 or a size"),
    "calls that differ in sizes": (
        lambda p: p["instructions"][2].update(dims=[]),
        "differ in number or size",
    ),
    "a size read from floats": (
        lambda p: p["instructions"].append({"op": "size", "from": 2, "sizes": [0]}),
        "size 0 is not one that is read from data",
    ),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_bad_plan_is_refused(name: str) -> None:
    change, message = BAD_PLANS[name]
    plan = dynamic_plan()
    change(plan)
    hostile.refused(plan, message, KERNELS)


BAD_COUNTING: dict[str, tuple[Change, str]] = {
    "a size used before it is read": (
        lambda p: p["instructions"][0].update(dims=[size(1)]),
        "plan instruction 0: a size it needs is read later",
    ),
    "a value used before its size is read": (
        lambda p: p["instructions"][0].update(args=[0, 0, 3]),
        "plan instruction 0: a size it needs is read later",
    ),
    "an input with a size from data": (
        lambda p: p["values"][0].update(shape=[size(1)]),
        "plan value 0: the shape of an input cannot come from data",
    ),
    "a size read twice": (
        lambda p: p["instructions"][2].update(sizes=[1, 1]),
        "size 1 is read twice",
    ),
    "more sizes than numbers": (
        lambda p: p["values"][2].update(shape=[0]),
        "value 2 does not hold 1 int64 numbers",
    ),
}


@pytest.mark.parametrize("name", BAD_COUNTING)
def test_a_bad_plan_with_sizes_from_data_is_refused(name: str) -> None:
    change, message = BAD_COUNTING[name]
    plan = counting_plan()
    change(plan)
    hostile.refused(plan, message, KERNELS)


def test_a_view_outside_of_its_whole_is_refused_by_the_run() -> None:
    plan = dynamic_plan()
    plan["values"][6].update(offset=64)
    with pytest.raises(ArtifactError, match="at offset 64 are no part of a value of"):
        load(plan).run([np.ones((2, 3), np.float32)] * 2)


def test_damaged_plans_never_do_worse_than_an_error(random: np.random.Generator) -> None:
    for plan in (dynamic_plan(), counting_plan()):
        hostile.damage(plan, 1500, random, KERNELS)
