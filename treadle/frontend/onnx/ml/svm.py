# SPDX-License-Identifier: Apache-2.0
"""Converters of support vector machines (domain ai.onnx.ml)."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    cut_columns,
    dims_of,
    known_width,
    reshaped,
    scalar_like,
)
from treadle.frontend.onnx.ml.features import DOMAIN
from treadle.frontend.onnx.ml.linear import float_of, rows_of, weighted
from treadle.frontend.onnx.ml.scores import (
    best_labels,
    both_signs,
    class_labels,
    looked_up,
    transformed,
)
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import coupling, elementwise, matmul, movement
from treadle.ops import reduce as reductions

_LEAST = 1e-7
"""How near to 0 and 1 the probability of a pair may come (libsvm)."""


@converter("SVMRegressor", since=(1,), domain=DOMAIN)
def svm_regressor(node: OnnxNode) -> Node:
    """Convert the weighted sum of a row's kernels with the support vectors, plus rho.

    The sign of that, 1 or -1, for one class. `post_transform` is NONE: onnxruntime does not apply
    any other, onnx.reference refuses it.
    """
    node.without_effect("n_targets")
    x, rho = rows_of(node), _numbers(node, "rho")
    weights, count = _numbers(node, "coefficients"), node.integer("n_supports", 0)
    if (kind := node.text("post_transform", "NONE")) != "NONE":
        raise ModelError(f"{node.op} with the post_transform {kind} is not supported")
    if count:
        made = matmul.matmul(_kernels(node, x, count), _column(node, x, weights, count))
    else:
        node.without_effect("kernel_type", "kernel_params", "support_vectors")
        made = matmul.matmul(x, _column(node, x, weights, known_width(x)))
    if not rho.size:
        raise ModelError(f"{node.op} lacks its attribute 'rho'")
    made = elementwise.add(made, scalar_like(float(rho[0]), made))
    if node.flag("one_class"):
        is_inside = elementwise.greater(made, scalar_like(0, made))
        made = elementwise.where(is_inside, scalar_like(1, made), scalar_like(-1, made))
    return converted(made, "float32")


@converter("SVMClassifier", since=(1,), domain=DOMAIN)
def svm_classifier(node: OnnxNode) -> list[Node]:
    """Convert the class of each row of features, and the scores of classes or of their pairs.

    Support vectors compare every two classes, and the class with the most votes is the label. The
    scores are those of the pairs, or with `prob_a` and `prob_b` the probabilities of the classes.
    Without support vectors each class has a score x W' + rho.
    """
    labels, x = class_labels(node), rows_of(node)
    kind, sizes = node.text("post_transform", "NONE"), node.integers("vectors_per_class") or ()
    if not sum(sizes):
        return _linear(node, x, labels, kind)
    if len(sizes) != labels.size or min(sizes) < 0 or labels.size < 2:
        raise ModelError(f"{len(sizes)} vectors_per_class do not fit {labels.size} classes")
    pairs = list(combinations(range(labels.size), 2))
    weights = _numbers(node, "coefficients")
    if labels.size == 2 and weights.min(initial=0) >= 0:
        raise ModelError(f"{node.op} has no coefficients that tell its two classes apart")
    table = Constant.of(_pair_weights(node, weights, sizes, pairs).astype(float_of(x)))
    decided: Node = matmul.matmul(_kernels(node, x, sum(sizes)), table)
    decided = elementwise.add(decided, Constant.of(_of_pairs(node, "rho", pairs, float_of(x))))
    label = looked_up(labels, _most_votes(decided, pairs, labels.size))
    if node.numbers("prob_a"):
        scores = _probabilities(node, decided, pairs, labels.size)
    else:
        node.without_effect("prob_b")
        scores = both_signs(decided) if len(pairs) == 1 else decided
    return [label, converted(transformed(scores, kind), "float32")]


def _linear(node: OnnxNode, x: Node, labels: np.ndarray, kind: str) -> list[Node]:
    node.without_effect(
        "kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b", "vectors_per_class"
    )
    weights, rho = _numbers(node, "coefficients"), _numbers(node, "rho")
    if weights.size != labels.size * known_width(x) or not rho.size or labels.size < 2:
        raise ModelError(
            f"{weights.size} coefficients and {rho.size} rho of {node.op} do not fit "
            f"{labels.size} classes of {known_width(x)} features"
        )
    scores = weighted(x, weights.reshape(labels.size, -1))
    scores = elementwise.add(scores, scalar_like(float(rho[0]), scores))
    return [best_labels(labels, scores), converted(transformed(scores, kind), "float32")]


def _numbers(node: OnnxNode, name: str) -> np.ndarray:
    return np.array(node.numbers(name) or (), "float32")


def _column(node: OnnxNode, x: Node, weights: np.ndarray, count: int) -> Constant:
    if weights.size != count:
        raise ModelError(f"{weights.size} coefficients of {node.op} do not fit {count}")
    return Constant.of(weights.reshape(count, 1).astype(float_of(x)))


def _kernels(node: OnnxNode, x: Node, count: int) -> Node:
    """Return [n, count]: the kernel of every row of features with every support vector."""
    vectors, width = _numbers(node, "support_vectors"), known_width(x)
    if vectors.size != count * width:
        raise ModelError(
            f"{vectors.size} numbers of support_vectors are not {count} rows of {width} features"
        )
    parameters = (*(node.numbers("kernel_params") or ()), 0.0, 0.0, 0.0)
    gamma, shift, degree = parameters[:3]
    kind = node.text("kernel_type", "LINEAR")
    table = vectors.reshape(count, width).astype(float_of(x))
    products = weighted(x, table)
    if kind == "LINEAR":
        return products
    if kind == "RBF":
        return _radial(x, table, products, gamma)
    scaled = elementwise.multiply(products, scalar_like(gamma, products))
    scaled = elementwise.add(scaled, scalar_like(shift, products))
    if kind == "POLY":
        return elementwise.power(scaled, scalar_like(float(int(degree)), scaled))
    if kind == "SIGMOID":
        return elementwise.tanh(scaled)
    raise ModelError(f"the kernel_type {kind!r} of {node.op} is not one of the standard's")


def _radial(x: Node, table: np.ndarray, products: Node, gamma: float) -> Node:
    """Return exp(-gamma |x - v|^2) of every row x and support vector v.

    The distance is summed from differences: |x|^2 - 2 x v + |v|^2 cancels where they are near.
    """
    dims = dims_of(x)
    apart = elementwise.subtract(reshaped(x, (dims[0], 1, dims[1])), Constant.of(table))
    distance = reductions.sum_(elementwise.multiply(apart, apart), axes=(2,))
    return elementwise.exp(elementwise.multiply(distance, scalar_like(-gamma, products)))


def _of_pairs(node: OnnxNode, name: str, pairs: list[tuple[int, int]], dtype: object) -> np.ndarray:
    values = _numbers(node, name)
    if values.size != len(pairs):
        raise ModelError(f"{values.size} {name} of {node.op} do not fit {len(pairs)} pairs")
    return values.astype(dtype)  # type: ignore[call-overload, no-any-return]


def _pair_weights(
    node: OnnxNode, weights: np.ndarray, sizes: tuple[int, ...], pairs: list[tuple[int, int]]
) -> np.ndarray:
    """Return [vectors, pairs]: what every vector weighs in the comparison of two classes.

    Coefficients come as [classes - 1, vectors]: a vector of one class has one for each other class,
    those before it first.
    """
    ends = np.cumsum(sizes)
    count = int(ends[-1])
    if weights.size != (len(sizes) - 1) * count:
        raise ModelError(
            f"{weights.size} coefficients of {node.op} do not fit {len(sizes)} classes and "
            f"{count} support vectors"
        )
    rows, own = weights.reshape(len(sizes) - 1, count), np.zeros((count, len(pairs)), "float32")
    for k, (i, j) in enumerate(pairs):
        first, second = (slice(int(ends[c]) - sizes[c], int(ends[c])) for c in (i, j))
        own[first, k], own[second, k] = rows[j - 1, first], rows[i, second]
    return own


def _most_votes(decided: Node, pairs: list[tuple[int, int]], classes: int) -> Node:
    """Return the class that most pairs are for, the first of equal ones."""
    first, second = np.zeros((2, len(pairs), classes), "float32")
    for k, (i, j) in enumerate(pairs):
        first[k, i], second[k, j] = 1, 1
    is_first = converted(elementwise.greater(decided, scalar_like(0, decided)), "float32")
    won: Node = matmul.matmul(is_first, Constant.of(first - second))
    votes = elementwise.add(won, Constant.of(second.sum(axis=0)))
    return reductions.argmax(votes, axis=1, keepdims=False)


def _probabilities(
    node: OnnxNode, decided: Node, pairs: list[tuple[int, int]], classes: int
) -> Node:
    """Return the probabilities of all classes [n, classes] from the scores of their pairs."""
    slopes, shifts = (
        Constant.of(_of_pairs(node, name, pairs, float_of(decided)))
        for name in ("prob_a", "prob_b")
    )
    value = elementwise.add(elementwise.multiply(decided, slopes), shifts)
    first = elementwise.sigmoid(elementwise.negative(value))
    first = elementwise.clip(first, min=_LEAST, max=1 - _LEAST)
    second = elementwise.subtract(scalar_like(1, first), first)
    place = {pair: k for k, pair in enumerate(pairs)}
    nothing = elementwise.multiply(cut_columns(first, 0, 1), scalar_like(0, first))
    columns = []
    for i in range(classes):
        for j in range(classes):
            k = place.get((min(i, j), max(i, j)), -1)
            source = first if i < j else second
            columns.append(nothing if i == j else cut_columns(source, k, k + 1))
    table = movement.concat(*columns, axis=1)
    return coupling.coupled_probabilities(reshaped(table, (dims_of(table)[0], classes, classes)))
