# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators against onnxruntime and NumPy, their types and their error texts."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as onnx_types

from tests.ops.oracle import run_onnx_node, te_result
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Var
from treadle.graph.operator import OPERATORS
from treadle.graph.types import TensorType
from treadle.ops import activation
from treadle.ops import elementwise as e

BOOL = onnx_types.BOOL
UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh",
    "atan": "Atan", "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf",
    "exp": "Exp", "floor": "Floor", "hard_swish": "HardSwish", "isnan": "IsNaN", "log": "Log",
    "mish": "Mish", "negative": "Neg", "reciprocal": "Reciprocal", "relu": "Relu",
    "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh",
    "softplus": "Softplus", "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip
WITH_ATTRS = [
    ("leaky_relu", "LeakyRelu", {"alpha": 0.3}, {"alpha": 0.3}),
    ("elu", "Elu", {"alpha": 0.7}, {"alpha": 0.7}),
    ("selu", "Selu", {}, {}),
    ("selu", "Selu", {"alpha": 1.5, "gamma": 0.9}, {"alpha": 1.5, "gamma": 0.9}),
    ("celu", "Celu", {"alpha": 2.0}, {"alpha": 2.0}),
    ("gelu", "Gelu", {}, {}),
    ("gelu", "Gelu", {"approximate": "tanh"}, {"approximate": "tanh"}),
    ("hard_sigmoid", "HardSigmoid", {}, {}),
    ("hard_sigmoid", "HardSigmoid", {"alpha": 0.5, "beta": 0.25}, {"alpha": 0.5, "beta": 0.25}),
    ("thresholded_relu", "ThresholdedRelu", {"alpha": 0.5}, {"alpha": 0.5}),
    ("isinf", "IsInf", {"detect_negative": False}, {"detect_negative": 0}),
    ("isinf", "IsInf", {"detect_positive": False}, {"detect_positive": 0}),
]
GRID = np.concatenate([np.linspace(-9, 9, 361), [0.0, -0.0, np.inf, -np.inf, np.nan]])
GRID = GRID.astype(np.float32)
PAIRS = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow",
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
    "greater_equal": "GreaterOrEqual", "prelu": "PRelu",
}  # fmt: skip


def variable(*shape: object, dtype: str = "float32") -> Var:
    return Var("x", TensorType(shape, dtype))  # type: ignore[arg-type]


def onnx(kind: str, arrays: list[np.ndarray], attrs: dict[str, object]) -> np.ndarray:
    """Return onnxruntime's result; the type of tests and comparisons is bool."""
    tests = ("IsNaN", "IsInf", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    return run_onnx_node(kind, [*arrays], attrs, result_type=BOOL if kind in tests else None)


def run(name: str, *arrays: np.ndarray, **attrs: object) -> tuple[np.ndarray, np.ndarray]:
    """Return what the reference and the te compute of an operator give."""
    operator = OPERATORS.get(name)
    assert operator is not None
    record = operator.make_attrs(attrs)
    return operator.reference(record, *arrays), te_result(operator, record, list(arrays))


def agree(
    name: str, arrays: list[np.ndarray], expected: np.ndarray, attrs: dict[str, object], tol: float
) -> None:
    for found in run(name, *arrays, **attrs):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=tol, atol=tol)


@pytest.mark.parametrize("name", UNARY)
def test_unary_is_what_onnxruntime_computes(name: str) -> None:
    agree(name, [GRID], onnx(UNARY[name], [GRID], {}), {}, 2e-6)


