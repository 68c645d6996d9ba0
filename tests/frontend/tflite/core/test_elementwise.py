# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators against the reference interpreter: reals, integers, quantised ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.tflite.models import Graph, Scale
from tests.frontend.tflite.oracle import check

pytestmark = pytest.mark.tflite

RANDOM = np.random.default_rng(0)
POSITIVE = {"LOG", "SQRT", "RSQRT"}
FUNCTIONS = (
    "ABS", "NEG", "EXP", "LOG", "SQRT", "RSQRT", "SQUARE", "SIN", "COS", "FLOOR", "CEIL", "ROUND",
    "SIGN", "TANH", "LOGISTIC", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "HARD_SWISH",
)  # fmt: skip


def values(*shape: int) -> np.ndarray:
    return RANDOM.uniform(-4, 4, shape).astype("float32")


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions(op: str) -> None:
    g = Graph()
    made = g.op(op, (g.input("x", (3, 5)),), (3, 5))
    x = values(3, 5)
    check(g.result(made), inputs={"x": np.abs(x) if op in POSITIVE else x})


@pytest.mark.parametrize(
    "op", ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"]
)
@pytest.mark.parametrize("other", [(2, 3, 4, 5), (5,), (1, 3, 1, 5), ()])
def test_pairs(op: str, other: tuple[int, ...]) -> None:
    g = Graph()
    a, b = g.input("a", (2, 3, 4, 5)), g.input("b", other)
    check(g.result(g.op(op, (a, b), (2, 3, 4, 5), options={})))


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
def test_fused_activation(op: str) -> None:
    g = Graph()
    a, b = g.input("a", (4, 5)), g.input("b", (4, 5))
    check(g.result(g.op(op, (a, b), (4, 5), options={"fused_activation_function": 1})))


@pytest.mark.parametrize("op", ["POW", "FLOOR_DIV", "FLOOR_MOD", "ATAN2"])
def test_pairs_with_rules_of_their_own(op: str) -> None:
    g = Graph()
    a, b = g.input("a", (4, 6)), g.input("b", (4, 6))
    x, y = values(4, 6), values(4, 6)
    x, y = (
        (np.abs(x), y) if op == "POW" else (x, np.where(np.abs(y) < 0.5, 1.5, y).astype("float32"))
    )
    check(g.result(g.op(op, (a, b), (4, 6))), inputs={"a": x, "b": y})


def test_angles_on_the_axes() -> None:
    g = Graph()
    y, x = g.input("y", (5,)), g.input("x", (5,))
    given = {
        "y": np.array([0, 0, 1, -1, 2], "float32"),
        "x": np.array([1, -1, 0, 0, -2], "float32"),
    }
    check(g.result(g.op("ATAN2", (y, x), (5,))), inputs=given)


@pytest.mark.parametrize("op", ["FLOOR_DIV", "FLOOR_MOD", "ADD", "MUL"])
def test_integers(op: str) -> None:
    g = Graph()
    a, b = g.input("a", (40,), "int32"), g.input("b", (40,), "int32")
    x, y = RANDOM.integers(-20, 20, 40), RANDOM.integers(1, 6, 40) * RANDOM.choice([-1, 1], 40)
    given = {"a": x.astype("int32"), "b": y.astype("int32")}
    check(
        g.result(g.op(op, (a, b), (40,), "int32", options={} if op in ("ADD", "MUL") else None)),
        inputs=given,
    )


@pytest.mark.parametrize(
    "op", ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"]
)
def test_comparisons(op: str) -> None:
    g = Graph()
    a, b = g.input("a", (3, 4), "int32"), g.input("b", (4,), "int32")
    given = {"a": RANDOM.integers(0, 3, (3, 4), "int32"), "b": RANDOM.integers(0, 3, 4, "int32")}
    check(g.result(g.op(op, (a, b), (3, 4), "bool")), inputs=given)


