# SPDX-License-Identifier: Apache-2.0
"""An If whose branches differ in rank, or of which one cannot be converted, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from treadle.build.compile import Report, compile_model
from treadle.errors import InputError, ModelError
from treadle.frontend.onnx.control.alternatives import MOST_CONTINUED, REASON_LIMIT

F, N = TensorProto.FLOAT, TensorProto.INT64


def branch(name: str, nodes: list[onnx.NodeProto], result: str) -> onnx.GraphProto:
    """Return a subgraph without inputs and with one result."""
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(result, F, None)])


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int | str]]],
    outputs: list[str],
    **constants: np.ndarray,
) -> onnx.ModelProto:
    """Return a model of opset 16."""
    declared = [helper.make_tensor_value_info(n, k, s) for n, (k, s) in inputs.items()]
    results = [helper.make_tensor_value_info(n, F, None) for n in outputs]
    weights = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "test", declared, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


def pick(condition: str, result: str, then: onnx.GraphProto, orelse: onnx.GraphProto):
    """Return an If."""
    return helper.make_node(
        "If", [condition], [result], "pick", then_branch=then, else_branch=orelse
    )


def squeezed_if_one(x: str, result: str, suffix: str = "") -> list[onnx.NodeProto]:
    """Return what torch's tracer writes for x.squeeze(0): the rank depends on an extent."""
    return [
        helper.make_node("Shape", [x], [f"shape{suffix}"]),
        helper.make_node("Gather", [f"shape{suffix}", "zero"], [f"rows{suffix}"]),
        helper.make_node("Equal", [f"rows{suffix}", "one"], [f"is_one{suffix}"]),
        pick(
            f"is_one{suffix}",
            result,
            branch(
                "squeeze",
                [helper.make_node("Squeeze", [x, "first"], [f"row{suffix}"])],
                f"row{suffix}",
            ),
            branch(
                "same", [helper.make_node("Identity", [x], [f"whole{suffix}"])], f"whole{suffix}"
            ),
        ),
    ]


NUMBERS = {"zero": np.array(0), "one": np.array(1), "first": np.array([0])}


