# SPDX-License-Identifier: Apache-2.0
"""What exporters write for open sizes: "to the end", shapes in int32, names that name nothing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.errors import InputError
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.types import tensor_type

FAR_ENDS = (2**63 - 1, 2**48, -(2**63), -2)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    output: str,
    **constants: np.ndarray,
) -> onnx.ModelProto:
    """Return a model of float inputs and one output."""
    declared = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    weights = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    results = [onnx.ValueInfoProto(name=output)]
    graph = helper.make_graph(nodes, "test", declared, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def _cut(extent: int, start: int, end: int, step: int) -> list[int]:
    """Return the positions that ONNX's Slice takes."""
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first, last = (p + extent if p < 0 else p for p in (start, end))
    return list(range(max(0, min(first, high)), max(low, min(last, high)), step))


@pytest.mark.parametrize("step", [1, -1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("end", FAR_ENDS)
def test_slices_to_the_end(end: int, step: int) -> None:
    node = helper.make_node("Slice", ["x", "start", "end", "axes", "step"], ["y"])
    start = 0 if step > 0 else 2**63 - 1
    numbers = {"start": start, "end": end, "axes": 0, "step": step}
    made = model([node], {"x": ["n", 2]}, "y", **{k: np.array([v]) for k, v in numbers.items()})
    executable = treadle.compile(made, dynamic=True, opt_level=0)
    for extent in (5, 1):
        x = np.arange(extent * 2, dtype="float32").reshape(extent, 2)
        np.testing.assert_array_equal(
            executable.run({"x": x})[0], x[_cut(extent, start, end, step)]
        )


@pytest.mark.parametrize("end", [2**63 - 1, 2**61, 2**50])
def test_a_product_of_a_slice_to_the_end_ends(end: int) -> None:
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "start"], ["y"]),
        helper.make_node("MatMul", ["y", "w"], ["z"]),
    ]
    weights = np.ones((64, 128), "float32")
    numbers = {"start": np.array([0]), "end": np.array([end])}
    made = model(nodes, {"x": ["n", 64]}, "z", w=weights, **numbers)
    x = np.ones((3, 64), "float32")
    np.testing.assert_array_equal(treadle.compile(made, dynamic=True).run({"x": x})[0], x @ weights)


@pytest.mark.parametrize("dtype", ["int32", "uint64"])
def test_shapes_through_another_integer_type_stay_symbols(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["small"], to=kind),
        helper.make_node("Slice", ["small", "zero", "one", "zero"], ["n"]),
        helper.make_node("Squeeze", ["n", "zero"], ["scalar"]),
        helper.make_node("Mul", ["scalar", "two"], ["twice"]),
        helper.make_node("Unsqueeze", ["twice", "zero"], ["again"]),
        helper.make_node("Concat", ["again", "rest"], ["target"], axis=0),
        helper.make_node("Cast", ["target"], ["large"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "large"], ["y"]),
    ]
    numbers = {"zero": np.array([0]), "one": np.array([1])}
    rest = {"two": np.array(2, dtype), "rest": np.array([2, 5], dtype)}
    imported = import_onnx(model(nodes, {"x": ["n", 4, 5]}, "y", **numbers, **rest), dynamic=True)
    assert str(tensor_type(imported.module.main.type)) == "float32[(n * 2), 2, 5]"


def test_shapes_in_a_type_that_does_not_hold_them_are_computed() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["small"], to=TensorProto.INT8),
        helper.make_node("Cast", ["small"], ["y"], to=TensorProto.INT64),
    ]
    executable = treadle.compile(model(nodes, {"x": ["n"]}, "y"), dynamic=True)
    assert np.asarray(executable.run({"x": np.zeros(200, "float32")})[0]).tolist() == [-56]


@pytest.mark.parametrize("name", ["?", "-1", "None", "*", ""])
def test_names_that_name_nothing_are_not_equal_sizes(name: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    made = model(nodes, {"x": [name, 3, name, name]}, "y")
    x = np.ones((2, 3, 4, 5), "float32")
    assert np.shape(treadle.compile(made, dynamic=True).run({"x": x})[0]) == x.shape
    assert np.shape(treadle.compile(made, shapes={"x": x.shape}).run({"x": x})[0]) == x.shape


@pytest.mark.parametrize("name", ["n", "unk__12", "387", "p2o.Dim.0"])
def test_names_stand_for_one_size(name: str) -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [name, name]}, "y")
    with pytest.raises(InputError, match=f"is {name} = 4 in the model, not 5"):
        treadle.compile(made, shapes={"x": (4, 5)})
