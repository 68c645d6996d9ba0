# SPDX-License-Identifier: Apache-2.0
"""Normalisations against onnxruntime, their accuracy, stages and error texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ops.oracle import check_operator, run_onnx_node, te_result
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Call, Var
from treadle.graph.types import TensorType
from treadle.ops import norm


def variable(*shape: object, dtype: str = "float32") -> Var:
    return Var("x", TensorType(shape, dtype))  # type: ignore[arg-type]


def random(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(low, high, shape).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_softmax_is_what_onnxruntime_computes(kind: str, axis: int) -> None:
    x = random(3, 5, 70, low=-9, high=9)
    expected = run_onnx_node(kind, [x], {"axis": axis})
    op = norm.softmax if kind == "Softmax" else norm.log_softmax
    check_operator(op, [x], {"axis": axis}, expected=expected, rtol=4e-6, atol=4e-6)


@pytest.mark.parametrize("n", [2, 100, 1000, 50257])
def test_softmax_rows_add_up_to_one(n: int) -> None:
    x = np.random.default_rng(n).normal(0, 3, (2, n)).astype(np.float32)
    found = te_result(norm.softmax, norm.SoftmaxAttrs(1), [x]).astype(np.float64)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(found, norm.softmax.reference(norm.SoftmaxAttrs(1), x), rtol=4e-6)


def test_softmax_of_large_values_does_not_overflow() -> None:
    x = np.float32([[1e4, 1e4, -1e4], [-1e4, 0, 1e4], [3e38, -3e38, 0]])
    found = te_result(norm.softmax, norm.SoftmaxAttrs(1), [x])
    assert found.tolist() == [[0.5, 0.5, 0], [0, 0, 1], [1, 0, 0]]
    found = te_result(norm.log_softmax, norm.SoftmaxAttrs(1), [x[:2]])
    half = -np.log(np.float32(2))
    np.testing.assert_allclose(
        found, [[half, half, half - 2e4], [-2e4, -1e4, 0]], rtol=1e-6, atol=1e-6
    )


def test_batch_norm_is_what_onnxruntime_computes() -> None:
    x, variance = random(2, 3, 4, 5), random(3, low=0.1, high=4.0)
    inputs = [x, random(3), random(3) + 1, random(3) - 1, variance]
    expected = run_onnx_node("BatchNormalization", [*inputs], {"epsilon": 1e-3})
    check_operator(norm.batch_norm, inputs, {"epsilon": 1e-3}, expected=expected, atol=2e-6)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_layer_norm_is_what_onnxruntime_computes(axis: int) -> None:
    x = random(2, 3, 4, 96)
    inputs = [x, random(*x.shape[axis:]), random(*x.shape[axis:])]
    expected = run_onnx_node("LayerNormalization", [*inputs], {"axis": axis, "epsilon": 1e-6})
    attrs: dict[str, object] = {"axis": axis, "epsilon": 1e-6}
    check_operator(norm.layer_norm, inputs, attrs, expected=expected, atol=2e-6)


def test_layer_norm_of_a_large_mean_is_accurate() -> None:
    x = np.random.default_rng(0).normal(1e3, 1, (4, 768)).astype(np.float32)
    one, zero = np.ones(768, np.float32), np.zeros(768, np.float32)
    found = te_result(norm.layer_norm, norm.LayerNormAttrs(1), [x, one, zero])
    wide = x.astype(np.float64)
    exact = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    assert np.abs(found - exact).max() <= 2e-4
    centred = te_result(norm.layer_norm, norm.LayerNormAttrs(1), [x - 1000, one, zero])
    assert np.abs(centred - exact).max() <= 2e-6 * np.abs(exact).max()


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 2, 300), (2, 2, 3, 4, 5), (1, 4, 40, 60)])
def test_instance_norm_is_what_onnxruntime_computes(shape: tuple[int, ...]) -> None:
    inputs = [random(*shape), random(shape[1]), random(shape[1])]
    expected = run_onnx_node("InstanceNormalization", [*inputs], {"epsilon": 1e-4})
    attrs: dict[str, object] = {"epsilon": 1e-4}
    check_operator(norm.instance_norm, inputs, attrs, expected=expected, atol=3e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("beta", [0.75, 0.5, 1.0, 0.6])
def test_lrn_is_what_onnxruntime_computes(size: int, beta: float) -> None:
    attrs: dict[str, object] = {"size": size, "alpha": 0.3, "beta": beta, "bias": 1.5}
    x = random(2, 7, 3, 4)
    # onnxruntime only takes odd sizes; the definition of ONNX is the oracle for even ones.
    expected = run_onnx_node("LRN", [x], attrs) if size % 2 else _lrn(x, size, beta)
    check_operator(norm.lrn, [x], attrs, expected=expected, rtol=2e-6, atol=1e-6)


def _lrn(x: np.ndarray, size: int, beta: float) -> np.ndarray:
    y = np.zeros_like(x)
    for c in range(x.shape[1]):
        lo, hi = max(0, c - (size - 1) // 2), min(x.shape[1] - 1, c + size // 2)
        total = np.sum(x[:, lo : hi + 1] ** 2, 1)
        y[:, c] = x[:, c] / (1.5 + 0.3 / size * total) ** beta
    return y


def test_stages_come_in_order_with_the_result_last() -> None:
    assert norm.softmax.compute is not None
    stages = norm.softmax.compute(norm.SoftmaxAttrs(1), te.placeholder((4, 10), name="x"))
    assert isinstance(stages, list)
    assert [s.name.removeprefix("softmax") for s in stages] == [
        *(".max", ".exp", ".sum", ".share", "")
    ]
    made: set[te.Tensor] = set()
    for s in stages:
        assert all(t in made or isinstance(t.op, te.PlaceholderOp) for t in s.op.input_tensors)
        made.add(s)


def test_symbolic_batches_pass_through() -> None:
    n = Symbol("n")
    call = norm.layer_norm(variable(n, 7), variable(7), variable(7), axis=1)
    assert str(call.type) == "float32[n, 7]"
    assert str(norm.softmax(variable(n, 7), axis=1).type) == "float32[n, 7]"


ERRORS: dict[str, Callable[[], Call]] = {
    "axis 2 is out of range": lambda: norm.softmax(variable(2, 3), axis=2),
    "a scalar has no axes": lambda: norm.softmax(variable(), axis=0),
    "the input has element type int32": lambda: norm.log_softmax(
        variable(2, dtype="int32"), axis=0
    ),
    "the mean is float32\\[4\\], the input float32\\[1, 3\\] has 3": lambda: norm.batch_norm(
        variable(1, 3), variable(3), variable(3), variable(4), variable(3)
    ),
    "the scale float32\\[3\\] does not broadcast to axes 1 and up": lambda: norm.layer_norm(
        variable(2, 1), variable(3), variable(1), axis=1
    ),
    "the bias float32\\[2, 3\\] does not broadcast": lambda: norm.layer_norm(
        variable(2, 3), variable(3), variable(2, 3), axis=1
    ),
    "instance_norm takes \\[batch, channels, spatial...\\]": lambda: norm.instance_norm(
        variable(2, 3), variable(3), variable(3)
    ),
    "lrn with size=0 takes": lambda: norm.lrn(variable(1, 3, 2), size=0),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_what_is_wrong(text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        ERRORS[text]()
