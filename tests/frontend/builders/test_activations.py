# SPDX-License-Identifier: Apache-2.0
"""Activations by name: their defaults, their clipping, and names that are not known."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.errors import ModelError
from treadle.frontend.builders.activations import activation, parameters_of, swish
from treadle.graph.interpret import evaluate
from treadle.graph.nodes import Constant, Function

pytestmark = pytest.mark.tiny

X = np.linspace(-3, 3, 7, dtype="float32")


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (activation("ScaledTanh", 2.0, 0.5), 2 * np.tanh(X / 2)),
        (activation("affine", beta=1.0), X + 1),
        (activation("LeakyRelu"), np.where(X < 0, X * 0.01, X)),
        (activation("HardSigmoid"), np.clip(0.2 * X + 0.5, 0, 1)),
        (activation("tanh", clip=1.5), np.tanh(np.clip(X, -1.5, 1.5))),
        (lambda x: swish(x, 2.0), X / (1 + np.exp(-2 * X))),
    ],
)
def test_values(made: object, wanted: np.ndarray) -> None:
    assert callable(made)
    found = evaluate(Function((), made(Constant.of(X))), [])
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_a_parameter_of_0_is_not_the_default() -> None:
    found = evaluate(Function((), activation("LeakyRelu", 0.0)(Constant.of(X))), [])
    np.testing.assert_array_equal(found, np.maximum(X, 0))


def test_names_and_parameters() -> None:
    assert parameters_of("RELU") == (None, None)
    assert parameters_of("HardSigmoid") == (0.2, 0.5)
    with pytest.raises(ModelError, match="'Sigmoyd' is not defined") as error:
        activation("Sigmoyd")
    assert error.value.hint == "did you mean 'sigmoid'?"
