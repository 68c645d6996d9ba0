# SPDX-License-Identifier: Apache-2.0
"""Activation functions, element by element, that are no plain function of mathematics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import Type, broadcast_shapes, may_agree
from treadle.ops.elementwise import vectorize
from treadle.ops.elementwise_factory import (
    broadcast_size,
    compute_of,
    unary,
)
from treadle.ops.numeric import (
    NUMBERS,
    Attributes,
    check_elements,
    check_same_elements,
    half_examples,
    numpy_reference,
)


def _mish(a: Attributes, x: Expr) -> Expr:
    # tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2); beyond 20 the quotient is 1 in every type.
    e = te.exp(te.min(x, 20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


softplus = unary("softplus", lambda a, x: te.softplus(x), lambda a, x: np.logaddexp(0.0, x))
softsign = unary("softsign", lambda a, x: x / (te.abs(x) + 1.0), lambda a, x: x / (1.0 + np.abs(x)))
mish = unary("mish", _mish, lambda a, x: x * np.tanh(np.logaddexp(0.0, x)))
hard_swish = unary(
    "hard_swish",
    lambda a, x: x * te.max(te.min(x * (1 / 6) + 0.5, 1.0), 0.0),
    lambda a, x: x * np.clip(x / 6 + 0.5, 0.0, 1.0),
)


@dataclass(frozen=True, slots=True)
class AlphaAttrs(Attrs):
    """One factor."""

    alpha: float = 1.0


@dataclass(frozen=True, slots=True)
class LeakyReluAttrs(Attrs):
    """The slope below zero."""

    alpha: float = 0.01


@dataclass(frozen=True, slots=True)
class SeluAttrs(Attrs):
    """Factors that keep mean 0 and variance 1 through deep networks."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875


@dataclass(frozen=True, slots=True)
class GeluAttrs(Attrs):
    """ "none" is x * P(normal < x); "tanh" its approximation."""

    approximate: Literal["none", "tanh"] = "none"


@dataclass(frozen=True, slots=True)
class HardSigmoidAttrs(Attrs):
    """Clips alpha * x + beta to [0, 1]."""

    alpha: float = 0.2
    beta: float = 0.5


def _check_gelu(a: GeluAttrs) -> None:
    if a.approximate not in ("none", "tanh"):
        raise TypeMismatch(f"{a.approximate!r} is not an approximation of gelu: none, tanh")


_erfc = vectorize(math.erfc)
_TANH_GELU = 2.0 * math.sqrt(2.0 / math.pi)
"""Twice the factor of the argument: 1 + tanh(a) is 2 / (1 + exp(-2 a))."""


def _gelu(a: GeluAttrs, x: Expr) -> Expr:
    if a.approximate == "none":
        return x * te.normal_cdf(x)
    # (1 + tanh(u)) / 2 = sigmoid(2 u), without the cancellation of the left side.
    return x * te.sigmoid((x + x * x * x * 0.044715) * _TANH_GELU)


def _numpy_gelu(a: GeluAttrs, x: np.ndarray) -> np.ndarray:
    if a.approximate == "none":
        return np.asarray(0.5 * x * _erfc(-x * math.sqrt(0.5)))
    return np.asarray(x / (1.0 + np.exp(-(x + 0.044715 * x**3) * _TANH_GELU)))


def _select(condition: Expr, then: Expr, other: Expr | float) -> Expr:
    return nodes.select(condition, then, other)


leaky_relu = unary(
    "leaky_relu",
    lambda a, x: _select(x < 0, x * a.alpha, x),
    lambda a, x: np.where(x < 0, x * a.alpha, x),
    attrs_type=LeakyReluAttrs,
    variety=({}, {"alpha": 0.3}),
)
elu = unary(
    "elu",
    lambda a, x: _select(x < 0, te.expm1(x) * a.alpha, x),
    lambda a, x: np.where(x < 0, np.expm1(x) * a.alpha, x),
    attrs_type=AlphaAttrs,
    variety=({}, {"alpha": 0.7}),
)
selu = unary(
    "selu",
    lambda a, x: _select(x <= 0, te.expm1(x) * a.alpha, x) * a.gamma,
    lambda a, x: np.where(x <= 0, np.expm1(x) * a.alpha, x) * a.gamma,
    attrs_type=SeluAttrs,
    variety=({}, {"alpha": 1.5, "gamma": 0.9}),
)


def _check_celu(a: AlphaAttrs) -> None:
    if a.alpha == 0:
        raise TypeMismatch("alpha is 0, and celu divides by it")


celu = unary(
    "celu",
    lambda a, x: _select(x < 0, te.expm1(x / a.alpha) * a.alpha, x),
    lambda a, x: np.where(x < 0, np.expm1(x / a.alpha) * a.alpha, x),
    attrs_type=AlphaAttrs,
    variety=({}, {"alpha": 2.0}),
    check=_check_celu,
)
gelu = unary(
    "gelu",
    _gelu,
    _numpy_gelu,
    attrs_type=GeluAttrs,
    variety=({}, {"approximate": "tanh"}),
    check=_check_gelu,
)
hard_sigmoid = unary(
    "hard_sigmoid",
    lambda a, x: te.max(te.min(x * a.alpha + a.beta, 1.0), 0.0),
    lambda a, x: np.clip(x * a.alpha + a.beta, 0.0, 1.0),
    attrs_type=HardSigmoidAttrs,
    variety=({}, {"alpha": 0.5, "beta": 0.25}),
)
thresholded_relu = unary(
    "thresholded_relu",
    lambda a, x: _select(x > a.alpha, x, 0.0),
    lambda a, x: np.where(x > a.alpha, x, 0.0),
    attrs_type=AlphaAttrs,
    variety=({}, {"alpha": -0.5}),
)


def _infer_prelu(a: Attrs, x: Type, slope: Type) -> Type:
    data, factor = check_elements(x, NUMBERS), check_elements(slope, NUMBERS, "the slope")
    check_same_elements(data, factor)
    whole = broadcast_shapes(data.shape, factor.shape)
    if len(whole) != data.ndim or not all(map(may_agree, whole, data.shape)):
        raise TypeMismatch(f"the slope {factor} does not broadcast to the input {data}")
    return data


prelu: Operator[Attrs] = register(
    Operator(
        name="prelu",
        infer=_infer_prelu,
        reference=numpy_reference(lambda a, x, slope: np.where(x < 0, x * slope, x)),
        compute=compute_of("prelu", lambda a, x, slope: _select(x < 0, x * slope, x)),
        fusion=Fusion.BROADCAST,
        keeps_finite=True,
        examples=(
            Example(((2, 3, 4, 5), (3, 1, 1))),
            Example(((2, 3), (1,))),
            Example(((), ())),
            Example(((2, 3), (3,)), {}, ("int32", "int32"), -5, 5),
            *half_examples(((2, 3, 4), (3, 1))),
        ),
        flops=broadcast_size,
    )
)
