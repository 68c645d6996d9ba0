# SPDX-License-Identifier: Apache-2.0
"""Results that are reshapes of what a kernel writes: no copy, and the right shapes."""

from __future__ import annotations

import numpy as np

from treadle.build.compile import compile_model
from treadle.graph.nodes import Function, Module, Node, Tuple, Var
from treadle.graph.types import TensorType
from treadle.ops.elementwise import relu
from treadle.ops.reshaping import reshape

x = Var("x", TensorType((4, 6), "float32"))


def _check(results: list[Node], wanted_copies: int) -> None:
    body = results[0] if len(results) == 1 else Tuple.of(results)
    names = [f"y{i}" for i in range(len(results))]
    executable = compile_model(Module(Function((x,), body), tuple(names), "test"))
    data = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    found = executable.run([data])
    for result, value in zip(results, found, strict=True):
        shape = result.type.static_shape  # type: ignore[union-attr]
        np.testing.assert_array_equal(np.asarray(value), np.maximum(data, 0).reshape(shape))
    assert sum(step.is_copy for step in executable.memory.steps) == wanted_copies


def test_a_reshaped_result_is_written_in_place() -> None:
    _check([reshape(relu(x), shape=(2, 2, 6))], 0)


def test_a_result_and_its_reshape_are_two_buffers() -> None:
    y = relu(x)
    _check([y, reshape(y, shape=(24,))], 1)
    _check([reshape(y, shape=(24,)), y], 1)
    _check([reshape(y, shape=(24,)), reshape(y, shape=(3, 8))], 1)
