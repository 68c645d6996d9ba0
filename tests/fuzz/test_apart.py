# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from tests.fuzz import apart
from tests.fuzz.oracles import Refused

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def _double() -> list[list[np.ndarray]]:
    return apart.run_node(helper.make_node("Add", ["x", "x"], ["y"]), {"x": X}, 17)


def test_a_death_of_the_oracles_is_a_refusal_and_the_next_question_is_answered() -> None:
    _double()
    apart._process().process.kill()
    with pytest.raises(Refused, match="die or hang on Add"):
        _double()
    for found in _double():
        np.testing.assert_array_equal(found[0], X + X)


def test_oracles_that_do_not_end_are_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    _double()
    process = apart._process().process
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)  # it cannot answer, however short the question is
    monkeypatch.setattr(apart, "SECONDS", 0.1)
    with pytest.raises(Refused, match="die or hang"):
        _double()


def test_sizes_that_no_memory_holds_are_a_refusal() -> None:
    node = helper.make_node("Expand", ["x", "sizes"], ["y"])
    sizes = np.array([1 << 20, 1 << 10, 2, 2])
    with pytest.raises(Refused):
        apart.run_node(node, {"x": X, "sizes": sizes}, 17)


def test_a_reduction_of_bfloat16_is_rounded_once() -> None:
    """onnx.reference rounds the exponentials, the sum and the logarithm."""
    x = np.array([[-1.328125], [-1.453125], [-1.375], [-1.3515625]], ml_dtypes.bfloat16)
    node = helper.make_node("ReduceLogSumExp", ["x", "axes"], ["y"])
    (found,) = apart.run_node(node, {"x": x, "axes": np.zeros(0, np.int64)}, 21)[-1]
    exact = np.log(np.sum(np.exp(x.astype(np.float64))))
    assert found.dtype == ml_dtypes.bfloat16
    assert float(found.ravel()[0]) == float(ml_dtypes.bfloat16(exact))


def test_a_determinant_is_rounded_once() -> None:
    rows = np.random.default_rng(5).standard_normal((5, 5)).astype("float32") * 3
    (result,) = apart.run_node(helper.make_node("Det", ["x"], ["y"]), {"x": rows}, 20)
    exact = np.linalg.det(rows.astype("float64"))
    np.testing.assert_array_equal(result[0], exact.astype("float32"))


def test_means_of_windows_that_end_outside_have_one_oracle() -> None:
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[4], strides=[5], ceil_mode=1)
    rows = np.arange(17.0).reshape(1, 1, 17)
    (result,) = apart.run_node(node, {"x": rows.astype("float32")}, 19)
    np.testing.assert_array_equal(result[0][0, 0], [1.5, 6.5, 11.5, 15.5])
    with pytest.raises(Refused):  # onnx.reference alone knows float64, and divides by 4 at the end
        apart.run_node(node, {"x": rows}, 19)


def test_an_instance_normalization_of_nothing_has_a_result() -> None:
    """onnxruntime's kernel divides by the number of elements and ends the process."""
    node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"])
    s = np.ones(3, np.float16)
    inputs = {"x": np.zeros((1, 3, 6, 0), np.float16), "s": s, "b": s}
    assert apart.run_node(node, inputs, 17)[0][0].shape == (1, 3, 6, 0)


def test_the_integer_mean_of_nothing_has_no_oracle() -> None:
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=0)
    with pytest.raises(Refused, match="mean of nothing"):
        apart.run_again(node, {"x": np.zeros((0, 3), np.int64)}, 17)
    (mean,) = apart.run_again(node, {"x": np.ones((2, 3), np.int64)}, 17)
    np.testing.assert_array_equal(mean, [1, 1, 1])


def test_a_normalised_channel_is_rounded_once() -> None:
    """onnx.reference leaves channels out; onnxruntime's powers of large sums are imprecise."""
    x = np.random.default_rng(5).standard_normal((2, 7, 3), "float32") * np.float32(1e6)
    node = helper.make_node("LRN", ["x"], ["y"], size=3)
    (found,) = apart.run_node(node, {"x": x[..., np.newaxis]}, 17)[-1]
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0), (1, 1), (0, 0)])
    sums = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    np.testing.assert_allclose(found[..., 0], x / (1 + 1e-4 / 3 * sums) ** 0.75, rtol=2**-23)
