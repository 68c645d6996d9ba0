# SPDX-License-Identifier: Apache-2.0
"""What trees add up to: the weights of the leaves that rows are led to, combined by target."""

from __future__ import annotations

from typing import Literal, TypeGuard

import numpy as np

from treadle.frontend.builders.basic import dims_of, reshaped, scalar_like
from treadle.frontend.onnx.ml.scores import looked_up
from treadle.frontend.onnx.ml.tree_walks import Forest, least_and_most, walked
from treadle.graph.nodes import Node
from treadle.ops import elementwise
from treadle.ops import reduce as reductions

Aggregate = Literal["SUM", "AVERAGE", "MIN", "MAX"]

_NOTHING: dict[str, float] = {"SUM": 0.0, "AVERAGE": 0.0, "MIN": np.inf, "MAX": -np.inf}


def is_aggregate(name: str) -> TypeGuard[Aggregate]:
    """Return whether leaves can be combined so."""
    return name in _NOTHING


def combined(
    forest: Forest, x: Node, weights: np.ndarray, given: np.ndarray, how: Aggregate
) -> Node:
    """Return [rows, targets]: the sum, mean, least or greatest weight of the leaves of all trees.

    `weights` and `given`, whether a node has a weight, are [nodes, targets]. The mean is that of as
    many weights as there are trees; a target without a weight is 0.
    """
    weights = np.where(given, weights, np.array(_NOTHING[how], weights.dtype))
    one_each = _targets_of(forest, given)
    trees, targets = forest.roots.size, weights.shape[1]
    combine = {"MIN": reductions.min_, "MAX": reductions.max_}.get(how, reductions.sum_)
    if one_each is None:
        walk = walked(forest, x, np.zeros(trees, "int64"))
        made: Node = combine(looked_up(weights[walk.nodes], walk.places), axes=(1,))
    else:
        walk = walked(forest, x, one_each)
        own = weights[np.arange(given.shape[0]), given.argmax(axis=1)]
        reached = looked_up(own[walk.nodes], walk.places)
        apart = reshaped(reached, (dims_of(x)[0], targets, trees // targets))
        made = combine(apart, axes=(2,))
    if how == "SUM":
        return made
    if how == "AVERAGE":
        return elementwise.divide(made, scalar_like(float(trees), made))
    nothing = elementwise.equal(made, scalar_like(_NOTHING[how], made))
    return elementwise.where(nothing, scalar_like(0, made), made)


def _targets_of(forest: Forest, given: np.ndarray) -> np.ndarray | None:
    """Return the one target that each tree has weights for, where as many trees have each.

    None where they do not; so it is with the classes of boosted trees.
    """
    count = given.shape[1]
    first = np.where(given.any(axis=1), given.argmax(axis=1), count)
    last = np.where(given.any(axis=1), count - 1 - given[:, ::-1].argmax(axis=1), -1)
    low, high = least_and_most(forest, np.stack([first, last], axis=1))
    is_fair = low.size and bool(np.all(np.bincount(low, minlength=count) * count == low.size))
    return low if is_fair and np.array_equal(low, high) else None
