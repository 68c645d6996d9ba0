# SPDX-License-Identifier: Apache-2.0
"""What tests of operators share that only move elements: arrays, results and what is read."""

from __future__ import annotations

import numpy as np

from tests.ops.oracle import te_result
from treadle import te
from treadle.graph.nodes import Var
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType


def variable(*shape: object, dtype: str = "float32") -> Var:
    return Var("x", TensorType(shape, dtype))  # type: ignore[arg-type]


def count(*shape: int) -> np.ndarray:
    """Return an array whose elements are all different."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def run(op: Operator, *arrays: np.ndarray, **attrs: object) -> np.ndarray:  # type: ignore[type-arg]
    """Return what the te compute gives, after checking that the reference gives the same."""
    record = op.make_attrs(attrs)
    found = te_result(op, record, list(arrays))
    np.testing.assert_array_equal(found, op.reference(record, *arrays))
    return found


def reads(tensor: te.Tensor) -> str:
    """Return the body of a compute as text."""
    assert isinstance(tensor.op, te.ComputeOp)
    return str(tensor.op.body[0])
