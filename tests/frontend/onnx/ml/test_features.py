# SPDX-License-Identifier: Apache-2.0
"""Classical machine learning on numbers, against onnxruntime; trees and n-grams at their edges."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import treadle
from tests.frontend.onnx.ml.models import model_of
from tests.frontend.onnx.models import check_with_onnxruntime, outputs_of
from treadle.errors import ModelError

RNG = np.random.default_rng(5)
DOMAIN = "ai.onnx.ml"


def _model(
    kind: str, x: np.ndarray, domain: str = DOMAIN, version: int = 3, **attributes: object
) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], ["y"], domain=domain, **attributes)],
        "one",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [onnx.ValueInfoProto(name="y")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _check(kind: str, x: np.ndarray, **attributes: object) -> None:
    check_with_onnxruntime(_model(kind, x, **attributes), {"x": x})


def _floats(*shape: int) -> np.ndarray:
    return RNG.uniform(-2, 2, shape).astype("float32")


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = np.abs(_floats(3, 5))
    x[1] = 0
    _check("Normalizer", x, norm=norm)


def test_scaler_imputer_and_binarizer() -> None:
    x = _floats(4, 3)
    _check("Scaler", x, offset=[0.5, 1.0, -1.0], scale=[2.0, 0.5, 1.0])
    _check("Binarizer", x, threshold=0.25)
    x[1, 2] = np.nan
    _check("Imputer", x, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    whole = np.array([[1, 7, 3]], "int64")
    _check("Imputer", whole, imputed_value_int64s=[5], replaced_value_int64=7)


def test_categories_are_rows_with_a_one() -> None:
    x = np.array([[1, 3], [2, 7]], "int64")
    _check("OneHotEncoder", x, cats_int64s=[1, 2, 3], zeros=1)
    _check("OneHotEncoder", np.array([1.5, 3, 9], "float32"), cats_int64s=[1, 2, 3], zeros=1)
    with pytest.raises(ModelError, match="unknown categories"):
        outputs_of(_model("OneHotEncoder", x, cats_int64s=[1, 2], zeros=0), {"x": x})


def test_columns_of_several_inputs() -> None:
    """An input may give fewer columns than it has, or more, which are zeros (onnx.reference)."""
    values = {"a": _floats(4, 3), "b": _floats(4, 2), "c": _floats(4)}
    node = helper.make_node(
        "FeatureVectorizer", list(values), ["y"], domain=DOMAIN, inputdimensions=[2, 4, 1]
    )
    given = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in values.items()
    ]
    graph = helper.make_graph([node], "one", given, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    (got,) = outputs_of(helper.make_model(graph, opset_imports=opsets, ir_version=10), values)
    want = [values["a"][:, :2], values["b"], np.zeros((4, 2)), values["c"][:, None]]
    np.testing.assert_array_equal(got, np.concatenate(want, axis=1))


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Scaler", {"offset": [0.5, 1.0, -1.0], "scale": [2.0, 0.5, 1.0]}),
        ("Normalizer", {"norm": "L2"}),
        ("Binarizer", {"threshold": 0.1}),
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "intercepts": [0.5]}),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": 0.0}),
        ("LabelEncoder", {"keys_floats": [0.0, 1.0], "values_int64s": [4, 5]}),
    ],
)
def test_however_many_rows(kind: str, attributes: dict[str, object]) -> None:
    x = np.array([[0, 1, -2], [0.5, 3, 0]], "float32")
    executable = treadle.compile(model_of(kind, x, is_open=True, **attributes), dynamic=True)
    for rows in (x, x[:1], np.tile(x, (3, 1))):
        want = outputs_of(_model(kind, rows, **attributes), {"x": rows})
        got = executable.run({"x": rows})
        np.testing.assert_array_equal(np.asarray(got[0]), want[0])


def test_label_encoder_of_numbers() -> None:
    x = np.array([[3, 9], [4, -1]], "int64")
    _check("LabelEncoder", x, keys_int64s=[3, 4, 9], values_floats=[0.5, 1.5, 2.5])
    _check("LabelEncoder", x, keys_int64s=[3, 4], values_int64s=[7, 8], default_int64=6)
    y = np.array([1.0, np.nan, 2.0], "float32")
    made = {"keys_floats": [1.0, float("nan")], "values_floats": [3.0, 4.0], "default_float": 9.0}
    check_with_onnxruntime(_model("LabelEncoder", y, version=4, **made), {"x": y})


def test_strings_are_refused() -> None:
    x = np.zeros(1, "int64")
    model = _model("LabelEncoder", x, keys_int64s=[1], values_strings=["a"])
    with pytest.raises(ModelError, match=r"LabelEncoder with strings is not supported"):
        outputs_of(model, {"x": x})


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 2])
def test_ngrams(mode: str, skips: int) -> None:
    x = RNG.integers(0, 4, (3, 9)).astype("int32")
    pool = [0, 1, 3, 0, 1, 1, 2, 3, 0, 1, 2, 0]  # three 1-grams, three 2-grams, one 3-gram
    model = _model(
        "TfIdfVectorizer",
        x,
        domain="",
        mode=mode,
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=skips,
        ngram_counts=[0, 3, 9],
        ngram_indexes=[0, 1, 5, 2, 3, 4, 7],
        pool_int64s=pool,
        weights=[0.5, 1.0, 2.0, 3.0, 1.5, 1.0, 1.0],
    )
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    check_with_onnxruntime(model, {"x": x})


def _tensor(values: list[float], number: int = TensorProto.FLOAT) -> onnx.TensorProto:
    return helper.make_tensor("t", number, (len(values),), values)


@pytest.mark.parametrize("aggregate", range(4))
def test_trees(aggregate: int) -> None:
    """Two trees of two levels with every way to compare, and values that are missing."""
    x = _floats(40, 3)
    x[::7, 0] = np.nan
    model = _model(
        "TreeEnsemble",
        x,
        version=5,
        n_targets=2,
        aggregate_function=aggregate,
        tree_roots=[0, 3],
        nodes_featureids=[0, 1, 2, 0, 2, 1],
        nodes_splits=_tensor([0.1, -0.2, 0.3, 0.5, -0.5, 0.0]),
        nodes_modes=_tensor([0, 1, 2, 3, 4, 5], TensorProto.UINT8),
        nodes_truenodeids=[1, 0, 2, 4, 0, 2],
        nodes_trueleafs=[0, 1, 1, 0, 1, 1],
        nodes_falsenodeids=[2, 1, 3, 5, 1, 3],
        nodes_falseleafs=[0, 1, 1, 0, 1, 1],
        nodes_missing_value_tracks_true=[1, 0, 0, 0, 0, 0],
        leaf_targetids=[0, 1, 0, 1],
        leaf_weights=_tensor([1.0, 2.0, -3.0, 4.0]),
    )
    check_with_onnxruntime(model, {"x": x})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_deep_trees(dtype: str) -> None:
    """A tree of nine levels with sets and missing values below the levels that are all tested."""
    levels = 9
    inner = np.arange(levels)
    x = RNG.integers(-2, 6, (200, 3)).astype(dtype)
    x[::9, 1] = np.nan
    number = TensorProto.DOUBLE if dtype == "float64" else TensorProto.FLOAT
    sets = [0.0, 2.0, np.nan, -1.0, 3.0, 5.0, np.nan, 1.0, np.nan]
    model = _model(
        "TreeEnsemble",
        x,
        version=5,
        n_targets=1,
        aggregate_function=1,
        tree_roots=[0],
        nodes_featureids=(inner % 3).tolist(),
        nodes_splits=_tensor([0.0, 4.0, 2.0, -1.0, 0.0, 1.0, 0.0, 3.0, 2.0], number),
        nodes_modes=_tensor([6, 1, 0, 3, 6, 4, 6, 5, 2], TensorProto.UINT8),
        nodes_truenodeids=[*(inner[1:].tolist()), levels],
        nodes_trueleafs=[0] * (levels - 1) + [1],
        nodes_falsenodeids=inner.tolist(),
        nodes_falseleafs=[1] * levels,
        nodes_missing_value_tracks_true=[1] * levels,
        leaf_targetids=[0] * (levels + 1),
        leaf_weights=_tensor([float(2**k) for k in range(levels + 1)], number),
        membership_values=_tensor(sets, number),
    )
    check_with_onnxruntime(model, {"x": x})
