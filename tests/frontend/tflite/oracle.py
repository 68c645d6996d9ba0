# SPDX-License-Identifier: Apache-2.0
"""What the reference interpreter computes, and the comparison of Treadle's results with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import treadle
from tests.frontend.tflite.models import Graph, model


def reference(content: bytes, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a file by the reference kernels of ai-edge-litert."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    kinds = interpreter.OpResolverType
    try:
        run = interpreter.Interpreter(
            model_content=content, experimental_op_resolver_type=kinds.BUILTIN_REF
        )
    except ValueError:  # an operator that has an optimised kernel alone
        run = interpreter.Interpreter(
            model_content=content,
            experimental_op_resolver_type=kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
    given = {d["name"]: d for d in run.get_input_details()}
    for name, value in inputs.items():
        if tuple(given[name]["shape"]) != value.shape:
            run.resize_tensor_input(given[name]["index"], value.shape)
    run.allocate_tensors()
    for name, value in inputs.items():
        run.set_tensor(given[name]["index"], value)
    run.invoke()
    return [run.get_tensor(d["index"]) for d in run.get_output_details()]


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Return values of the types and shapes of the inputs."""
    random = np.random.default_rng(seed)
    made = {}
    for k in graph.inputs:
        spec = graph.tensors[k]
        if spec.dtype == "bool":
            made[spec.name] = random.random(spec.shape) > 0.5
        elif spec.dtype.startswith(("int", "uint")):
            limits = np.iinfo(spec.dtype)
            low, high = max(limits.min, -300), min(limits.max, 300)
            made[spec.name] = random.integers(low, high, spec.shape, endpoint=True).astype(
                spec.dtype
            )
        else:
            made[spec.name] = random.normal(size=spec.shape).astype(spec.dtype)
    return made


def computed(content: bytes, inputs: Mapping[str, np.ndarray], **options: Any) -> list[np.ndarray]:
    """Return the outputs of a file by Treadle."""
    exe = treadle.compile(content, **options)
    return [np.asarray(v) for v in exe.run(dict(inputs))]


def check(
    graph: Graph,
    *others: Graph,
    inputs: Mapping[str, np.ndarray] | None = None,
    steps: int = 1,
    tolerance: float = 2e-5,
    **options: Any,
) -> list[np.ndarray]:
    """Compare with the interpreter: floats to a tolerance, integers with a scale to one step."""
    content = model(graph, *others)
    given = random_inputs(graph) if inputs is None else dict(inputs)
    expected = reference(content, given)
    made = computed(content, given, **options)
    compare(graph, made, expected, steps, tolerance)
    return made


def compare(
    graph: Graph,
    made: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    steps: int,
    tolerance: float,
) -> None:
    assert len(made) == len(expected)
    for k, a, b in zip(graph.outputs, made, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
        elif graph.tensors[k].scale is not None:
            difference = np.abs(a.astype("int64") - b.astype("int64")).max(initial=0)
            assert difference <= steps, f"{difference} steps"
        else:
            np.testing.assert_array_equal(a, b)
