# SPDX-License-Identifier: Apache-2.0
"""Weights of eight bits and fewer: packed in files, one byte each in memory, exact in results."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.dtype import NARROW_BITS
from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.parse import parse
from treadle.graph.text import function_text


def _all_values(name: str) -> np.ndarray:
    width = NARROW_BITS[name]
    return np.arange(1 << width, dtype="uint8").view(getattr(ml_dtypes, name))


def _dequantized(weights: np.ndarray) -> onnx.ModelProto:
    """Return scale * weights, and the weights themselves turned around, next to an input."""
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("Add", ["x", "d"], ["y"]),
        helper.make_node("Transpose", ["w"], ["t"]),
    ]
    kind = numpy_helper.from_array(weights, "w")
    graph = helper.make_graph(
        nodes,
        "narrow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, weights.shape)],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, weights.shape),
            helper.make_tensor_value_info("t", kind.data_type, weights.shape[::-1]),
        ],
        [kind, numpy_helper.from_array(np.float32(0.5), "s")],
    )
    opsets = [helper.make_opsetid("", 25)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=12)


@pytest.mark.parametrize("name", ["int4", "uint2", "float4_e2m1fn", "float8_e5m2fnuz"])
def test_models_compile_print_parse_and_deploy(name: str, tmp_path: Path) -> None:
    weights = _all_values(name)[:4].reshape(2, 2)
    model = _dequantized(weights)
    main = import_onnx(model).module.main
    text = function_text(main, "inline")
    assert function_text(parse(text), "inline") == text

    executable = treadle.compile(model)
    executable.save(tmp_path / "m.tar")
    x = np.ones((2, 2), "float32")
    for made in (executable, treadle.load(tmp_path / "m.tar")):
        y, t = (o.numpy() for o in made.run({"x": x}))
        np.testing.assert_array_equal(y, 1 + weights.astype("float32") / 2)
        assert t.dtype == weights.dtype
        np.testing.assert_array_equal(t.view("uint8"), weights.T.view("uint8"))


def test_arithmetic_on_narrow_types_is_refused() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph(
        [node],
        "bad",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT8E5M2, [2])],
        [onnx.ValueInfoProto(name="y")],
    )
    with pytest.raises(treadle.TreadleError, match=r"float8_?e5m2"):
        import_onnx(helper.make_model(graph))
