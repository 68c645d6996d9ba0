# SPDX-License-Identifier: Apache-2.0
"""What models of classical machine learning have in common: labels and scores of classes."""

from __future__ import annotations

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of, scalar_like
from treadle.frontend.builders.error_functions import ndtri
from treadle.frontend.onnx.node import OnnxNode
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise, indexing, movement, norm
from treadle.ops import reduce as reductions

_NEAR_ZERO = 1e-7
"""The magnitude up to which SOFTMAX_ZERO takes a score for 0 (onnx.reference)."""


def transformed(scores: Node, kind: str) -> Node:
    """Return scores [n, targets] after the `post_transform` of a model of domain ai.onnx.ml.

    SOFTMAX_ZERO leaves what is 0 at 0; rows of zeros are 0.5 throughout, as in onnx.reference.
    """
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return elementwise.sigmoid(scores)
    if kind == "SOFTMAX":
        return norm.softmax(scores, axis=len(dims_of(scores)) - 1)
    if kind == "SOFTMAX_ZERO":
        return _softmax_of_others(scores)
    if kind == "PROBIT":
        return ndtri(scores)
    raise ModelError(f"the post_transform {kind!r} is not one of the standard's")


def _softmax_of_others(scores: Node) -> Node:
    size: Node = elementwise.abs(scores)
    is_zero = elementwise.less_equal(size, scalar_like(_NEAR_ZERO, size))
    largest = reductions.max_(scores, axes=(len(dims_of(scores)) - 1,), keepdims=True)
    powers: Node = elementwise.exp(elementwise.subtract(scores, largest))
    powers = elementwise.where(is_zero, elementwise.multiply(scores, powers), powers)
    whole: Node = reductions.sum_(powers, axes=(len(dims_of(scores)) - 1,), keepdims=True)
    nothing = elementwise.equal(whole, scalar_like(0, whole))
    safe = elementwise.where(nothing, scalar_like(1, whole), whole)
    return elementwise.where(nothing, scalar_like(0.5, powers), elementwise.divide(powers, safe))


def both_signs(score: Node) -> Node:
    """Return [-score, score], the scores of two classes, for one of the second [n, 1]."""
    return movement.concat(elementwise.negative(score), score, axis=1)


def refuse_text_labels(node: OnnxNode) -> None:
    """Raise ModelError where the labels of the classes are text."""
    if node.texts("classlabels_strings"):
        raise ModelError(
            f"{node.op} with strings is not supported",
            hint="export the model with numbers as the labels of its classes",
        )


def class_labels(node: OnnxNode) -> np.ndarray:
    """Return the labels of the classes as int64. Raises ModelError where they are text or none."""
    refuse_text_labels(node)
    labels = np.array(node.integers("classlabels_ints") or (), "int64")
    if not labels.size:
        raise ModelError(f"{node.op} lacks its attribute 'classlabels_ints'")
    return labels


def looked_up(table: np.ndarray, at: Node) -> Node:
    """Return the rows of a table at the given places."""
    return indexing.gather(Constant.of(np.ascontiguousarray(table)), at, axis=0)


def best_labels(labels: np.ndarray, scores: Node) -> Node:
    """Return the label of the largest score of each row [n, classes], the first of equal ones."""
    return looked_up(labels, reductions.argmax(scores, axis=1, keepdims=False))