def check(made: onnx.ModelProto, *runs: dict[str, np.ndarray]) -> None:
    """Compile with open sizes and compare every run with onnxruntime's."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    executable = compile_model(made, dynamic=True)
    for inputs in runs:
        results = executable.run(inputs)
        for got, want in zip(results, session.run(None, inputs), strict=True):
            assert np.asarray(got).shape == want.shape
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)


def rows(count: int, width: int = 4) -> np.ndarray:
    """Return random rows."""
    return np.random.default_rng(count).standard_normal((count, width)).astype("float32")


def test_what_follows_takes_either_rank() -> None:
    nodes = [
        *squeezed_if_one("x", "y"),
        helper.make_node("Relu", ["y"], ["r"]),
        helper.make_node("ReduceSum", ["r"], ["s"], keepdims=0),
        helper.make_node("Abs", ["x"], ["a"]),
    ]
    made = model(nodes, {"x": (F, ["n", 4])}, ["s", "a"], **NUMBERS)
    check(made, {"x": rows(1)}, {"x": rows(3)})


def test_what_follows_takes_one_rank_only() -> None:
    nodes = [
        *squeezed_if_one("x", "y"),
        helper.make_node("Transpose", ["y"], ["t"], perm=[0]),
        helper.make_node("Add", ["t", "w"], ["z"]),
    ]
    made = model(nodes, {"x": (F, ["n", 4])}, ["z"], **NUMBERS, w=rows(1)[0])
    check(made, {"x": rows(1)})
    with pytest.raises(InputError) as error:
        compile_model(made, dynamic=True).run({"x": rows(2)})
    assert "take a branch that cannot run" in error.value.problem
    assert "perm [0] is no permutation of 2 axes" in error.value.problem


def test_one_inside_the_branch_of_another() -> None:
    inner = branch(
        "inner",
        [*squeezed_if_one("h", "q", "_q"), helper.make_node("ReduceMax", ["q"], ["m"], keepdims=0)],
        "m",
    )
    other = branch("other", [helper.make_node("ReduceMin", ["h"], ["k"], keepdims=0)], "k")
    nodes = [
        helper.make_node("Abs", ["x"], ["h"]),
        helper.make_node("Equal", ["rate", "high"], ["c"]),
        pick("c", "y", inner, other),
    ]
    made = model(
        nodes, {"x": (F, ["n", 4]), "rate": (N, [])}, ["y"], **NUMBERS, high=np.array(16000)
    )
    for count in (1, 3):
        check(made, *({"x": rows(count), "rate": np.array(r)} for r in (16000, 8000)))


def _rates() -> onnx.ModelProto:
    """Return a model of which one branch is for rows of 6 elements, the other for any."""
    fits = branch("fits", [helper.make_node("Neg", ["x"], ["u"])], "u")
    six = branch("six", [helper.make_node("Add", ["x", "six"], ["v"])], "v")
    nodes = [helper.make_node("Equal", ["rate", "high"], ["c"]), pick("c", "y", fits, six)]
    return model(
        nodes,
        {"x": (F, ["n", 4]), "rate": (N, [])},
        ["y"],
        high=np.array(16000),
        six=np.ones(6, "float32"),
    )


def test_a_branch_that_does_not_type_check_is_refused_when_it_runs() -> None:
    report = Report()
    executable = compile_model(_rates(), dynamic=True, report=report)
    assert any("pick/else_branch is refused" in note for note in report.notes)
    x = rows(2)
    np.testing.assert_array_equal(executable.run({"x": x, "rate": np.array(16000)})[0], -x)
    with pytest.raises(InputError) as error:
        executable.run({"x": x, "rate": np.array(8000)})
    assert "pick/else_branch" in error.value.problem
    np.testing.assert_array_equal(executable.run({"x": x, "rate": np.array(16000)})[0], -x)


def test_fixed_sizes_refuse_the_branch_in_the_same_way() -> None:
    executable = compile_model(_rates(), shapes={"x": [2, 4]})
    x = rows(2)
    np.testing.assert_array_equal(executable.run({"x": x, "rate": np.array(16000)})[0], -x)
    with pytest.raises(InputError, match="cannot run"):
        executable.run({"x": x, "rate": np.array(8000)})


def test_two_wrong_branches_are_an_error_of_the_model() -> None:
    wrong = [
        branch(name, [helper.make_node("Add", ["x", "six"], [f"u_{name}"])], f"u_{name}")
        for name in ("left", "right")
    ]
    nodes = [helper.make_node("Equal", ["rate", "high"], ["c"]), pick("c", "y", *wrong)]
    made = model(
        nodes,
        {"x": (F, ["n", 4]), "rate": (N, [])},
        ["y"],
        high=np.array(1),
        six=np.ones(6, "float32"),
    )
    with pytest.raises(ModelError, match="do not broadcast"):
        compile_model(made, dynamic=True)


def test_long_reasons_are_cut() -> None:
    made = _rates()
    made.graph.node[1].attribute[1].g.node[0].name = "long" * 500
    with pytest.raises(InputError) as error:
        compile_model(made, dynamic=True).run({"x": rows(1), "rate": np.array(1)})
    assert len(str(error.value)) < REASON_LIMIT + 400


def test_many_of_them_end() -> None:
    nodes: list[onnx.NodeProto] = []
    for k in range(MOST_CONTINUED + 1):
        nodes += squeezed_if_one("x", f"y{k}", str(k))
    names = [f"y{k}" for k in range(MOST_CONTINUED + 1)]
    nodes += [helper.make_node("Sum", names, ["z"])]
    made = model(nodes, {"x": (F, ["n", 4])}, ["z"], **NUMBERS)
    with pytest.raises(ModelError, match="computed at run time"):
        compile_model(made, dynamic=True)
