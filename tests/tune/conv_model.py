# SPDX-License-Identifier: Apache-2.0
"""A small ONNX model with weights."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def conv_model() -> onnx.ModelProto:
    """A convolution with an activation, and a pool."""
    weights = numpy_helper.from_array(np.ones((16, 8, 3, 3), "float32"), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["y"], name="pool"),
    ]
    ends = [("x", (1, 8, 12, 12)), ("y", (1, 16, 1, 1))]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends)
    graph = helper.make_graph(nodes, "net", [x], [y], [weights])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made
