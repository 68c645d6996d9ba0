# SPDX-License-Identifier: Apache-2.0
"""Activation functions by name, with the parameters that recurrent and fused layers give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from treadle.errors import ModelError
from treadle.frontend.builders.basic import scalar_like
from treadle.frontend.importer import did_you_mean
from treadle.graph.nodes import Node
from treadle.ops import activation as activation_ops
from treadle.ops import elementwise

Activation: TypeAlias = Callable[[Node], Node]


def _affine(x: Node, alpha: float, beta: float) -> Node:
    scaled = elementwise.multiply(x, scalar_like(alpha, x))
    return elementwise.add(scaled, scalar_like(beta, x))


def _scaled_tanh(x: Node, alpha: float, beta: float) -> Node:
    inner = elementwise.tanh(elementwise.multiply(x, scalar_like(beta, x)))
    return elementwise.multiply(inner, scalar_like(alpha, x))


_FUNCTIONS: Mapping[
    str, tuple[Callable[[Node, float, float], Node], float | None, float | None]
] = {
    "relu": (lambda x, a, b: elementwise.relu(x), None, None),
    "tanh": (lambda x, a, b: elementwise.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: elementwise.sigmoid(x), None, None),
    "softsign": (lambda x, a, b: activation_ops.softsign(x), None, None),
    "softplus": (lambda x, a, b: activation_ops.softplus(x), None, None),
    "leakyrelu": (lambda x, a, b: activation_ops.leaky_relu(x, alpha=a), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: activation_ops.thresholded_relu(x, alpha=a), 1.0, None),
    "elu": (lambda x, a, b: activation_ops.elu(x, alpha=a), 1.0, None),
    "affine": (_affine, 1.0, 0.0),
    "scaledtanh": (_scaled_tanh, 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: activation_ops.hard_sigmoid(x, alpha=a, beta=b), 0.2, 0.5),
}
"""Function, default alpha and default beta (None: it takes none), by name in lower case."""


def parameters_of(name: str) -> tuple[float | None, float | None]:
    """Return the default alpha and beta of a function, None where it takes none."""
    if name.lower() not in _FUNCTIONS:
        raise ModelError(
            f"the activation {name!r} is not defined", hint=did_you_mean(name.lower(), _FUNCTIONS)
        )
    return _FUNCTIONS[name.lower()][1:]


def activation(
    name: str, alpha: float | None = None, beta: float | None = None, clip: float = 0.0
) -> Activation:
    """Return a function by its name (of any case); `clip` above 0 bounds its argument."""
    first, second = parameters_of(name)
    function = _FUNCTIONS[name.lower()][0]
    a, b = (first if alpha is None else alpha) or 0.0, (second if beta is None else beta) or 0.0
    if clip <= 0:
        return lambda x: function(x, a, b)
    return lambda x: function(elementwise.clip(x, min=-clip, max=clip), a, b)


def swish(x: Node, alpha: float = 1.0) -> Node:
    """Return x * sigmoid(alpha * x); SiLU where alpha is 1."""
    inner: Node = x if alpha == 1.0 else elementwise.multiply(x, scalar_like(alpha, x))
    return elementwise.multiply(x, elementwise.sigmoid(inner))
