# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers of onnxruntime's own domain, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from treadle.build.compile import compile_model

HIDDEN, FEATURES = 16, 12
RNG = np.random.default_rng(5)


def _layer(directions: int, per_column: bool, dtype: str, states: bool) -> onnx.ModelProto:
    """Return an LSTM of 8-bit weights over [steps, batch, features], all but the last open.

    Signed weights have 7 bits: without VNNI onnxruntime adds two products in 16 bits, saturated.
    """
    least, most = (-64, 63) if dtype == "int8" else (0, 255)
    columns = 4 * HIDDEN
    shape = (directions, columns) if per_column else (directions,)
    weights = {
        "w": RNG.integers(least, most + 1, (directions, FEATURES, columns)).astype(dtype),
        "r": RNG.integers(least, most + 1, (directions, HIDDEN, columns)).astype(dtype),
        "b": RNG.standard_normal((directions, 2 * columns)).astype("float32"),
        "ws": RNG.uniform(0.002, 0.004, shape).astype("float32"),
        "wz": np.full(shape, 0 if dtype == "int8" else 125, dtype),
        "rs": RNG.uniform(0.002, 0.004, shape).astype("float32"),
        "rz": np.full(shape, 0 if dtype == "int8" else 131, dtype),
    }
    given = ["h", "c"] if states else ["", ""]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["x", "w", "r", "b", "", *given, "", "ws", "wz", "rs", "rz"],
        ["y", "last_h", "last_c"],
        domain="com.microsoft",
        hidden_size=HIDDEN,
        direction="bidirectional" if directions == 2 else "reverse",
    )
    inputs = {"x": ["steps", "n", FEATURES]}
    if states:
        inputs |= {"h": [directions, "n", HIDDEN], "c": [directions, "n", HIDDEN]}
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in node.output],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("directions", "per_column", "dtype", "states"),
    [(1, False, "uint8", False), (2, True, "int8", True), (2, False, "int8", False)],
)
def test_quantized_lstm(directions: int, per_column: bool, dtype: str, states: bool) -> None:
    model = _layer(directions, per_column, dtype, states)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # it quantises what each of its threads is given
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    executable = compile_model(model, dynamic=True)
    for steps, batch in ((5, 1), (9, 1)):
        inputs = {"x": RNG.standard_normal((steps, batch, FEATURES)).astype("float32")}
        if states:
            shape = (directions, batch, HIDDEN)
            inputs |= {n: RNG.standard_normal(shape).astype("float32") for n in ("h", "c")}
        for got, want in zip(executable.run(inputs), session.run(None, inputs), strict=True):
            assert np.shape(got) == want.shape
            # A state on the edge between two of 256 steps may fall on either side.
            np.testing.assert_allclose(np.asarray(got), want, atol=2e-2)
            assert np.abs(np.asarray(got) - want).mean() < 2e-3
