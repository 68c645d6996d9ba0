# SPDX-License-Identifier: Apache-2.0
"""Random numbers: of the right distribution, the same for a seed, others for other nodes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontend.onnx.models import make, outputs_of
from treadle.build.compile import compile_model
from treadle.errors import ModelError
from treadle.frontend.onnx.importer import import_onnx

COUNT = 20_000


def _drawn(kind: str, **attributes: object) -> np.ndarray:
    node = helper.make_node(kind, [], ["y"], shape=[COUNT // 100, 100], **attributes)
    model = make([node], {}, ["y"], 22)
    (value,) = outputs_of(model, {})
    return value


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_uniform_numbers_fill_their_interval_evenly(dtype: int) -> None:
    values = _drawn("RandomUniform", low=-1.0, high=3.0, dtype=dtype).astype("float64")
    assert values.min() >= -1
    assert values.max() <= 3
    counts, _ = np.histogram(values, 16, (-1, 3))
    expected = COUNT / 16
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi squared: 1 in 10,000 is above
    flat = values.ravel() - values.mean()
    assert abs((flat[1:] * flat[:-1]).mean() / flat.var()) < 0.03


def test_normal_numbers_have_their_moments() -> None:
    values = (_drawn("RandomNormal", mean=2.0, scale=0.5) - 2) / 0.5
    assert np.isfinite(values).all()
    for power, moment in enumerate((0, 1, 0, 3), 1):
        assert abs((values.astype("float64") ** power).mean() - moment) < 0.2 * max(moment, 0.2)


def test_a_seed_decides() -> None:
    first, again = (_drawn("RandomUniform", seed=1.0) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != _drawn("RandomUniform", seed=2.0)).mean() > 0.99


def test_nodes_draw_other_numbers_at_every_size_and_say_so() -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["a"], name="first"),
        helper.make_node("RandomNormalLike", ["x"], ["b"], name="second"),
    ]
    model = make(nodes, {"x": ["n", 8]}, ["a", "b"], 22)
    assert import_onnx(model).notes[-1:] == (
        "the random numbers of this model are the same in every run",
    )
    executable = compile_model(model, dynamic=True)
    for count in (3, 40):
        x = np.zeros((count, 8), np.float32)
        a, b = map(np.asarray, executable(x))
        assert a.shape == (count, 8)
        assert len(np.unique(np.concatenate([a, b]))) > 2 * a.size - 3
        want = outputs_of(make(nodes, {"x": [count, 8]}, ["a", "b"], 22), {"x": x})
        np.testing.assert_allclose(a, want[0], rtol=1e-5, atol=1e-6)


def test_classes_are_drawn_by_their_weights() -> None:
    weights = np.array([[0.1, 0.6, 0.3], [1.0, 0.0, 0.0]], "float32")
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=4000)
    model = make([node], {"x": [2, 3]}, [], 22)
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT32, [2, 4000]))
    with np.errstate(divide="ignore"):
        (drawn,) = outputs_of(model, {"x": np.log(weights)})
    for row, wanted in zip(drawn, weights, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 4000, wanted, atol=0.03)


def test_bernoulli_draws_with_the_probability_of_each_element() -> None:
    x = np.repeat(np.array([0.0, 0.25, 1.0], "float32"), 5000)
    model = make([helper.make_node("Bernoulli", ["x"], ["y"])], {"x": [15000]}, ["y"], 22)
    (drawn,) = outputs_of(model, {"x": x})
    shares = drawn.reshape(3, -1).mean(1)
    np.testing.assert_allclose(shares, [0, 0.25, 1], atol=0.03)


def test_a_negative_shape_is_told() -> None:
    node = helper.make_node("RandomNormal", [], ["y"], shape=[-1])
    with pytest.raises(ModelError, match="is no shape of a tensor"):
        import_onnx(make([node], {}, ["y"], 22))
