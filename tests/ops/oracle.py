# SPDX-License-Identifier: Apache-2.0
"""Checks shared by operator tests: random inputs, onnxruntime on one node, three-way comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from onnx import helper

from tests.te_eval import evaluate
from treadle import dtype as dt
from treadle import te
from treadle.graph.nodes import Var
from treadle.graph.operator import Attrs, Example, Operator
from treadle.graph.types import TensorType


def run_onnx_node(
    kind: str,
    arrays: list[np.ndarray | None],
    attrs: dict[str, object],
    opset: int = 22,
    result_type: int | None = None,
) -> np.ndarray:
    """Return the first output of one ONNX operator run by onnxruntime; None is a left-out input.

    `result_type` is the ONNX element type of the output where it is not that of the first input.
    """
    return run_onnx_outputs(kind, arrays, attrs, {"y": result_type}, opset)[0]


def run_onnx_outputs(
    kind: str,
    arrays: list[np.ndarray | None],
    attrs: dict[str, object],
    outputs: dict[str, int | None],
    opset: int = 22,
) -> list[np.ndarray]:
    """Return the outputs of one ONNX operator: their names, and types as in `run_onnx_node`."""
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)]
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
        if a is not None
    ]
    node = helper.make_node(kind, names, list(outputs), **attrs)
    first = inputs[0].type.tensor_type.elem_type
    results = [helper.make_tensor_value_info(n, t or first, None) for n, t in outputs.items()]
    graph = helper.make_graph([node], "one", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = min(model.ir_version, 10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    made: list[np.ndarray] = session.run(None, feeds)
    return made


def random_array(shape: tuple[int, ...], dtype: str, low: float, high: float) -> np.ndarray:
    """Return reproducible random values; the shape seeds them."""
    rng = np.random.default_rng([*shape, len(dtype)])
    if dt.is_float(dtype):
        return rng.uniform(low, high, shape).astype(dt.to_numpy(dtype))
    return rng.integers(int(low), int(high) + 1, shape).astype(dt.to_numpy(dtype))


def example_arrays(example: Example) -> list[np.ndarray]:
    """Return inputs for an example."""
    dtypes = example.dtypes or ("float32",) * len(example.shapes)
    made = [
        random_array(s, t, example.low, example.high)
        for s, t in zip(example.shapes, dtypes, strict=True)
    ]
    return [example.inputs.get(k, a) for k, a in enumerate(made)]


def te_result(operator: Operator[Any], attrs: Attrs | None, arrays: list[np.ndarray]) -> np.ndarray:
    """Return what an operator's te compute means for arrays."""
    inputs = [
        te.placeholder(a.shape, dt.from_numpy(a.dtype), name=f"x{k}") for k, a in enumerate(arrays)
    ]
    assert operator.compute is not None
    made = operator.compute(attrs, *inputs)
    last = made if isinstance(made, te.Tensor) else made[-1]
    return evaluate([last], dict(zip(inputs, arrays, strict=True)))[0]


def check_operator(
    operator: Operator[Any],
    arrays: list[np.ndarray],
    attrs: dict[str, object],
    *,
    expected: np.ndarray | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> np.ndarray:
    """Check type inference, reference and te compute against each other (and `expected`)."""
    types = [TensorType(a.shape, dt.from_numpy(a.dtype)) for a in arrays]
    call = operator(*(Var(f"x{k}", t) for k, t in enumerate(types)), **attrs)
    reference = operator.reference(call.attrs, *arrays)
    computed = te_result(operator, call.attrs, arrays)
    for result in (reference, computed):
        assert result.shape == call.type.static_shape
        assert dt.from_numpy(result.dtype) == call.type.dtype
    np.testing.assert_allclose(
        computed.astype(np.float64), reference.astype(np.float64), rtol=rtol, atol=atol
    )
    if expected is not None:
        assert reference.shape == expected.shape
        np.testing.assert_allclose(reference, expected, rtol=rtol, atol=atol)
    return reference


def onnx_window(attrs: dict[str, object]) -> dict[str, object]:
    """Return Treadle's convolution attributes under ONNX's names."""
    made: dict[str, object] = {}
    for name, value in attrs.items():
        if name not in ("pads_before", "pads_after"):
            made["group" if name == "groups" else name] = value
    before, after = attrs.get("pads_before", ()), attrs.get("pads_after", ())
    if before or after:
        zeros = (0,) * max(len(before), len(after))  # type: ignore[arg-type]
        made["pads"] = [*(before or zeros), *(after or zeros)]  # type: ignore[misc]
    return made
