# SPDX-License-Identifier: Apache-2.0
"""Converters of classical machine learning on numbers (domain ai.onnx.ml)."""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    cut_columns,
    dims_of,
    known_width,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.indices import checked_indices
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import product_of
from treadle.ops import elementwise, indexing, movement
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
    ndim, count = node.type(0).ndim, product_of(node.dims(1))
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
    if len(values) not in (1, known_width(node.input(0))):
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
    if not given or len(given) not in (1, known_width(x)):
        raise ModelError(f"the imputed values of Imputer do not fit {node.type(0)}")
    is_missing: Node = elementwise.equal(x, scalar_like(wanted, x))
    if is_float and np.isnan(wanted):
        is_missing = elementwise.isnan(x)
    fill = Constant.of(np.array(given, dt.to_numpy(node.type(0).dtype)))
    return elementwise.where(is_missing, fill, x)


@converter("LabelEncoder", since=(2, 4), domain=DOMAIN)
def label_encoder(node: OnnxNode) -> Node:
    """Convert a table from numbers to numbers, with a default for those it lacks."""
    keys, values = _listed(node, "keys"), _listed(node, "values")
    if keys.shape != values.shape or keys.ndim != 1 or not keys.size:
        raise ModelError(f"LabelEncoder has {keys.size} keys and {values.size} values")
    default = _default(node, values)
    x = reshaped(node.input(0), (*node.dims(0), 1))
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


@converter("OneHotEncoder", since=(1,), domain=DOMAIN)
def one_hot_encoder(node: OnnxNode) -> Node:
    """Convert numbers to rows that are 1 where the category is theirs; new ones give zeros."""
    if node.texts("cats_strings"):
        raise ModelError(f"{node.op} with strings is not supported")
    categories = np.array(node.integers("cats_int64s") or (), "int64")
    if not categories.size:
        raise ModelError(f"{node.op} has no categories")
    if not node.flag("zeros", default=True):
        raise ModelError(
            f"{node.op} that refuses unknown categories is not supported",
            hint="export it so that they give zeros (zeros=1, handle_unknown='ignore')",
        )
    x = node.input(0)
    whole = converted(x, "int64") if dt.is_float(node.type(0).dtype) else x
    apart = reshaped(converted(whole, "int64"), (*dims_of(x), 1))
    return converted(elementwise.equal(apart, Constant.of(categories)), "float32")


@converter("FeatureVectorizer", since=(1,), domain=DOMAIN)
def feature_vectorizer(node: OnnxNode) -> Node:
    """Convert columns side by side: so many of each input as listed, zeros where it has fewer."""
    widths = node.integers("inputdimensions") or ()
    if len(widths) != len(node.inputs) or min(widths, default=0) < 0:
        raise ModelError(f"{len(widths)} inputdimensions do not fit {len(node.inputs)} inputs")
    columns = [_columns(node, k, width) for k, width in enumerate(widths)]
    return movement.concat(*columns, axis=1) if len(columns) > 1 else columns[0]


def _columns(node: OnnxNode, index: int, width: int) -> Node:
    """Return rows of an input, in float32, with `width` columns of which it may have fewer."""
    x = converted(node.input(index), "float32")
    if node.type(index).ndim not in (1, 2):
        raise ModelError(f"{node.op} takes vectors and rows of features, not {node.type(index)}")
    if node.type(index).ndim == 1:
        x = reshaped(x, (*dims_of(x), 1))
    has = known_width(x)
    if width <= has:
        return cut_columns(x, 0, width)
    return movement.concat(x, broadcast(scalar_like(0, x), (dims_of(x)[0], width - has)), axis=1)


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
