# SPDX-License-Identifier: Apache-2.0
"""Sequences and optional values: known while importing, tensors in the graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx.models import make
from treadle.errors import ModelError
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.interpret import run
from treadle.integrations.onnx_backend import TreadleBackend

X = np.arange(12, dtype="float32").reshape(3, 4)


def _with_sequence_input(nodes: list[onnx.NodeProto], optional: bool = False) -> onnx.ModelProto:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    kind = helper.make_sequence_type_proto(tensor)
    if optional:
        kind = helper.make_optional_type_proto(kind)
    graph = helper.make_graph(
        nodes,
        "sequences",
        [helper.make_value_info("s", kind)],
        [onnx.ValueInfoProto(name="y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_a_sequence_of_known_length_leaves_no_trace() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0, keepdims=0),
        helper.make_node("SequenceInsert", ["parts", "row", "first"], ["more"]),
        helper.make_node("SequenceErase", ["more", "second"], ["fewer"]),
        helper.make_node("ConcatFromSequence", ["fewer"], ["y"], axis=1, new_axis=1),
        helper.make_node("SequenceLength", ["fewer"], ["n"]),
    ]
    constants = {"first": np.array(0), "second": np.array(-2), "row": np.ones(4, "float32")}
    model = make(nodes, {"x": [3, 4]}, ["y", "n"], 18, constants)
    y, n = run(import_onnx(model).module.main, {"x": X})
    np.testing.assert_array_equal(y, np.stack([np.ones(4), X[0], X[2]], 1))
    assert n == 3


def test_sequences_go_in_and_out_as_lists() -> None:
    model = _with_sequence_input([helper.make_node("SequenceInsert", ["s", "x"], ["y"])])
    model.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]))
    rep = TreadleBackend.prepare(model)
    x = np.array([5, 6], "float32")
    for length in (1, 3, 1):
        parts = [np.full(k + 1, k, "float32") for k in range(length)]
        (y,) = rep.run([parts, x])
        assert len(y) == length + 1
        for got, want in zip(y, [*parts, x], strict=True):
            np.testing.assert_array_equal(got, want)


def test_an_optional_sequence_may_be_absent() -> None:
    has = helper.make_node("OptionalHasElement", ["s"], ["y"])
    rep = TreadleBackend.prepare(_with_sequence_input([has], optional=True))
    assert rep.run([None]) == (np.array(False),)
    assert rep.run([[X]]) == (np.array(True),)


def test_the_element_of_an_absent_optional_is_an_error() -> None:
    get = helper.make_node("OptionalGetElement", ["s"], ["y"], name="get")
    with pytest.raises(ModelError, match=r"(?s)without an element has nothing to give.*get"):
        import_onnx(_with_sequence_input([get], optional=True), structures={"s": None})


def test_sequence_inputs_of_unknown_length_are_refused_with_the_way_out() -> None:
    with pytest.raises(ModelError, match=r"(?s)input 's' is not a tensor \(sequence\).*structures"):
        import_onnx(_with_sequence_input([helper.make_node("SequenceLength", ["s"], ["y"])]))


def test_positions_outside_of_a_sequence_are_refused() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "k"], ["y"], name="pick"),
    ]
    model = make(nodes, {"x": [2]}, ["y"], 18, {"k": np.array(2)})
    with pytest.raises(ModelError, match=r"(?s)position 2 of SequenceAt is outside.*pick"):
        import_onnx(model)
