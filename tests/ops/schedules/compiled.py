# SPDX-License-Identifier: Apache-2.0
"""Compiles one operator with its default schedule: to run it here, or to look at its texts.

`check` runs it on this machine and holds the result against the reference; `kernel_of` gives the
texts for a written target.
"""

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
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS

assert treadle.ops


def check(
    name: str,
    *shapes: tuple[int, ...],
    dtype: str = "float32",
    rtol: float = 1e-5,
    atol: float = 1e-5,
    chunks: int = 3,
    given: Mapping[int, np.ndarray] | None = None,
    choice: Choice = DEFAULTS,
    **attrs: object,
) -> None:
    """Run an operator on this machine, on random inputs but those `given` by position."""
    op = OPERATORS.get(name)
    assert op is not None
    example = Example(
        shapes, attrs, (dtype,) * len(shapes), inputs=given or {}, rtol=rtol, atol=atol
    )
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    expected = reference_of(op, call, inputs)
    outputs = [np.zeros(e.shape, e.dtype) for e in expected]
    kernel = Kernel(function_of(call), native(), choice)
    lowered = kernel.lowered
    arrays = [np.array(x, order="C") for x in inputs] + outputs
    run(lowered, arrays, env=pool_of(chunks, []), workspace=lowered.workspace_bytes)
    for a, b in zip(outputs, expected, strict=True):
        assert_close(a, b, example)


def kernel_of(
    target: Target,
    name: str,
    *shapes: tuple[int, ...],
    given: Mapping[int, np.ndarray] | None = None,
    choice: Choice = DEFAULTS,
    **attrs: object,
) -> Kernel:
    """Return an operator's kernel of float32 operands, but those `given`, for a target."""
    op = OPERATORS.get(name)
    assert op is not None
    example = Example(shapes, attrs, ("float32",) * len(shapes), inputs=given or {})
    return Kernel(function_of(call_of(op, example, inputs_of(example))), target, choice)