def test_logic() -> None:
    g = Graph()
    a, b = g.input("a", (20,), "bool"), g.input("b", (20,), "bool")
    both = g.op("LOGICAL_AND", (a, b), (20,), "bool")
    either = g.op("LOGICAL_OR", (a, b), (20,), "bool")
    check(g.result(both, either, g.op("LOGICAL_NOT", (a,), (20,), "bool")))


@pytest.mark.parametrize("op", ["BITWISE_XOR", "RIGHT_SHIFT"])
def test_bits(op: str) -> None:
    g = Graph()
    a, b = g.input("a", (20,), "int32"), g.input("b", (20,), "int32")
    given = {"a": RANDOM.integers(-500, 500, 20, "int32"), "b": RANDOM.integers(0, 8, 20, "int32")}
    check(g.result(g.op(op, (a, b), (20,), "int32")), inputs=given)


@pytest.mark.parametrize("op", ["SELECT", "SELECT_V2"])
def test_select(op: str) -> None:
    g = Graph()
    c = g.input("c", (4,) if op == "SELECT" else (4, 1), "bool")
    a, b = g.input("a", (4, 5)), g.input("b", (4, 5))
    check(g.result(g.op(op, (c, a, b), (4, 5))))


def test_sum_of_several() -> None:
    g = Graph()
    parts = [g.input(name, (3, 4)) for name in "abc"]
    check(g.result(g.op("ADD_N", parts, (3, 4))))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float32", "int32"),
        ("int32", "float32"),
        ("bool", "float32"),
        ("int64", "int32"),
        ("float32", "bool"),
        ("uint8", "float32"),
    ],
)
def test_cast(source: str, target: str) -> None:
    g = Graph()
    check(g.result(g.op("CAST", (g.input("x", (30,), source),), (30,), target, options={})))


SCALES = {"int8": (Scale(0.05, -3), Scale(0.08, 9)), "uint8": (Scale(0.05, 120), Scale(0.08, 130)),
          "int16": (Scale(0.002, 0), Scale(0.003, 0))}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "MAXIMUM"])
def test_quantised_pairs(op: str, dtype: str) -> None:
    if (op, dtype) in (("SQUARED_DIFFERENCE", "uint8"), ("SQUARED_DIFFERENCE", "int16")):
        pytest.skip("the interpreter has no such kernel")
    g = Graph()
    a = g.input("a", (4, 30), dtype, SCALES[dtype][0])
    b = g.input("b", (4, 30), dtype, SCALES[dtype][0 if op == "MAXIMUM" else 1])
    spread = (
        SCALES[dtype][0]
        if op == "MAXIMUM"
        else Scale(0.1 if dtype != "int16" else 0.004, SCALES[dtype][0].zero)
    )
    options = {} if op in ("ADD", "SUB", "MUL") else None
    if dtype == "int16" and op in ("ADD", "SUB"):
        options = {"pot_scale_int16": False}
    check(g.result(g.op(op, (a, b), (4, 30), dtype, spread, options)))


@pytest.mark.parametrize(
    "op",
    [
        "LOGISTIC",
        "TANH",
        "RELU",
        "RELU6",
        "HARD_SWISH",
        "ELU",
        "ABS",
        "SOFTMAX",
        "LEAKY_RELU",
        "EXP",
    ],
)
def test_quantised_functions(op: str) -> None:
    g = Graph()
    x = g.input("x", (2, 64), "int8", Scale(0.04, -5))
    results = {
        "LOGISTIC": Scale(1 / 256, -128),
        "SOFTMAX": Scale(1 / 256, -128),
        "TANH": Scale(1 / 128, 0),
    }
    options = {"SOFTMAX": {"beta": 1.0}, "LEAKY_RELU": {"alpha": 0.1}}.get(op)
    check(g.result(g.op(op, (x,), (2, 64), "int8", results.get(op, Scale(0.05, -8)), options)))
