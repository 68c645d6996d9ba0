# SPDX-License-Identifier: Apache-2.0
"""Every example of every registered operator: its type, its reference and its compute agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import treadle.ops  # registers the operators
from tests.target.kernel import native, native_c, pool_of, run
from tests.te_eval import evaluate
from treadle import dtype as dt
from treadle.build.kernel import Kernel
from treadle.graph.nodes import Call, Function, Tuple, TupleItem, Var
from treadle.graph.operator import OPERATORS, Example, Operator
from treadle.graph.types import TensorType, TupleType, Type
from treadle.ops.control import refuse
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.operations import Tensor
from treadle.te.tensor import placeholder

assert treadle.ops

EXAMPLES = [(op, k, e) for op in OPERATORS.all() for k, e in enumerate(op.examples)]


def _name(op: Operator[Any], k: int, e: Example) -> str:
    shapes = ",".join("x".join(map(str, s)) or "scalar" for s in e.shapes)
    return f"{op.name}-{k}-{shapes}-{'/'.join(sorted(set(e.dtypes)))}"


each_example = pytest.mark.parametrize(
    ("op", "example"),
    [pytest.param(op, e, id=_name(op, k, e)) for op, k, e in EXAMPLES],
)


def random_array(
    shape: tuple[int, ...], dtype: str, low: float, high: float, rng: np.random.Generator
) -> np.ndarray:
    """Return random values in [low, high], as far as the type reaches."""
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    if dt.is_integer(dtype):
        lo, hi = max(int(low), int(dt.min_value(dtype))), min(int(high), int(dt.max_value(dtype)))
        return np.asarray(rng.integers(lo, hi, shape, endpoint=True)).astype(dt.to_numpy(dtype))
    return np.asarray(rng.uniform(low, high, shape)).astype(dt.to_numpy(dtype))


def inputs_of(e: Example, seed: int = 0) -> list[np.ndarray]:
    """Return the inputs of an example: given arrays, else random ones."""
    rng = np.random.default_rng(seed)
    dtypes = e.dtypes or ("float32",) * len(e.shapes)
    return [
        e.inputs[k] if k in e.inputs else random_array(shape, dtype, e.low, e.high, rng)
        for k, (shape, dtype) in enumerate(zip(e.shapes, dtypes, strict=True))
    ]


def call_of(op: Operator[Any], e: Example, inputs: Sequence[np.ndarray]) -> Call:
    """Return the operator applied to variables of the inputs' types."""
    types = [TensorType(x.shape, dt.from_numpy(x.dtype)) for x in inputs]
    return op(*(Var(f"x{k}", t) for k, t in enumerate(types)), **e.attrs)


def reference_of(op: Operator[Any], call: Call, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of the operator's NumPy reference."""
    result = op.reference(call.attrs, *inputs)
    return list(result) if isinstance(result, tuple) else [result]


def field_types(result: Type) -> list[Type]:
    """Return the types of the results, one for a tensor."""
    return list(result.fields) if isinstance(result, TupleType) else [result]


def assert_close(actual: np.ndarray, expected: np.ndarray, e: Example) -> None:
    """Compare within the example's tolerance; integers and bools exactly."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if dt.is_narrow(dt.from_numpy(expected.dtype)):
        actual, expected = actual.astype("float32"), expected.astype("float32")
        np.testing.assert_array_equal(actual, expected)
        return
    if not dt.is_float(dt.from_numpy(expected.dtype)):
        np.testing.assert_array_equal(actual, expected)
        return
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=e.rtol, atol=e.atol, equal_nan=True)


def test_every_operator_has_an_example() -> None:
    # A refusal has no result to show: computing its reference is an error.
    kernels = [op for op in OPERATORS.all() if op.control is None and op is not refuse]
    assert [op.name for op in kernels if not op.examples] == []


@each_example
def test_reference_has_the_inferred_type(op: Operator[Any], example: Example) -> None:
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    made = reference_of(op, call, inputs)
    found = [TensorType(r.shape, dt.from_numpy(r.dtype)) for r in made]
    assert found == field_types(call.type)
    assert all(isinstance(r, np.ndarray) for r in made)


def compute_of(
    op: Operator[Any], call: Call, inputs: Sequence[np.ndarray]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return placeholders and the result tensors of the operator's compute."""
    assert op.compute is not None
    places = [placeholder(x.shape, dt.from_numpy(x.dtype), f"x{k}") for k, x in enumerate(inputs)]
    made = op.compute(call.attrs, *places)
    tensors = [made] if isinstance(made, Tensor) else list(made)
    return places, tensors if isinstance(call.type, TupleType) else tensors[-1:]


@each_example
def test_compute_means_the_reference(op: Operator[Any], example: Example) -> None:
    if op.compute is None:
        pytest.skip(f"{op.name} has no compute")
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    places, results = compute_of(op, call, inputs)
    declared = [(r.dtype, tuple(map(str, r.shape))) for r in results]
    assert declared == [(t.dtype, tuple(map(str, t.shape))) for t in field_types(call.type)]
    actual = evaluate(results, dict(zip(places, inputs, strict=True)))
    for a, b in zip(actual, reference_of(op, call, inputs), strict=True):
        assert_close(a, b, example)


def function_of(call: Call) -> Function:
    """Return the fused function that is this call alone."""
    params = tuple(a for a in call.args if isinstance(a, Var))
    if not isinstance(call.type, TupleType):
        return Function(params, call, call.op.name)
    fields = (TupleItem.of(call, k) for k in range(len(call.type.fields)))
    return Function(params, Tuple.of(fields), call.op.name)


@each_example
def test_machine_code_means_the_reference(op: Operator[Any], example: Example) -> None:
    check_code(op, example, native())


@pytest.mark.slow
@each_example
def test_c_source_means_the_reference(op: Operator[Any], example: Example) -> None:
    check_code(op, example, native_c())


@pytest.mark.slow
@pytest.mark.opencl
@each_example
def test_opencl_means_the_reference(op: Operator[Any], example: Example) -> None:
    check_on_device(op, example, parse_target("opencl"))


def check_on_device(op: Operator[Any], example: Example, target: Target) -> None:
    """Compile an operator for a device and run it there beside its reference."""
    if op.compute is None:
        pytest.skip(f"{op.name} has no compute")
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    expected = reference_of(op, call, inputs)
    outputs = [np.zeros(e.shape, e.dtype) for e in expected]
    kernel = Kernel(function_of(call), target)
    kernel(*(np.array(x, order="C") for x in inputs), *outputs)
    for a, b in zip(outputs, expected, strict=True):
        assert_close(a, b, example)


def check_code(op: Operator[Any], example: Example, target: Target) -> None:
    """Compile an operator for a target and run it beside its reference."""
    if op.compute is None:
        pytest.skip(f"{op.name} has no compute")
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    expected = reference_of(op, call, inputs)
    outputs = [np.zeros(e.shape, e.dtype) for e in expected]
    lowered = Kernel(function_of(call), target).lowered
    arrays = [np.array(x, order="C") for x in inputs] + outputs
    scratch = lowered.workspace_bytes
    run(lowered, arrays, env=pool_of(3, []), target=target, workspace=scratch)
    for a, b in zip(outputs, expected, strict=True):
        assert_close(a, b, example)
