# SPDX-License-Identifier: Apache-2.0
"""Every operator for GPUs: each example as launches with text, and what all their threads make."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from tests import loop_threads
from tests.gpus import H100, OPENCL
from tests.ops.test_operators import (
    EXAMPLES,
    assert_close,
    call_of,
    each_example,
    function_of,
    inputs_of,
    reference_of,
)
from treadle.build.kernel import Kernel
from treadle.build.launches import launches_of
from treadle.graph.operator import Example, Operator
from treadle.lower.bind_loops import bind_loops
from treadle.target.gpu_text import emit

MOST_ELEMENTS = 200
"""Operands and results of an example that the interpreter runs have so many elements at most."""

ELSEWHERE = frozenset(
    {"bitcast", "cast", "strassen_blocks", "strassen_blocks_nchwc", "walk_trees", "widen"}
)
"""They convert or look at bits, which the interpreter does otherwise than the targets."""


@each_example
def test_each_example_is_launches(op: Operator[Any], example: Example) -> None:
    if op.compute is None:
        pytest.skip(f"{op.name} has no compute")
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    kernel = Kernel(function_of(call), H100)
    lowered, launches = kernel.lowered, launches_of(kernel.lowered)
    text = kernel.source()
    assert launches or not any(r.size for r in reference_of(op, call, inputs))
    assert text.count("__global__ void") == len(launches)
    assert all(f" {launch.symbol}(" in text for launch in launches)
    assert all(prod(launch.block) <= 1024 for launch in launches)
    assert emit(lowered, OPENCL).count("__kernel ") == len(launches)


def smallest() -> list[tuple[Operator[Any], Example]]:
    """Return the first small example of each operator."""
    found: dict[str, tuple[Operator[Any], Example]] = {}
    for op, _, example in EXAMPLES:
        if op.compute is None or op.name in ELSEWHERE or op.name in found:
            continue
        if sum(map(prod, example.shapes)) <= MOST_ELEMENTS:
            found[op.name] = op, example
    return list(found.values())


@pytest.mark.parametrize(
    ("op", "example"), [pytest.param(op, e, id=op.name) for op, e in smallest()]
)
def test_threads_make_the_reference(op: Operator[Any], example: Example) -> None:
    inputs = inputs_of(example)
    call = call_of(op, example, inputs)
    expected = reference_of(op, call, inputs)
    outputs = [np.zeros(e.shape, e.dtype) for e in expected]
    func = bind_loops(Kernel(function_of(call), H100).loops)
    loop_threads.run(func, [*(np.array(x, order="C") for x in inputs), *outputs])
    for a, b in zip(outputs, expected, strict=True):
        assert_close(a, b, example)
