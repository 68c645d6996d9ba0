# SPDX-License-Identifier: Apache-2.0
"""Linear models, against onnxruntime and onnx.reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.onnx.ml.models import check_with_reference, model_of
from tests.frontend.onnx.models import check_with_onnxruntime, outputs_of
from treadle.errors import ModelError

RNG = np.random.default_rng(21)
X = RNG.normal(size=(7, 3)).astype("float32")
TWO = ("label", "scores")


def _numbers(count: int) -> list[float]:
    return [float(v) for v in RNG.normal(size=count).astype("float32")]


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("classes", [2, 4])
def test_classes_with_a_score_each(post: str, classes: int) -> None:
    model = model_of(
        "LinearClassifier", X, TWO, coefficients=_numbers(3 * classes), post_transform=post,
        intercepts=_numbers(classes), classlabels_ints=[7, -3, 11, 2][:classes], multi_class=1,
    )  # fmt: skip
    if post == "PROBIT":  # onnxruntime's inverse of erf is good to three digits
        with np.errstate(invalid="ignore"):
            label, _ = outputs_of(model, {"x": X})
        none = model_of("LinearClassifier", X, TWO, **_attributes(model, post_transform="NONE"))
        np.testing.assert_array_equal(label, outputs_of(none, {"x": X})[0])
    else:
        check_with_onnxruntime(model, {"x": X})


def _attributes(model, **changed: object) -> dict[str, object]:  # type: ignore[no-untyped-def]
    from onnx import helper

    own = {a.name: helper.get_attribute_value(a) for a in model.graph.node[0].attribute}
    return {name: list(v) if isinstance(v, list) else v for name, v in (own | changed).items()}


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_one_score_of_two_classes(post: str) -> None:
    model = model_of(
        "LinearClassifier", X, TWO, coefficients=_numbers(3), intercepts=_numbers(1),
        classlabels_ints=[5, 9], post_transform=post,
    )  # fmt: skip
    check_with_reference(model, X)
    if post == "LOGISTIC":
        check_with_onnxruntime(model, {"x": X})


def test_probit_is_the_inverse_of_the_normal_distribution() -> None:
    p = np.array([[0.025], [0.5], [0.975], [1.0], [0.0]], "float32")
    model = model_of("LinearRegressor", p, coefficients=[1.0], post_transform="PROBIT")
    (got,) = outputs_of(model, {"x": p})
    want = [[-1.959964], [0.0], [1.959964], [np.inf], [-np.inf]]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_rows_of_zeros_are_even_under_softmax_of_what_is_not_zero() -> None:
    x = np.array([[0, 0, 0], [2, 0, -1], [3, 1, 2]], "float32")
    model = model_of(
        "LinearRegressor", x, targets=3, coefficients=np.eye(3).ravel().tolist(),
        post_transform="SOFTMAX_ZERO",
    )  # fmt: skip
    (got,) = outputs_of(model, {"x": x})
    a, b = np.exp([0, -3]) / np.exp([0, -3]).sum(), np.exp([0, -2, -1]) / np.exp([0, -2, -1]).sum()
    np.testing.assert_allclose(got, [[0.5] * 3, [a[0], 0, a[1]], b], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32"])
def test_features_of_other_types(dtype: str) -> None:
    x = (4 * X).astype(dtype)
    model = model_of(
        "LinearClassifier", x, TWO, coefficients=_numbers(6), intercepts=_numbers(2),
        classlabels_ints=[0, 1], post_transform="LOGISTIC",
    )  # fmt: skip
    check_with_onnxruntime(model, {"x": x})


def test_several_targets_with_intercepts() -> None:
    attributes = {"targets": 2, "coefficients": _numbers(6), "intercepts": _numbers(2)}
    check_with_onnxruntime(model_of("LinearRegressor", X, **attributes), {"x": X})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"classlabels_ints": None}, "lacks its attribute 'classlabels_ints'"),
        ({"classlabels_ints": [1, 2, 3]}, "6 coefficients .* 3 classes of 3 features"),
        ({"intercepts": [1.0, 2.0, 3.0]}, "3 intercepts .* 2 classes"),
        ({"post_transform": "CUBE"}, "post_transform 'CUBE'"),
        ({"classlabels_ints": None, "classlabels_strings": ["a", "b"]}, "strings"),
    ],
)
def test_classifiers_that_do_not_fit_are_refused(changed: dict[str, object], said: str) -> None:
    given = {"coefficients": _numbers(6), "intercepts": [1.0, 2.0], "classlabels_ints": [1, 2]}
    with pytest.raises(ModelError, match=said):
        outputs_of(model_of("LinearClassifier", X, TWO, **(given | changed)), {"x": X})
