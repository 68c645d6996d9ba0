# SPDX-License-Identifier: Apache-2.0
"""Compiles one operator with its default schedule and holds the result against the reference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import treadle.ops  # registers the operators
from tests.ops.test_operators import (
    assert_close,
    call_of,
    function_of,
    inputs_of,
    reference_of,
)
from tests.target.kernel import native, pool_of, run
from treadle.build.kernel import Kernel
from treadle.graph.operator import OPERATORS, Example
from treadle.target.base import Target

assert treadle.ops


def check(
    name: str,
    *shapes: tuple[int, ...],
    dtype: str = "float32",
    rtol: float = 1e-5,
    atol: float = 1e-5,
    chunks: int = 3,
    given: Mapping[int, np.ndarray] | None = None,
    target: Target | None = None,
    **attrs: object,
) -> Kernel:
    """Run an operator on random inputs but those `given` by position; return its kernel."""
    op = OPERATORS.get(name)
    assert op is not None
    example = Example(
        shapes, attrs, (dtype,) * len(shapes), inputs=given or {}, rtol=rtol, atol=atol
    )
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    expected = reference_of(op, call, inputs)
    outputs = [np.zeros(e.shape, e.dtype) for e in expected]
    kernel = Kernel(function_of(call), target or native())
    lowered = kernel.lowered
    arrays = [np.array(x, order="C") for x in inputs] + outputs
    assert run(lowered, arrays, env=pool_of(chunks, []), workspace=lowered.workspace_bytes) == 0
    for a, b in zip(outputs, expected, strict=True):
        assert_close(a, b, example)
    return kernel
