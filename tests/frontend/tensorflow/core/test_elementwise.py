# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.frontend.tensorflow.models import Graph, Kind
from tests.frontend.tensorflow.oracle import check

RANDOM = np.random.default_rng(0)
A = RANDOM.uniform(0.3, 2.0, (3, 4)).astype("float32")
B = RANDOM.uniform(-2.0, 2.0, (4,)).astype("float32")
M, J = np.array([[7, -7], [5, -5]], "int32"), np.array([2, -3], "int32")
ERFC = np.vectorize(math.erfc)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "Abs": np.abs, "Neg": np.negative, "Exp": np.exp, "Expm1": np.expm1, "Log": np.log,
    "Log1p": np.log1p, "Sqrt": np.sqrt, "Rsqrt": lambda x: 1 / np.sqrt(x), "Square": np.square,
    "Reciprocal": np.reciprocal, "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Atan": np.arctan,
    "Sinh": np.sinh, "Cosh": np.cosh, "Asinh": np.arcsinh, "Erf": lambda x: 1 - ERFC(x),
    "Erfc": ERFC, "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Rint": np.rint,
    "Sign": np.sign, "Tanh": np.tanh, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x: np.log1p(np.exp(x)), "Softsign": lambda x: x / (1 + np.abs(x)),
    "Relu": lambda x: np.maximum(x, 0), "Relu6": lambda x: np.clip(x, 0, 6),
    "Elu": lambda x: np.where(x > 0, x, np.expm1(x)), "IsNan": np.isnan, "IsInf": np.isinf,
    "IsFinite": np.isfinite, "ZerosLike": np.zeros_like, "OnesLike": np.ones_like,
    "StopGradient": lambda x: x, "Identity": lambda x: x,
}  # fmt: skip

PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply, "RealDiv": np.divide,
    "Maximum": np.maximum, "Minimum": np.minimum, "FloorDiv": np.floor_divide, "FloorMod": np.mod,
    "SquaredDifference": lambda a, b: (a - b) ** 2, "Atan2": np.arctan2, "Less": np.less,
    "LessEqual": np.less_equal, "Greater": np.greater, "GreaterEqual": np.greater_equal,
    "Equal": np.equal, "NotEqual": np.not_equal, "Pow": np.power,
    "TruncateMod": np.fmod,
}  # fmt: skip


def test_functions(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", A.shape)
    outputs = [g.node(op, x, T=Kind("float32")) for op in FUNCTIONS]
    check(g, tmp_path, {"x": A}, outputs, *(f(A) for f in FUNCTIONS.values()))


def test_pairs_broadcast(tmp_path: Path) -> None:
    g = Graph()
    a, b = g.input("a", A.shape), g.input("b", B.shape)
    outputs = [g.node(op, a, b, T=Kind("float32")) for op in PAIRS]
    expected = [f(A, B) for f in PAIRS.values()]
    check(g, tmp_path, {"a": A, "b": B}, outputs, *expected, tolerance=1e-4)


def test_integers_round_as_they_do(tmp_path: Path) -> None:
    g = Graph()
    a, b = g.input("a", M.shape, "int32"), g.input("b", J.shape, "int32")
    ops = ("FloorDiv", "FloorMod", "Maximum", "Mul", "TruncateMod")
    outputs = [g.node(op, a, b, T=Kind("int32")) for op in ops]
    check(g, tmp_path, {"a": M, "b": J}, outputs, *(PAIRS[op](M, J) for op in ops))


def test_divisions_by_zero_that_are_zero(tmp_path: Path) -> None:
    a, b = np.array([1, 0, 3], "float32"), np.array([0, 0, 2], "float32")
    g = Graph()
    x, y = g.input("a", (3,)), g.input("b", (3,))
    ops = ("DivNoNan", "MulNoNan", "Xdivy")
    outputs = [g.node(op, x, y, T=Kind("float32")) for op in ops[:2]]
    outputs.append(g.node("Xdivy", y, y, T=Kind("float32")))
    expected = [[0, 0, 1.5], [0, 0, 6], [0, 0, 1]]
    check(g, tmp_path, {"a": a, "b": b}, outputs, *expected)


def test_choices_limits_and_types(tmp_path: Path) -> None:
    rows = np.array([True, False, True])
    g = Graph()
    a, rows_in = g.input("a", A.shape), g.input("rows", (3,), "bool")
    zeros = g.node("ZerosLike", a, T=Kind("float32"))
    outputs = [
        g.node("Select", rows_in, a, zeros, T=Kind("float32")),
        g.node("LeakyRelu", g.node("Neg", a, T=Kind("float32")), T=Kind("float32"), alpha=0.1),
        g.node("ClipByValue", a, g.constant(0.5), g.constant(1.0), T=Kind("float32")),
        g.node("Cast", a, SrcT=Kind("float32"), DstT=Kind("int32")),
        g.node("AddN", a, a, a, T=Kind("float32"), N=3),
        g.node("L2Loss", a, T=Kind("float32")),
    ]
    expected = [np.where(rows[:, None], A, 0), -0.1 * A, np.clip(A, 0.5, 1), A.astype("int32"),
                3 * A, (A * A).sum() / 2]  # fmt: skip
    check(g, tmp_path, {"a": A, "rows": rows}, outputs, *expected)
