# SPDX-License-Identifier: Apache-2.0
"""Default schedules of operators whose batch is only known at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle.ops  # registers the operators
from tests.ops.test_operators import function_of
from tests.target.kernel import native, run
from treadle.build.kernel import Kernel
from treadle.expr.nodes import Var as ExprVar
from treadle.graph.nodes import Var
from treadle.graph.operator import OPERATORS
from treadle.graph.types import TensorType

assert treadle.ops

CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("softmax", [(5, 197)], {"axis": 2}),
    ("mean", [(5, 7, 7)], {"axes": (2, 3)}),
    ("sum", [(3, 40)], {"axes": (1,)}),
    ("max_pool", [(3, 9, 20)], {"kernel": (3, 3), "strides": (2, 2), "pads_before": (1, 1)}),
    ("transpose", [(18, 20)], {"perm": (0, 2, 1)}),
    ("relu", [(3, 5)], {}),
]


@pytest.mark.parametrize(("name", "shapes", "attrs"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("batch", [1, 3])
def test_symbolic_batch(
    name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], batch: int
) -> None:
    op = OPERATORS.get(name)
    assert op is not None
    n = ExprVar("n")
    places = [Var(f"x{k}", TensorType((n, *s), "float32")) for k, s in enumerate(shapes)]
    call = op(*places, **attrs)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((batch, *s)).astype(np.float32) for s in shapes]
    expected = op.reference(call.attrs, *inputs)
    output = np.zeros(expected.shape, np.float32)
    lowered = Kernel(function_of(call), native()).lowered
    assert run(lowered, [*inputs, output], [batch], workspace=lowered.workspace_bytes) == 0
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
