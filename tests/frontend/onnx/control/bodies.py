# SPDX-License-Identifier: Apache-2.0
"""Models with control flow, and the bodies they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, N, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


X = np.array([1, -2, 3, 0.5], "float32")


def declared(name: str, kind: int = F, shape: Sequence[int | None] | None = None):
    """Return a typed value; without a shape it is left open."""
    return helper.make_tensor_value_info(name, kind, shape)


def body(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, int],
    outputs: dict[str, int],
    constants: dict[str, np.ndarray] | None = None,
) -> onnx.GraphProto:
    """Return a subgraph."""
    weights = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    return helper.make_graph(
        nodes,
        "body",
        [declared(n, k, [] if k != F else None) for n, k in inputs.items()],
        [declared(n, k) for n, k in outputs.items()],
        weights,
    )


def model(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: dict[str, int]
) -> onnx.ModelProto:
    """Return a model of typed inputs."""
    graph = helper.make_graph(nodes, "test", inputs, [declared(n, k) for n, k in outputs.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made.ir_version = 9
    return made
