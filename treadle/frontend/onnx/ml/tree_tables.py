# SPDX-License-Identifier: Apache-2.0
"""Converters of TreeEnsembleRegressor and TreeEnsembleClassifier, the forms before TreeEnsemble.

Their nodes, leaves included, are one table by (tree, node); a leaf may have a weight for several
targets, which are listed apart.
"""

from __future__ import annotations

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of, scalar_like
from treadle.frontend.onnx.ml.features import DOMAIN
from treadle.frontend.onnx.ml.scores import best_labels, looked_up, refuse_text_labels, transformed
from treadle.frontend.onnx.ml.tree_scores import combined, is_aggregate
from treadle.frontend.onnx.ml.tree_walks import Forest
from treadle.frontend.onnx.ml.trees import features_of
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise, movement, reshaping

_MODES = {
    "BRANCH_LEQ": 0,
    "BRANCH_LT": 1,
    "BRANCH_GTE": 2,
    "BRANCH_GT": 3,
    "BRANCH_EQ": 4,
    "BRANCH_NEQ": 5,
}

_Place = tuple[int, int]
"""A tree and a node in it."""


@converter("TreeEnsembleRegressor", since=(1, 3), domain=DOMAIN)
def tree_regressor(node: OnnxNode) -> Node:
    """Convert the sum, mean or extreme of the leaves that trees lead each row of features to."""
    targets = node.integer("n_targets", 1)
    forest, places, x = _opened(node)
    scores = _scores(node, forest, places, x, ("target", targets))
    return transformed(_shifted(node, scores, targets), node.text("post_transform", "NONE"))


@converter("TreeEnsembleClassifier", since=(1, 3), domain=DOMAIN)
def tree_classifier(node: OnnxNode) -> list[Node]:
    """Convert the class of each row of features, a number, and the scores of all classes."""
    refuse_text_labels(node)
    labels = np.array(node.integers("classlabels_int64s") or (), "int64")
    forest, places, x = _opened(node)
    used = set(node.integers("class_ids") or ())
    if labels.size == 2 and used in ({0}, {1}):
        score = _scores(node, forest, places, x, ("class", 1))
        return _of_two(node, labels, score, of_second=used == {1})
    scores = _scores(node, forest, places, x, ("class", labels.size))
    scores = _shifted(node, scores, labels.size)
    kind = node.text("post_transform", "NONE")
    return [best_labels(labels, scores), transformed(scores, kind)]


def _of_two(node: OnnxNode, labels: np.ndarray, score: Node, *, of_second: bool) -> list[Node]:
    """Return labels and scores where the leaves weigh one of two classes, as onnxruntime does.

    Weights that are never negative are probabilities; else the sign of their sum decides. A sum
    listed for the first class is the score of the second, and that of the first follows from it.
    """
    kind = node.text("post_transform", "NONE")
    if of_second and node.numbers("base_values"):
        raise ModelError(f"{node.op} with base_values for the second class only is not supported")
    score = _shifted(node, score, 1)
    is_probability = min(node.numbers("class_weights") or (), default=0.0) >= 0
    second = elementwise.greater(score, scalar_like(0.5 if is_probability else 0.0, score))
    label = looked_up(
        labels, reshaping.reshape(converted(second, "int64"), shape=dims_of(score)[:1])
    )
    if of_second:
        nothing = elementwise.multiply(score, scalar_like(0.0, score))
        return [label, transformed(movement.concat(nothing, score, axis=1), kind)]
    if kind == "LOGISTIC" or not is_probability:
        first: Node = elementwise.negative(score)
    else:
        first = elementwise.subtract(scalar_like(1.0, score), score)
    both = movement.concat(first, score, axis=1)
    return [label, transformed(both, kind) if kind == "LOGISTIC" else both]


def _shifted(node: OnnxNode, scores: Node, count: int) -> Node:
    base = node.numbers("base_values")
    if not base:
        return scores
    if len(base) not in (1, count):
        raise ModelError(f"{len(base)} base_values do not fit {count} scores")
    return elementwise.add(scores, Constant.of(np.array(base, "float32")))