@pytest.mark.parametrize(("name", "kind", "attrs", "onnx_attrs"), WITH_ATTRS)
def test_attributes_are_what_onnxruntime_takes(
    name: str, kind: str, attrs: dict[str, object], onnx_attrs: dict[str, object]
) -> None:
    x = np.float32([np.nan, -np.inf, np.inf, *GRID[100:-5]])
    if name == "gelu":  # onnxruntime gives NaN or not for infinities by its version
        x = x[3:]
    agree(name, [x], onnx(kind, [x], onnx_attrs), attrs, 2e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_what_onnxruntime_computes(name: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(0.1, 4, (3, 4, 5)).astype(np.float32)
    y = rng.uniform(-2, 2, (4, 1)).astype(np.float32)
    agree(name, [x, y], onnx(PAIRS[name], [x, y], {}), {}, 2e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("fmod", [False, True])
def test_integer_mod_is_what_onnxruntime_computes(dtype: type, fmod: bool) -> None:
    x = np.arange(-7, 8).reshape(-1, 1).astype(dtype)
    y = np.array([1, 2, 3, 7, -1, -2, -3, -7]).astype(dtype)
    agree("mod", [x, y], run_onnx_node("Mod", [x, y], {"fmod": int(fmod)}), {"fmod": fmod}, 0)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize("side", ["left", "right"])
def test_shifts_are_what_onnxruntime_computes(dtype: type, side: str) -> None:
    x = np.array([0, 1, 3, 200, 255], dtype).reshape(-1, 1)
    y = np.array([0, 1, 5, 7], dtype)
    expected = run_onnx_node("BitShift", [x, y], {"direction": side.upper()})
    agree(f"shift_{side}", [x, y], expected, {}, 0)


def test_integer_division_never_traps() -> None:
    low = np.iinfo(np.int32).min
    x = np.array([7, -7, low, low, 5, 0], np.int32)
    y = np.array([-2, 2, -1, 0, 0, 0], np.int32)
    for found in run("divide", x, y):
        assert found.tolist() == [-3, -3, low, 0, 0, 0]
    for fmod, expected in ((False, [-1, 1, 0, 0, 0, 0]), (True, [1, -1, 0, 0, 0, 0])):
        for found in run("mod", x, y, fmod=fmod):
            assert found.tolist() == expected


def test_wide_shifts_leave_zeros_or_the_sign() -> None:
    x = np.array([5, -5, 5, -5, 5], np.int8)
    y = np.array([8, 8, 100, -1, -1], np.int8)
    for found in run("shift_left", x, y):
        assert found.tolist() == [0, 0, 0, 0, 0]
    for found in run("shift_right", x, y):
        assert found.tolist() == [0, -1, 0, -1, 0]


def test_integer_powers() -> None:
    x = np.array([2, -2, 3, 0, 1, -1, -1, 2, 7], np.int32)
    y = np.array([10, 3, 40, 0, -3, -3, -4, -1, 1], np.int32)
    wrapped = (3**40 + 2**31) % 2**32 - 2**31
    for found in run("power", x, y):
        assert found.tolist() == [1024, -8, wrapped, 1, 1, -1, 1, 0, 7]


def test_a_power_keeps_the_type_of_its_base() -> None:
    assert str(e.power(variable(2, dtype="int32"), variable(dtype="float32")).type) == "int32[2]"
    for found in run("power", np.array([4, 9], np.int32), np.array(0.5, np.float32)):
        assert found.tolist() == [2, 3]


@pytest.mark.parametrize("name", ["relu", "sign", "clip", "floor", "round", "abs", "tanh"])
def test_nan_stays_nan(name: str) -> None:
    attrs = {"min": 0.0, "max": 6.0} if name == "clip" else {}
    for found in run(name, np.float32([np.nan]), **attrs):
        assert np.isnan(found).all()


def test_round_goes_to_even() -> None:
    for found in run("round", np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 1e30])):
        assert found.tolist() == [0, 2, 2, -0.0, -2, np.float32(1e30)]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-3.0, 300.0, [0, 5, 255]),
        (4.5, None, [5, 5, 255]),
        (None, 4.5, [0, 4, 4]),
        (300.0, None, [255, 255, 255]),
        (None, -1.0, [0, 0, 0]),
        (9.0, 7.0, [7, 7, 7]),
        (-math.inf, math.inf, [0, 5, 255]),
    ],
)
def test_clip_of_integers(low: float | None, high: float | None, expected: list[int]) -> None:
    for found in run("clip", np.array([0, 5, 255], np.uint8), min=low, max=high):
        assert found.tolist() == expected


