# SPDX-License-Identifier: Apache-2.0
"""Symbolic padding is that of each size."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.builders.pool import average_pooled
from treadle.frontend.builders.windows import (
    padded_to_same,
    window_of,
)
from treadle.graph.interpret import run
from treadle.graph.nodes import Function, Var
from treadle.graph.types import TensorType

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 5])
def test_symbolic_padding_is_that_of_each_size(kernel: int, stride: int) -> None:
    size = SizeVar("n", "int64")
    x = Var("x", TensorType((1, 1, size), "float32"))
    plain = window_of((kernel,), strides=(stride,))
    window = padded_to_same(plain, (size,), odd_first=False)
    made = Function((x,), average_pooled(x, window), "main")
    for n in (kernel, 6, 7):
        known = padded_to_same(plain, (n,), odd_first=False)
        y = Var("x", TensorType((1, 1, n), "float32"))
        same = Function((y,), average_pooled(y, known), "main")
        data = {"x": np.arange(n, dtype="float32").reshape(1, 1, n)}
        (found,), (wanted,) = run(made, data), run(same, data)
        assert found.shape == (1, 1, -(-n // stride))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
