# SPDX-License-Identifier: Apache-2.0
"""Support vector machines, against onnxruntime and onnx.reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.onnx.ml.models import check_with_reference, model_of
from tests.frontend.onnx.models import check_with_onnxruntime, outputs_of
from treadle.errors import ModelError

RNG = np.random.default_rng(22)
X = RNG.normal(size=(9, 3)).astype("float32")
TWO = ("label", "scores")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")

Attributes = dict[str, object]


def _numbers(count: int) -> list[float]:
    return [float(v) for v in RNG.normal(size=count).astype("float32")]


def _classifier(sizes: list[int], kernel: str = "RBF", *, probable: bool = False) -> Attributes:
    classes, count = len(sizes), sum(sizes)
    pairs = classes * (classes - 1) // 2
    made: Attributes = {
        "coefficients": [-1.0, *_numbers((classes - 1) * count - 1)],
        "support_vectors": _numbers(3 * count),
        "vectors_per_class": sizes,
        "rho": _numbers(pairs),
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 2.0],
        "classlabels_ints": [10 * k - 10 for k in range(classes)],
    }
    return made | ({"prob_a": _numbers(pairs), "prob_b": _numbers(pairs)} if probable else {})


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sizes", [[2, 3], [1, 4, 2], [2, 0, 3, 1]])
def test_pairs_vote_for_classes(kernel: str, sizes: list[int]) -> None:
    check_with_onnxruntime(
        model_of("SVMClassifier", X, TWO, **_classifier(sizes, kernel)), {"x": X}
    )


@pytest.mark.parametrize("sizes", [[2, 3], [1, 4, 2], [2, 2, 3, 1]])
def test_probabilities_of_classes(sizes: list[int]) -> None:
    model = model_of("SVMClassifier", X, TWO, **_classifier(sizes, probable=True))
    check_with_onnxruntime(model, {"x": X})


@pytest.mark.parametrize("post", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("sizes", [[2, 3], [1, 4, 2]])
def test_functions_of_scores(post: str, sizes: list[int]) -> None:
    model = model_of("SVMClassifier", X, TWO, **_classifier(sizes), post_transform=post)
    check_with_reference(model, X)


def test_classes_without_support_vectors() -> None:
    for classes in (2, 3):
        model = model_of(
            "SVMClassifier", X, TWO, coefficients=_numbers(3 * classes), rho=_numbers(1),
            kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0],
            classlabels_ints=list(range(classes)),
        )  # fmt: skip
        label, scores = outputs_of(model, {"x": X})
        np.testing.assert_array_equal(label, scores.argmax(axis=1))
        if classes == 3:  # onnxruntime takes the last class for two with such scores
            check_with_onnxruntime(model, {"x": X})


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_regressor(kernel: str, one_class: int) -> None:
    model = model_of(
        "SVMRegressor", X, coefficients=_numbers(4), rho=_numbers(1), n_supports=4,
        support_vectors=_numbers(12), kernel_type=kernel, kernel_params=[0.5, 0.25, 3.0],
        one_class=one_class,
    )  # fmt: skip
    check_with_onnxruntime(model, {"x": X})


def test_regressor_without_support_vectors() -> None:
    model = model_of(
        "SVMRegressor", X, coefficients=_numbers(3), rho=_numbers(1), kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
    )  # fmt: skip
    check_with_onnxruntime(model, {"x": X})


def test_near_vectors_keep_their_digits() -> None:
    """|x|^2 - 2 x v + |v|^2 would lose all digits of a distance between large vectors."""
    x = (1000 + RNG.integers(0, 4, (8, 3))).astype("float32")
    attributes = {"n_supports": 2, "support_vectors": [1001.0] * 3 + [1002.0] * 3, "rho": [0.0]}
    kernel = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], "coefficients": [1.0, -2.0]}
    (got,) = outputs_of(model_of("SVMRegressor", x, **attributes, **kernel), {"x": x})
    distance = ((x[:, None].astype(float) - [[[1001.0]], [[1002.0]]][0]) ** 2).sum(axis=2)
    far = ((x.astype(float) - 1002.0) ** 2).sum(axis=1)
    want = np.exp(-0.5 * distance[:, 0]) - 2 * np.exp(-0.5 * far)
    np.testing.assert_allclose(got[:, 0], want, rtol=1e-5)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"coefficients": [1.0, -1.0]}, "2 coefficients .* 2 classes and 5 support vectors"),
        ({"coefficients": [1.0] * 5}, "no coefficients that tell its two classes apart"),
        ({"support_vectors": [1.0, 2.0]}, "2 numbers of support_vectors are not 5 rows of 3"),
        ({"rho": [1.0, 2.0]}, "2 rho .* 1 pairs"),
        ({"kernel_type": "COSINE"}, "kernel_type 'COSINE'"),
        ({"vectors_per_class": [5]}, "1 vectors_per_class do not fit 2 classes"),
        ({"prob_a": [1.0], "prob_b": [1.0, 2.0]}, "2 prob_b .* 1 pairs"),
        ({"classlabels_ints": None, "classlabels_strings": ["a", "b"]}, "strings"),
    ],
)
def test_classifiers_that_do_not_fit_are_refused(changed: Attributes, said: str) -> None:
    model = model_of("SVMClassifier", X, TWO, **(_classifier([2, 3]) | changed))
    with pytest.raises(ModelError, match=said):
        outputs_of(model, {"x": X})


def test_regressors_that_do_not_fit_are_refused() -> None:
    given: Attributes = {"coefficients": [1.0, 2.0, 3.0], "rho": [0.0], "kernel_type": "LINEAR"}
    for changed, said in (
        ({"post_transform": "LOGISTIC"}, "post_transform LOGISTIC"),
        ({"rho": []}, "lacks its attribute 'rho'"),
        ({"coefficients": [1.0]}, "1 coefficients .* 3"),
    ):
        with pytest.raises(ModelError, match=said):
            outputs_of(model_of("SVMRegressor", X, **(given | changed)), {"x": X})
