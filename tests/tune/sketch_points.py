# SPDX-License-Identifier: Apache-2.0
"""Candidates of sketches, run as machine code beside their reference."""

from __future__ import annotations

import numpy as np

from tests.ops.test_operators import assert_close, call_of, function_of, inputs_of, reference_of
from tests.target.kernel import native, pool_of, run
from treadle.build.kernel import Kernel
from treadle.graph.operator import Example, Operator
from treadle.tune.sketch import SketchPoint, SketchSpace


def check_example(op: Operator, example: Example, count: int, seed: int = 0) -> list[SketchPoint]:  # type: ignore[type-arg]  # any attributes
    """Run points of an operator's space; return those of which a step was refused."""
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    function = function_of(call)
    space = SketchSpace.of_function(function, native())
    expected = reference_of(op, call, inputs)
    refused = []
    for point in space.sample(count, np.random.default_rng(seed)):
        choice = space.choice(point)
        if choice is None:
            refused.append(point)
            continue
        lowered = Kernel(function, native(), choice).lowered
        outputs = [np.zeros(e.shape, e.dtype) for e in expected]
        arrays = [np.array(x, order="C") for x in inputs] + outputs
        scratch = lowered.workspace_bytes
        run(lowered, arrays, env=pool_of(3, []), target=native(), workspace=scratch)
        for a, b in zip(outputs, expected, strict=True):
            assert_close(a, b, example)
    return refused
