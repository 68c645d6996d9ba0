# SPDX-License-Identifier: Apache-2.0
"""What the tests of functions by builders share: their values by the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from treadle.graph.interpret import evaluate
from treadle.graph.nodes import Function, Node, Var
from treadle.graph.types import TensorType

Unary = Callable[[Node], Node]
Cases = Mapping[str, tuple[Unary, dict[float, float]]]
"""Functions by name, with values that they have at some places."""


def values_of(function: Unary, x: np.ndarray) -> np.ndarray:
    """Return the values of a function of a node at the elements of an array."""
    v = Var("x", TensorType(x.shape, x.dtype.name), "x")
    return np.asarray(evaluate(Function((v,), function(v)), [x]))


def check_values(function: Unary, points: Mapping[float, float]) -> None:
    """Assert values to nearly all digits of float64."""
    found = values_of(function, np.array(list(points)))
    np.testing.assert_allclose(found, list(points.values()), rtol=1e-12, atol=1e-13)