def _opened(node: OnnxNode) -> tuple[Forest, dict[_Place, int], Node]:
    """Return the trees, where each node stands in them, and the features they take."""
    node.without_effect("nodes_hitrates", "nodes_hitrates_as_tensor")
    if node.type(0).ndim != 2:
        raise ModelError(f"{node.op} takes rows of features, not {node.type(0)}")
    if any(name.endswith("_as_tensor") for name in node.attributes):
        raise ModelError(f"{node.op} with double precision is not supported")
    modes = np.array([_MODES.get(mode, -1) for mode in node.texts("nodes_modes") or ()], "int64")
    names = [
        _column(node, f"nodes_{what}", modes.size)
        for what in ("treeids", "nodeids", "truenodeids", "falsenodeids", "featureids")
    ]
    trees, ids, yes, no, features = names
    leaves_last = np.argsort(modes < 0, kind="stable")
    order = {(int(trees[k]), int(ids[k])): place for place, k in enumerate(leaves_last)}
    if len(order) != modes.size or not modes.size:
        raise ModelError(f"{node.op} has two nodes of one number, or none")
    splits = np.array(node.numbers("nodes_values") or (), "float32")
    missing = np.array(node.integers("nodes_missing_value_tracks_true") or [0] * modes.size)
    if splits.size != modes.size or missing.size != modes.size:
        raise ModelError(f"the nodes_* attributes of {node.op} differ in length")

    def renumbered(to: np.ndarray) -> np.ndarray:
        found = [
            place if modes[k] < 0 else order.get((int(trees[k]), int(to[k])), -1)
            for place, k in enumerate(leaves_last)
        ]
        return np.array(found, "int64")

    dtype = "float64" if node.type(0).dtype == "float64" else "float32"
    interior = int((modes >= 0).sum())
    forest = Forest(
        roots=np.array(_roots(trees, ids, order), "int64"),
        features=np.where(modes < 0, 0, features)[leaves_last],
        splits=splits[leaves_last].astype(dtype),
        modes=np.maximum(modes, 0)[leaves_last],
        yes=renumbered(yes),
        no=renumbered(no),
        missing=(missing != 0)[leaves_last],
        members=np.empty((modes.size, 0), "float32"),
        interior=interior,
        width=features_of(node),
    )
    return forest, order, converted(node.input(0), dtype)


def _roots(trees: np.ndarray, ids: np.ndarray, order: dict[_Place, int]) -> list[int]:
    """Return the first node of every tree, which is its root."""
    first: dict[int, int] = {}
    for tree, number in zip(trees.tolist(), ids.tolist(), strict=True):
        first.setdefault(tree, order[tree, number])
    return list(first.values())


def _column(node: OnnxNode, name: str, size: int) -> np.ndarray:
    found = np.array(node.integers(name) or (), "int64")
    if found.size != size:
        raise ModelError(f"{name} of {node.op} has {found.size} entries for {size} nodes")
    return found


def _scores(
    node: OnnxNode,
    forest: Forest,
    places: dict[_Place, int],
    x: Node,
    wanted: tuple[str, int],
) -> Node:
    """Return [rows, targets] from the weights of the leaves that trees end in."""
    what, count = wanted
    weights = np.array(node.numbers(f"{what}_weights") or (), "float32")
    columns = [
        _column(node, f"{what}_{part}", weights.size) for part in ("treeids", "nodeids", "ids")
    ]
    table = np.zeros((forest.yes.size, count), "float32")
    given = np.zeros(table.shape, "bool")
    for tree, number, target, weight in zip(*columns, weights, strict=True):
        place = places.get((int(tree), int(number)), -1)
        target = 0 if count == 1 else int(target)
        if place < forest.interior or not 0 <= target < count:
            raise ModelError(f"the {what}_* attributes of {node.op} name no leaf or target")
        table[place, target] += weight
        given[place, target] = True
    how = node.text("aggregate_function", "SUM") if what == "target" else "SUM"
    if not is_aggregate(how):
        raise ModelError(f"the aggregate_function {how} of {node.op} is not supported")
    if how in ("MIN", "MAX") and not given[forest.interior :].all():
        raise ModelError(f"the aggregate_function {how} of {node.op} is not supported")
    return combined(forest, x, table, given, how)
