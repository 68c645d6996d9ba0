# SPDX-License-Identifier: Apache-2.0
"""Imports of whole models: sizes, shape arithmetic, functions, branches, weights, old opsets."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.onnx.models import check_with_onnxruntime, make, outputs_of
from treadle.errors import InputError, ModelError
from treadle.frontend.onnx.importer import import_onnx
from treadle.frontend.onnx.node import CONVERTERS, OnnxNode, RuntimeValueError
from treadle.graph.nodes import Call, Constant, Node, topological
from treadle.ops import elementwise

pytestmark = pytest.mark.tiny
node = helper.make_node
F32 = TensorProto.FLOAT


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def test_unknown_batch_is_one_with_a_note() -> None:
    model = make([node("Add", ["x", "z"], ["y"])], {"x": ["n", 3], "z": ["n", 3]}, ["y"])
    module, notes, _ = import_onnx(model)
    assert [str(p.type) for p in module.main.params] == ["float32[1, 3]", "float32[1, 3]"]
    assert notes == (
        "input 'x': the unknown dimension 0 (n) is compiled as 1; "
        "give --input-shapes for another size",
    )
    module, notes, _ = import_onnx(model, shapes={"z": (4, 3)})
    assert [str(p.type) for p in module.main.params] == ["float32[4, 3]", "float32[4, 3]"]
    assert notes == ()


def test_dynamic_keeps_unknown_sizes_as_symbols() -> None:
    module, notes, _ = import_onnx(
        make([node("Relu", ["x"], ["y"])], {"x": ["n", "m"]}, ["y"]), dynamic=True
    )
    assert str(module.main.body.type) == "float32[n, m]"
    assert notes == ()


def test_names_and_origins() -> None:
    nodes = [node("Relu", ["x"], ["a"], name="act"), node("Mean", ["a", "x"], ["y"])]
    module = import_onnx(make(nodes, {"x": [2]}, ["y", "a"])).module
    assert module.output_names == ("y", "a")
    assert module.name == "test"
    calls = [n for n in topological([module.main.body]) if isinstance(n, Call)]
    assert [(str(c.op), c.origin) for c in calls] == [
        ("relu", "act"),
        ("add", "Mean_1"),
        ("divide", "Mean_1"),
    ]


def test_shape_arithmetic_becomes_constants() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "axes"], ["b"]),
        node("Concat", ["b", "rest"], ["target"], axis=0),
        node("Cast", ["target"], ["t32"], to=TensorProto.INT32),
        node("Cast", ["t32"], ["t64"], to=TensorProto.INT64),
        node("Reshape", ["x", "t64"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    model = make(nodes, {"x": [2, 3, 4]}, ["y"], constants=constants)
    body = import_onnx(model).module.main.body
    assert isinstance(body, Call)
    assert str(body.op) == "reshape"
    check_with_onnxruntime(model, {"x": _random(2, 3, 4)})


def test_a_parameter_computed_at_run_time_names_the_inputs() -> None:
    nodes = [node("Cast", ["x"], ["s"], to=TensorProto.INT64), node("Squeeze", ["x", "s"], ["y"])]
    with pytest.raises(RuntimeValueError) as caught:
        import_onnx(make(nodes, {"x": [2]}, ["y"]))
    assert caught.value.inputs == ("x",)
    assert caught.value.problem == (
        "the axes of Squeeze must be known when the model is compiled; "
        "a value computed at run time is not supported here"
    )
    assert caught.value.at.startswith("test, node Squeeze_1 (index 1), operator Squeeze-21")


def test_inputs_fixed_to_values() -> None:
    model = make([node("Add", ["x", "z"], ["y"])], {"x": [2], "z": [2]}, ["y"])
    module = import_onnx(model, values={"z": np.ones(2, "float32")}).module
    assert [p.name for p in module.main.params] == ["x"]
    for name, value, problem in [
        ("zz", np.ones(2, "float32"), "the model has no input 'zz'"),
        ("z", np.ones(2), "input 'z' has elements of float32, not float64"),
        ("z", np.ones((1, 2), "float32"), r"the value of input 'z' has the shape \[1, 2\]"),
    ]:
        with pytest.raises(InputError, match=problem):
            import_onnx(model, values={name: value})


def test_a_newer_ir_version_is_read() -> None:
    model = make([node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"])
    model.ir_version = 99
    assert import_onnx(model).module.output_names == ("y",)


def _function(
    name: str, nodes: list[onnx.NodeProto], inputs: list[str], **attributes: object
) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    defaults = [helper.make_attribute(k, v) for k, v in attributes.items() if v is not None]
    return helper.make_function(
        "f",
        name,
        inputs,
        ["y"],
        nodes,
        imports,
        [k for k, v in attributes.items() if v is None],
        defaults,
    )


def _with_reference(kind: str, inputs: list[str], outputs: list[str], **refs: str) -> object:
    made = node(kind, inputs, outputs)
    for name, outer in refs.items():
        made.attribute.add(name=name, ref_attr_name=outer, type=onnx.AttributeProto.FLOAT)
    return made


def test_functions_are_inlined_with_attributes_and_left_out_inputs() -> None:
    leaky = _function(
        "leaky", [_with_reference("LeakyRelu", ["x"], ["y"], alpha="slope")], ["x"], slope=0.5
    )
    clipped = _function(
        "clipped",
        [node("leaky", ["x"], ["t"], domain="f"), node("Clip", ["t", "low", "high"], ["y"])],
        ["x", "low", "high"],
    )
    nodes = [
        node("clipped", ["x", "", "high"], ["a"], domain="f", name="call"),
        node("leaky", ["a"], ["y"], domain="f", slope=0.25),
    ]
    model = make(
        nodes,
        {"x": [3]},
        ["y"],
        constants={"high": np.array(1, "float32")},
        functions=[leaky, clipped],
        domains=["f"],
    )
    x = np.array([-4, 0.5, 2], "float32")
    np.testing.assert_allclose(outputs_of(model, {"x": x})[0], [-0.5, 0.5, 1])
    check_with_onnxruntime(model, {"x": x})
    body = import_onnx(model).module.main.body
    origins = [n.origin for n in topological([body]) if isinstance(n, Call)]
    assert origins == ["call/leaky_0/LeakyRelu_0", "call/Clip_1", "leaky_1/LeakyRelu_0"]


def test_operators_that_onnx_defines_by_a_function_are_expanded() -> None:
    assert CONVERTERS.versions("", "CenterCropPad") == ()
    nodes = [node("CenterCropPad", ["x", "s"], ["y"], axes=[0])]
    model = make(nodes, {"x": [6, 2]}, ["y"], constants={"s": np.array([3])})
    x = _random(6, 2)
    np.testing.assert_array_equal(outputs_of(model, {"x": x})[0], x[1:4])


@pytest.mark.parametrize("condition", [True, False])
def test_if_with_a_known_condition_is_inlined(condition: bool) -> None:
    def branch(kind: str) -> onnx.GraphProto:
        result = helper.make_tensor_value_info("r", F32, [2])
        weight = numpy_helper.from_array(np.array([2, 3], "float32"), "w")
        return helper.make_graph([node(kind, ["x", "w"], ["r"])], kind, [], [result], [weight])

    nodes = [
        node("If", ["c"], ["t"], then_branch=branch("Add"), else_branch=branch("Mul")),
        node("Relu", ["t"], ["y"]),
    ]
    model = make(nodes, {"x": [2]}, ["y"], constants={"c": np.array(condition)})
    check_with_onnxruntime(model, {"x": _random(2)})


def test_weights_of_every_kind() -> None:
    weights = {
        "raw": numpy_helper.from_array(np.array([1, 2], "float32")),
        "half": helper.make_tensor("", TensorProto.FLOAT16, [2], [1.5, -2]),
        "bfloat": helper.make_tensor("", TensorProto.BFLOAT16, [2], [1.5, -2]),
        "byte": helper.make_tensor("", TensorProto.INT8, [2], [-7, 5]),
        "unsigned": helper.make_tensor("", TensorProto.UINT64, [2], [2**63, 1]),
        "truth": helper.make_tensor("", TensorProto.BOOL, [2], [True, False]),
        "double": helper.make_tensor("", TensorProto.DOUBLE, [2], [0.1, 2]),
    }
    model = make([], {}, list(weights))
    for name, tensor in weights.items():
        tensor.name = name
        model.graph.initializer.append(tensor)
    for got, tensor in zip(outputs_of(model, {}), weights.values(), strict=True):
        want = numpy_helper.to_array(tensor)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_weights(indices: list[object]) -> None:
    values = numpy_helper.from_array(np.array([7, 8], "float32"), "w")
    sparse = onnx.SparseTensorProto(dims=[2, 3], values=values)
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array(indices)))
    model = make([node("Identity", ["w"], ["y"])], {}, ["y"])
    model.graph.sparse_initializer.append(sparse)
    np.testing.assert_array_equal(outputs_of(model, {})[0], [[0, 7, 0], [0, 0, 8]])
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([1, 6])))
    del model.graph.sparse_initializer[:]
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(ModelError, match="an index outside its shape"):
        import_onnx(model)


def test_a_users_own_operator() -> None:
    def double(call: OnnxNode) -> Node:
        factor = call.number("factor", 2.0)
        return elementwise.multiply(call.input(0), Constant.of(factor, "float32"))

    CONVERTERS.converter("Scale", since=(1,), domain="com.example.test")(double)
    call = node("Scale", ["x"], ["y"], domain="com.example.test", factor=3.0)
    model = make([call], {"x": [2]}, ["y"], domains=["com.example.test"])
    np.testing.assert_array_equal(outputs_of(model, {"x": np.ones(2, "float32")})[0], [3, 3])
    call.attribute.append(helper.make_attribute("mode", "odd"))
    model = make([call], {"x": [2]}, ["y"], domains=["com.example.test"])
    with pytest.raises(ModelError, match="the attribute 'mode' of Scale is not supported"):
        import_onnx(model)


def test_an_output_of_another_type_than_declared() -> None:
    model = make([node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, [2]))
    with pytest.raises(ModelError, match="declared as int64, the graph computes float32"):
        import_onnx(model)


def test_an_error_without_advice_says_what_the_operator_takes() -> None:
    node = helper.make_node("Resize", ["x"], ["y"], "grow", mode="linear")
    with pytest.raises(ModelError) as raised:
        import_onnx(make([node], {"x": [1, 2]}, ["y"], 19))
    text = str(raised.value)
    assert "node grow (index 0), operator Resize-19, opset 19, inputs (float32[1, 2])" in text
    assert "hint  Resize-19 takes (X, roi?, scales?, sizes?) with antialias?" in text
    assert "https://onnx.ai/onnx/operators/onnx__Resize.html" in text
