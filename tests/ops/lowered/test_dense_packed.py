# SPDX-License-Identifier: Apache-2.0
"""Products with weights packed in panels are those with the plain weights."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.oracle import check_operator, example_arrays
from tests.optimize.cases import var
from treadle.errors import TypeMismatch
from treadle.graph.operator import Example
from treadle.ops.lowered.dense_packed import dense_packed


@pytest.mark.parametrize("example", dense_packed.examples, ids=lambda e: f"{e.shapes}{e.attrs}")
def test_dense_packed_is_matmul_with_unpacked_weights(example: Example) -> None:
    a, w = example_arrays(example)
    width = int(str(example.attrs["n"]))
    matrix = np.concatenate(list(w), axis=1)[:, :width]
    result = check_operator(dense_packed, [a, w], dict(example.attrs), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(result, np.matmul(a, matrix), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("n", [8, 17, 0])
def test_dense_packed_refuses_a_width_the_panels_do_not_have(n: int) -> None:
    with pytest.raises(TypeMismatch, match="panels of 8 columns"):
        dense_packed(var("x", 4, 5), var("x", 2, 5, 8), n=n)
