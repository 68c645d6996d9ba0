# SPDX-License-Identifier: Apache-2.0
"""Converters of linear models (domain ai.onnx.ml)."""

from __future__ import annotations

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of, known_width, reshaped, scalar_like
from treadle.frontend.onnx.ml.features import DOMAIN
from treadle.frontend.onnx.ml.scores import best_labels, both_signs, class_labels, transformed
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise, matmul


@converter("LinearRegressor", since=(1,), domain=DOMAIN)
def linear_regressor(node: OnnxNode) -> Node:
    """Convert x W' + b."""
    scores = _scores(node, rows_of(node), node.integer("targets", 1), "targets")
    return converted(transformed(scores, node.text("post_transform", "NONE")), "float32")


@converter("LinearClassifier", since=(1,), domain=DOMAIN)
def linear_classifier(node: OnnxNode) -> list[Node]:
    """Convert the class of each row of features and the scores x W' + b of all classes.

    Where one score decides between two classes it is that of the second, and the first has its
    negative (onnx.reference; onnxruntime says 1 - score where no function is applied).
    """
    node.without_effect("multi_class")
    labels, weights = class_labels(node), node.numbers("coefficients") or ()
    x, kind = rows_of(node), node.text("post_transform", "NONE")
    is_one = labels.size == 2 and len(weights) == known_width(x)
    scores = _scores(node, x, 1 if is_one else labels.size, "classes")
    if is_one:
        scores = both_signs(scores)
    return [best_labels(labels, scores), converted(transformed(scores, kind), "float32")]


def rows_of(node: OnnxNode) -> Node:
    """Return the rows of features of a model as floats; a vector is one row."""
    x = node.input(0)
    if node.type(0).ndim not in (1, 2):
        raise ModelError(f"{node.op} takes rows of features, not {node.type(0)}")
    if node.type(0).dtype != "float64":
        x = converted(x, "float32")
    return x if node.type(0).ndim == 2 else reshaped(x, (1, *dims_of(x)))


def _scores(node: OnnxNode, x: Node, count: int, what: str) -> Node:
    width, weights = known_width(x), node.numbers("coefficients") or ()
    if len(weights) != count * width:
        raise ModelError(
            f"{len(weights)} coefficients of {node.op} do not fit {count} {what} of {width} "
            "features"
        )
    made = weighted(x, np.array(weights).reshape(count, width))
    shift = node.numbers("intercepts") or ()
    if not shift:
        return made
    if len(shift) not in (1, count):
        raise ModelError(f"{len(shift)} intercepts of {node.op} do not fit {count} {what}")
    return elementwise.add(made, Constant.of(np.array(shift, float_of(x))))


def float_of(x: Node) -> np.dtype[np.generic]:
    """Return the type in which rows of features are computed."""
    return scalar_like(0, x).value.dtype


def weighted(x: Node, weights: np.ndarray) -> Node:
    """Return x W', for weights [targets, features], in the type of the rows."""
    return matmul.matmul(x, Constant.of(np.ascontiguousarray(weights.T.astype(float_of(x)))))