def test_clip_of_large_integers_is_exact() -> None:
    bound = 2**62 + 1
    for found in run("clip", np.array([2**62, 2**62 + 3], np.int64), min=bound):
        assert found.tolist() == [bound, 2**62 + 3]


def test_casts_saturate_and_truncate() -> None:
    x = np.float32([1.9, -1.9, 300, -300, np.nan, np.inf, -np.inf])
    for found in run("cast", x, dtype="int8"):
        assert found.tolist() == [1, -1, 127, -128, 0, 127, -128]
    for found in run("cast", x, dtype="uint64"):
        assert found.tolist() == [1, 0, 300, 0, 0, 2**64 - 1, 0]
    for found in run("cast", np.array([300, -1], np.int32), dtype="uint8"):
        assert found.tolist() == [44, 255]
    for found in run("cast", np.float32([0, 0.1, np.nan]), dtype="bool"):
        assert found.tolist() == [False, True, True]


def test_half_types_round_once() -> None:
    x = np.linspace(-6, 6, 997).astype(ml_dtypes.bfloat16)
    exact = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64) * 1.0))
    found = run("multiply", x, run("sigmoid", x)[0])[1].astype(np.float64)
    gelu = run("gelu", x, approximate="tanh")[1].astype(np.float64)
    wide = run("gelu", x.astype(np.float64), approximate="tanh")[0]
    assert np.max(np.abs(gelu - wide) / np.maximum(np.abs(wide), 1e-30)) <= 2**-8
    assert np.max(np.abs(found - exact) / np.maximum(np.abs(exact), 1e-30)) > 2**-8


@pytest.mark.parametrize(
    ("name", "bound"), [("gelu", 5e-7), ("mish", 5e-7), ("elu", 5e-7), ("selu", 8e-7)]
)
def test_activations_are_accurate(name: str, bound: float) -> None:
    x = np.linspace(-30, 30, 20001).astype(np.float32)
    wide = run(name, x.astype(np.float64))[0]
    error = np.abs(run(name, x)[1] - wide) / np.maximum(1, np.abs(x))
    assert error.max() <= bound


def test_softplus_is_accurate_at_both_ends() -> None:
    x = np.linspace(-80, 80, 20001).astype(np.float32)
    wide = np.logaddexp(0, x.astype(np.float64))
    assert np.max(np.abs(run("softplus", x)[1] - wide) / wide) <= 4 * 2**-23


def test_symbolic_dimensions_pass_through() -> None:
    n = Symbol("n")
    assert e.relu(variable(n, 3)).type.shape[0] is n  # type: ignore[union-attr]
    found = e.add(variable(n, 3), variable(1, 3)).type
    assert str(found) == "float32[n, 3]"


ERRORS = {
    "the input has element type int32": lambda: e.exp(variable(2, dtype="int32")),
    "different element types: float32, float64": lambda: e.add(
        variable(2), variable(2, dtype="float64")
    ),
    "do not broadcast: 2 against 3": lambda: e.add(variable(2), variable(3)),
    "the input has element type bool": lambda: e.less(
        variable(dtype="bool"), variable(dtype="bool")
    ),
    "the condition has element type int32": lambda: e.where(
        variable(dtype="int32"), variable(), variable()
    ),
    "the slope float32\\[2, 3\\] does not broadcast": lambda: activation.prelu(
        variable(3), variable(2, 3)
    ),
    "'float33' is not an element type": lambda: e.cast(variable(2), dtype="float33"),
    "has no attribute 'beta'": lambda: activation.elu(variable(2), beta=1.0),
    "operator shift_left, node n7": lambda: e.shift_left(variable(2), variable(2), origin="n7"),
    "'fast' is not an approximation": lambda: activation.gelu(variable(2), approximate="fast"),
    "alpha is 0": lambda: activation.celu(variable(2), alpha=0.0),
    "a bound is NaN": lambda: e.clip(variable(2), min=math.nan),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_what_is_wrong(text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        ERRORS[text]()
