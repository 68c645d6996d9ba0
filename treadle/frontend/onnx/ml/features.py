# SPDX-License-Identifier: Apache-2.0
"""Converters of classical machine learning on numbers (domain ai.onnx.ml)."""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, reshaped, scalar_like, shape_of
from treadle.frontend.builders.indices import checked_indices
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise, indexing, matmul, norm
from treadle.ops import reduce as reductions

DOMAIN = "ai.onnx.ml"


@converter("Binarizer", since=(1,), domain=DOMAIN)
def binarizer(node: OnnxNode) -> Node:
    """Convert 1 above a threshold, 0 else."""
    x = node.input(0)
    above = elementwise.greater(x, scalar_like(node.number("threshold", 0.0), x))
    return converted(above, node.type(0).dtype)


@converter("ArrayFeatureExtractor", since=(1,), domain=DOMAIN)
def feature_extractor(node: OnnxNode) -> Node:
    """Convert a choice of entries of the last axis."""
    ndim, count = node.type(0).ndim, int(np.prod(node.shape(1), dtype=object))
    data = node.input(0)
    places = checked_indices(data, reshaped(node.input(1), (count,)), ndim - 1, op=node.op)
    taken: Node = indexing.gather(data, places, axis=ndim - 1)
    return reshaped(taken, (1, count)) if ndim == 1 else taken


@converter("Scaler", since=(1,), domain=DOMAIN)
def scaler(node: OnnxNode) -> Node:
    """Convert (x - offset) * scale, one of each or one per feature."""
    x = converted(node.input(0), "float32")
    offset, scale = node.numbers("offset"), node.numbers("scale")
    if offset:
        x = elementwise.subtract(x, _features(node, offset, "offset"))
    return elementwise.multiply(x, _features(node, scale, "scale")) if scale else x


def _features(node: OnnxNode, values: tuple[float, ...], what: str) -> Constant:
    if len(values) not in (1, node.shape(0)[-1]):
        raise ModelError(f"{len(values)} values of {what} do not fit {node.type(0)}")
    return Constant.of(np.array(values, "float32"))


@converter("Normalizer", since=(1,), domain=DOMAIN)
def normalizer(node: OnnxNode) -> Node:
    """Convert rows divided by their largest value, or their first or second norm."""
    x, kind = converted(node.input(0), "float32"), node.text("norm", "MAX")
    last = (node.type(0).ndim - 1,)
    if kind == "MAX":
        size: Node = reductions.max_(x, axes=last, keepdims=True)
    elif kind == "L1":
        size = reductions.sum_(elementwise.abs(x), axes=last, keepdims=True)
    elif kind == "L2":
        square = reductions.sum_(elementwise.multiply(x, x), axes=last, keepdims=True)
        size = elementwise.sqrt(square)
    else:
        raise ModelError(f"the norm of Normalizer is {kind!r}, not MAX, L1 or L2")
    zero = scalar_like(0, size)
    return elementwise.divide(
        x, elementwise.where(elementwise.equal(size, zero), scalar_like(1, size), size)
    )


@converter("Imputer", since=(1,), domain=DOMAIN)
def imputer(node: OnnxNode) -> Node:
    """Convert the replacement of a value that stands for a missing one (NaN where it is NaN)."""
    x, is_float = node.input(0), dt.is_float(node.type(0).dtype)
    if is_float:
        given = node.numbers("imputed_value_floats")
        wanted = node.number("replaced_value_float", 0.0)
    else:
        given = node.integers("imputed_value_int64s")
        wanted = node.integer("replaced_value_int64", 0)
    if not given or len(given) not in (1, node.shape(0)[-1]):
        raise ModelError(f"the imputed values of Imputer do not fit {node.type(0)}")
    is_missing: Node = elementwise.equal(x, scalar_like(wanted, x))
    if is_float and np.isnan(wanted):
        is_missing = elementwise.isnan(x)
    fill = Constant.of(np.array(given, dt.to_numpy(node.type(0).dtype)))
    return elementwise.where(is_missing, fill, x)


@converter("LinearRegressor", since=(1,), domain=DOMAIN)
def linear_regressor(node: OnnxNode) -> Node:
    """Convert x W' + b."""
    targets, weights = node.integer("targets", 1), node.numbers("coefficients") or ()
    width = node.shape(0)[-1]
    if len(weights) != targets * width:
        raise ModelError(f"{len(weights)} coefficients do not fit {targets} targets of {width}")
    table = np.ascontiguousarray(np.array(weights, "float32").reshape(targets, width).T)
    made: Node = matmul.matmul(converted(node.input(0), "float32"), Constant.of(table))
    shift = node.numbers("intercepts")
    if shift:
        made = elementwise.add(made, Constant.of(np.array(shift, "float32")))
    return transformed(made, node.text("post_transform", "NONE"))


def transformed(scores: Node, kind: str) -> Node:
    """Return scores [n, targets] after the `post_transform` of a model of this domain."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return elementwise.sigmoid(scores)
    if kind == "SOFTMAX":
        return norm.softmax(scores, axis=len(shape_of(scores)) - 1)
    raise ModelError(f"the post_transform {kind} is not supported")


@converter("LabelEncoder", since=(2, 4), domain=DOMAIN)
def label_encoder(node: OnnxNode) -> Node:
    """Convert a table from numbers to numbers, with a default for those it lacks."""
    keys, values = _listed(node, "keys"), _listed(node, "values")
    if keys.shape != values.shape or keys.ndim != 1 or not keys.size:
        raise ModelError(f"LabelEncoder has {keys.size} keys and {values.size} values")
    default = _default(node, values)
    x = reshaped(node.input(0), (*node.shape(0), 1))
    if keys.dtype.name != node.type(0).dtype:
        raise ModelError(f"LabelEncoder has keys of {keys.dtype} for {node.type(0)}")
    hits: Node = elementwise.equal(x, Constant.of(keys))
    if keys.dtype.kind == "f" and bool(np.isnan(keys).any()):
        both = elementwise.logical_and(elementwise.isnan(x), Constant.of(np.isnan(keys)))
        hits = elementwise.logical_or(hits, both)
    order = np.arange(1, keys.size + 1)  # the last of equal keys counts
    numbers = elementwise.multiply(converted(hits, "int64"), Constant.of(order))
    place = reductions.max_(numbers, axes=(node.type(0).ndim,))
    return indexing.gather(Constant.of(np.concatenate([default, values])), place, axis=0)


_KINDS = {"floats": "float32", "int64s": "int64"}


def _listed(node: OnnxNode, what: str) -> np.ndarray:
    if node.texts(f"{what}_strings") is not None:
        raise ModelError(f"{node.op} with strings is not supported")
    tensor = node.tensor(f"{what}_tensor")
    if tensor is not None:
        return tensor
    floats, integers = node.numbers(f"{what}_floats"), node.integers(f"{what}_int64s")
    if floats is not None:
        return np.array(floats, _KINDS["floats"])
    return np.array(integers or (), _KINDS["int64s"])


def _default(node: OnnxNode, values: np.ndarray) -> np.ndarray:
    node.without_effect("default_string")
    tensor = node.tensor("default_tensor")
    number, integer = node.number("default_float", -0.0), node.integer("default_int64", -1)
    given = number if values.dtype.kind == "f" else integer
    return np.array([given], values.dtype) if tensor is None else tensor.reshape(1)
