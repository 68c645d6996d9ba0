# SPDX-License-Identifier: Apache-2.0
"""Control flow and selections that are decided at run time, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.onnx.control.bodies import B, F, N, X, body, declared, model
from tests.frontend.onnx.models import check_with_onnxruntime, make, outputs_of
from treadle.build.compile import compile_model
from treadle.errors import InputError, ModelError
from treadle.frontend.onnx.importer import import_onnx


def choice(then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.ModelProto:
    """Return a model that takes one of two branches; both may use h = |x|."""
    nodes = [
        helper.make_node("Abs", ["x"], ["h"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other, name="pick"),
    ]
    return model(nodes, [declared("x", F, [4]), declared("c", B, [])], {"y": F})


def while_loop(grows: bool = False) -> onnx.ModelProto:
    """Return a loop that adds x (or joins it) while the sum is below 20, and collects rows."""
    join = helper.make_node("Concat", ["s", "x"], ["s2"], axis=0)
    nodes = [
        join if grows else helper.make_node("Add", ["s", "x"], ["s2"]),
        helper.make_node("ReduceSum", ["s2"], ["total"], keepdims=0),
        helper.make_node("Less", ["total", "most"], ["c2"]),
        helper.make_node("Mul", ["x", "total"], ["row"]),
    ]
    inner = body(
        nodes,
        {"i": N, "c": B, "s": F},
        {"c2": B, "s2": F, "row": F},
        {"most": np.float32(20)},
    )
    nodes = [helper.make_node("Loop", ["n", "go", "x"], ["z", "rows"], body=inner, name="grow")]
    inputs = [declared("x", F, [4]), declared("n", N, []), declared("go", B, [])]
    return model(nodes, inputs, {"z": F, "rows": F})


@pytest.mark.parametrize("condition", [True, False])
def test_an_if_decided_at_run_time(condition: bool) -> None:
    then = body([helper.make_node("Relu", ["x"], ["a"])], {}, {"a": F})
    other = body([helper.make_node("Neg", ["h"], ["b"])], {}, {"b": F})
    check_with_onnxruntime(choice(then, other), {"x": X, "c": np.array(condition)})


@pytest.mark.parametrize("condition", [True, False])
def test_branches_may_give_other_sizes(condition: bool) -> None:
    then = body(
        [helper.make_node("Concat", ["x", "h"], ["a"], axis=0)],
        {},
        {"a": F},
    )
    other = body(
        [
            helper.make_node("Greater", ["x", "zero"], ["p"]),
            helper.make_node("Compress", ["x", "p"], ["b"], axis=0),
        ],
        {},
        {"b": F},
        {"zero": np.float32(0)},
    )
    check_with_onnxruntime(choice(then, other), {"x": X, "c": np.array(condition)})


def test_branches_of_different_ranks_are_refused() -> None:
    then = body([helper.make_node("Relu", ["x"], ["a"])], {}, {"a": F})
    other = body([helper.make_node("ReduceSum", ["x"], ["b"], keepdims=0)], {}, {"b": F})
    with pytest.raises(ModelError, match=r"(?s)one branch gives .* the other .*pick") as caught:
        import_onnx(choice(then, other))
    assert caught.value.inputs == ("c",)  # type: ignore[attr-defined]


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize(("limit", "start"), [(3, True), (100, True), (1, True)])
def test_a_loop_decided_at_run_time(grows: bool, limit: int, start: bool) -> None:
    check_with_onnxruntime(while_loop(grows), {"x": X, "n": np.array(limit), "go": np.array(start)})


def test_a_loop_that_never_runs() -> None:
    for limit, start in ((0, True), (5, False)):
        given = {"x": X, "n": np.array(limit), "go": np.array(start)}
        state, rows = outputs_of(while_loop(), given)
        np.testing.assert_array_equal(state, X)
        assert rows.shape == (0, 4)


def test_an_if_inside_a_loop() -> None:
    double = body([helper.make_node("Add", ["s", "s"], ["a"])], {}, {"a": F})
    less = body([helper.make_node("Sub", ["s", "x"], ["b"])], {}, {"b": F})
    nodes = [
        helper.make_node("Mod", ["i", "two"], ["odd"]),
        helper.make_node("Cast", ["odd"], ["is_odd"], to=B),
        helper.make_node("If", ["is_odd"], ["s2"], then_branch=double, else_branch=less),
        helper.make_node("Identity", ["c"], ["c2"]),
    ]
    inner = body(nodes, {"i": N, "c": B, "s": F}, {"c2": B, "s2": F}, {"two": np.array(2)})
    loop = helper.make_node("Loop", ["n", "", "x"], ["z"], body=inner)
    made = model([loop], [declared("x", F, [4]), declared("n", N, [])], {"z": F})
    check_with_onnxruntime(made, {"x": X, "n": np.array(5)})


def test_a_loop_without_end_is_refused() -> None:
    nodes = [
        helper.make_node("Add", ["s", "x"], ["s2"]),
        helper.make_node("Identity", ["c"], ["c2"]),
    ]
    inner = body(nodes, {"i": N, "c": B, "s": F}, {"c2": B, "s2": F})
    loop = helper.make_node("Loop", ["", "go", "x"], ["z"], body=inner)
    made = model([loop], [declared("x", F, [4]), declared("go", B, [])], {"z": F})
    with pytest.raises(ModelError, match="this Loop never ends"):
        import_onnx(made)


def test_a_long_loop_is_not_unrolled() -> None:
    inner = body(
        [helper.make_node("Add", ["s", "x"], ["s2"]), helper.make_node("Identity", ["c"], ["c2"])],
        {"i": N, "c": B, "s": F},
        {"c2": B, "s2": F},
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["z"], body=inner)
    made = make([loop], {"x": [4]}, ["z"], 18, {"n": np.array(40_000)})
    ones = np.ones(4, "float32")
    np.testing.assert_array_equal(outputs_of(made, {"x": ones})[0], ones * 40_001)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_selections(limit: int) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"]),
        helper.make_node("Unique", ["x"], ["b", "c", "d", "e"], axis=1),
        helper.make_node("Unique", ["x"], ["f"], sorted=0),
    ]
    x = np.array([[1, 0, 1, 2], [0, 0, 0, 2]], "float32")
    outputs = {"a": N, "b": F, "c": N, "d": N, "e": N, "f": F}
    check_with_onnxruntime(model(nodes, [declared("x", F, [2, 4])], outputs), {"x": x})
    boxes = np.random.default_rng(limit).uniform(0, 1, (2, 12, 4)).astype("float32")
    scores = np.random.default_rng(limit).uniform(0, 1, (2, 2, 12)).astype("float32")
    nodes = [helper.make_node("NonMaxSuppression", ["b", "s", "n", "o", "l"], ["y"])]
    inputs = [declared("b", F, [2, 12, 4]), declared("s", F, [2, 2, 12]), declared("n", N, [])]
    inputs += [declared("o", F, []), declared("l", F, [])]
    given = {"b": boxes, "s": scores, "n": np.array(limit)}
    given |= {"o": np.array(0.2, "float32"), "l": np.array(0.3, "float32")}
    check_with_onnxruntime(model(nodes, inputs, {"y": N}), given)


def computed(kind: str, inputs: list[str], **attrs: object) -> onnx.ModelProto:
    """Return one operator whose parameters p, q and r are made by the model."""
    nodes = [helper.make_node("Add", [f"{n}0", "zero"], [n]) for n in inputs if n != "x"]
    zero = helper.make_node("Constant", [], ["zero"], value_ints=[0])
    used = [declared(f"{n}0", N, [None]) for n in inputs if n != "x"]
    given = [declared("x", F, [2, 3, 4])] if "x" in inputs else []
    nodes = [zero, *nodes, helper.make_node(kind, inputs, ["y"], **attrs)]
    shape = helper.make_node("Shape", ["y"], ["s"])
    return model([*nodes, shape], [*given, *used], {"y": F if given else N, "s": N})


COMPUTED = {
    "slice": ("Slice", {"p": [1, -9], "q": [99, -1]}, {}),
    "empty slice": ("Slice", {"p": [1, 3], "q": [1, 2]}, {}),
    "reshape": ("Reshape", {"p": [4, -1, 2]}, {}),
    "reshape that keeps": ("Reshape", {"p": [0, 12]}, {}),
    "reshape to nothing": ("Reshape", {"p": [2, 12, 1, 1]}, {}),
    "expand": ("Expand", {"p": [5, 2, 3, 4]}, {}),
    "tile": ("Tile", {"p": [2, 1, 3]}, {}),
    "pad": ("Pad", {"p": [0, 1, -2, 1, 0, 4]}, {}),
    "pad that mirrors": ("Pad", {"p": [1, 2, 0, 1, 0, 3]}, {"mode": "reflect"}),
    "pad that repeats the ends": ("Pad", {"p": [0, 3, -1, 2, 0, 5]}, {"mode": "edge"}),
    "topk": ("TopK", {"p": [2]}, {"axis": 2}),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_shapes_and_positions_computed_at_run_time(name: str) -> None:
    kind, parameters, attrs = COMPUTED[name]
    made = computed(kind, ["x", *parameters], **attrs)
    if kind == "TopK":
        next(n for n in made.graph.node if n.op_type == "TopK").output.append("i")
    values = {f"{n}0": np.array(v) for n, v in parameters.items()}
    for declaration in made.graph.input:
        if declaration.name in values:
            dim = declaration.type.tensor_type.shape.dim[0]
            dim.dim_value = len(values[declaration.name])
    x = np.random.default_rng(3).permutation(24).reshape(2, 3, 4).astype("float32")
    check_with_onnxruntime(made, {"x": x, **values})
    compiled = compile_model(made, opt_level=3).run({"x": x, **values})
    for got, want in zip(compiled, outputs_of(made, {"x": x, **values}), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize(("start", "limit", "delta"), [(0, 5, 1), (7, -2, -3), (3, 3, 1)])
def test_a_range_computed_at_run_time(start: int, limit: int, delta: int) -> None:
    names = ("a", "b", "c")
    nodes = [
        helper.make_node("Range", list(names), ["r"]),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["y"]),
    ]
    outputs = {"r": N, "s": N, "y": F}
    made = model(nodes, [declared(n, N, []) for n in names], outputs)
    values = dict(zip(names, map(np.array, (start, limit, delta)), strict=True))
    check_with_onnxruntime(made, values)
    for got, want in zip(compile_model(made).run(values), outputs_of(made, values), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


def test_a_shape_that_does_not_fit_is_an_error_of_the_run() -> None:
    made = computed("Reshape", ["x", "p"])
    made.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 2
    compiled = compile_model(made)
    with pytest.raises(InputError, match=r"the size Reshape_2\S*, which .* computes, is -1"):
        compiled.run({"x": np.zeros((2, 3, 4), "float32"), "p0": np.array([5, 5])})


def test_only_the_shape_of_a_selection_may_be_wanted() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Shape", ["i"], ["s"])]
    made = model(nodes, [declared("x", F, [2, 2])], {"s": N})
    x = np.array([[1, 0], [2, 3]], "float32")
    assert compile_model(made).run({"x": x})[0].numpy().tolist() == [2, 3]
