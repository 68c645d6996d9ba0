# SPDX-License-Identifier: Apache-2.0
"""Models with values or names beyond what can run are refused before they are compiled."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from treadle.build.compile import compile_model
from treadle.build.limits import LONGEST_NAME, MOST_DIMENSIONS
from treadle.errors import LONGEST_PART, ModelError, TreadleError
from treadle.frontend.onnx import importer

pytestmark = pytest.mark.tiny


def model(node: onnx.NodeProto, shape: list[int], **constants: np.ndarray) -> onnx.ModelProto:
    """Return a model of one node, whose first input and first output are the graph's."""
    x = helper.make_tensor_value_info(node.input[0], TensorProto.FLOAT, shape)
    weights = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    results = [onnx.ValueInfoProto(name=node.output[0])]
    graph = helper.make_graph([node], "test", [x], results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


@pytest.mark.parametrize(
    ("op", "sizes"), [("Expand", [10**6, 10**6]), ("Pad", [0, 2**40]), ("Tile", [2**39])]
)
def test_values_that_fit_in_no_memory(op: str, sizes: list[int]) -> None:
    made = model(helper.make_node(op, ["x", "sizes"], ["y"], "big"), [1], sizes=np.array(sizes))
    with pytest.raises(ModelError) as error:
        compile_model(made)
    assert "fits in no memory" in error.value.problem
    assert "(1 TiB) are possible" in error.value.problem
    assert error.value.at == "test, big"


def test_values_of_too_many_dimensions() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    with pytest.raises(ModelError, match="has 33 dimensions; 32 are possible"):
        compile_model(model(node, [1] * (MOST_DIMENSIONS + 1)))
    x = np.ones([1] * MOST_DIMENSIONS, "float32")
    made = compile_model(model(node, list(x.shape)))
    np.testing.assert_array_equal(made.run({"x": x})[0], x)


@pytest.mark.parametrize(("x", "y"), [("long", "y"), ("x", "long")])
def test_names_that_are_too_long(x: str, y: str) -> None:
    names = {"long": "n" * (LONGEST_NAME + 1)}
    node = helper.make_node("Relu", [names.get(x, x)], [names.get(y, y)])
    with pytest.raises(ModelError) as error:
        compile_model(model(node, [1]))
    assert "4097 bytes; 4096 are possible" in error.value.problem
    assert len(str(error.value)) < 300


def test_long_messages_lose_their_middle() -> None:
    error = TreadleError("a" + "b" * 20_000 + "c", at="d" * 20_000, hint="e")
    assert error.problem.startswith("ab")
    assert error.problem.endswith("bc")
    assert "characters left out" in error.problem
    assert len(str(error)) < 2 * LONGEST_PART + 200


def test_types_of_many_inputs_are_not_all_listed() -> None:
    names = [f"x{k}" for k in range(500)]
    made = model(helper.make_node("Concat", names, ["y"], axis=0), [1, 1])
    for k, name in enumerate(names[1:], 2):
        made.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, k]))
    with pytest.raises(ModelError) as error:
        compile_model(made)
    assert "... 488 more)" in error.value.at


def test_a_loop_of_countless_iterations_is_not_unrolled_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Neg", ["s"], ["t"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [1]),
        ],
        [onnx.ValueInfoProto(name="d"), onnx.ValueInfoProto(name="t")],
    )
    node = helper.make_node("Loop", ["x", "", "s"], ["y"], body=body)
    made = model(node, [], s=np.ones(1, "float32"))
    made.graph.input.pop()
    made.graph.initializer.append(numpy_helper.from_array(np.array(2**62), "x"))
    steps: list[str] = []
    convert = importer._Importer._step

    def counted(self, frame, proto) -> None:
        steps.append(proto.op_type)
        convert(self, frame, proto)

    monkeypatch.setattr(importer._Importer, "_step", counted)
    compile_model(made)
    assert len(steps) < 20
