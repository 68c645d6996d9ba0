# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models for tests, and the comparison of an import with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from treadle.frontend.onnx.importer import import_onnx
from treadle.graph.interpret import run

Arrays = Mapping[str, np.ndarray]


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str | None] | None],
    outputs: Sequence[str],
    opset: int = 21,
    constants: Arrays | None = None,
    *,
    dtype: str = "float32",
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """Return a model of `nodes`; inputs have one element type, outputs no declared type."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    declared = [helper.make_tensor_value_info(n, number, s) for n, s in inputs.items()]
    results = [onnx.ValueInfoProto(name=n) for n in outputs]
    weights = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", declared, results, weights)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    model.ir_version = min(model.ir_version, 10)
    return model


def outputs_of(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray]:
    """Return what the imported model computes (by the operators' references)."""
    return run(import_onnx(model).module.main, inputs)


def check_with_onnxruntime(model: onnx.ModelProto, inputs: Arrays) -> None:
    """Fail unless the imported model computes what onnxruntime computes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, dict(inputs))
    for got, want in zip(outputs_of(model, inputs), expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
