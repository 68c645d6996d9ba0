# SPDX-License-Identifier: Apache-2.0
"""The converter of TreeEnsemble: what the leaves weigh that its trees lead each row to."""

from __future__ import annotations

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted
from treadle.frontend.onnx.ml.features import DOMAIN
from treadle.frontend.onnx.ml.scores import transformed
from treadle.frontend.onnx.ml.tree_scores import Aggregate, combined
from treadle.frontend.onnx.ml.tree_walks import MEMBER, Forest
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Node

_AGGREGATES: tuple[Aggregate, ...] = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@converter("TreeEnsemble", since=(5,), domain=DOMAIN)
def tree_ensemble(node: OnnxNode) -> Node:
    """Convert the sum, mean or extreme of the leaves that trees lead each row [n, features] to."""
    node.without_effect("nodes_hitrates")
    if node.type(0).ndim != 2:
        raise ModelError(f"TreeEnsemble takes rows of features, not {node.type(0)}")
    post, how = node.integer("post_transform", 0), node.integer("aggregate_function", 1)
    if not 0 <= post < len(_TRANSFORMS):
        raise ModelError(f"the post_transform of TreeEnsemble is {post}")
    if not 0 <= how < len(_AGGREGATES):
        raise ModelError(f"the aggregate_function of TreeEnsemble is {how}")
    dtype = node.type(0).dtype
    wide = "float64" if dtype == "float64" else "float32"
    forest = _forest(node, wide)
    scores = combined(
        forest, converted(node.input(0), wide), *_weights(node, forest), _AGGREGATES[how]
    )
    return converted(transformed(scores, _TRANSFORMS[post]), dtype)


def features_of(node: OnnxNode) -> int:
    """Return how many features a row has. Raises ModelError where that is not known."""
    width = node.dims(0)[1]
    if not isinstance(width, int):
        raise ModelError(f"{node.op} needs to know how many features {node.type(0)} has")
    return width


def _tensor(node: OnnxNode, name: str, dtype: str) -> np.ndarray:
    value = node.tensor(name)
    if value is None:
        raise ModelError(f"TreeEnsemble lacks its attribute {name!r}")
    return value.astype(dtype)


def _integers(node: OnnxNode, name: str) -> np.ndarray:
    return np.array(node.integers(name) or (), "int64")


def _forest(node: OnnxNode, dtype: str) -> Forest:
    modes, splits = _tensor(node, "nodes_modes", "int64"), _tensor(node, "nodes_splits", dtype)
    leaves = _tensor(node, "leaf_weights", dtype).size
    count = modes.size
    own = count + np.arange(leaves)
    ways = []
    for side in ("true", "false"):
        to = _integers(node, f"nodes_{side}nodeids")
        is_leaf = _integers(node, f"nodes_{side}leafs")
        if to.shape != modes.shape or is_leaf.shape != modes.shape:
            raise ModelError("the nodes_* attributes of TreeEnsemble differ in length")
        ways.append(np.concatenate([np.where(is_leaf != 0, count + to, to), own]))
    features, roots = _integers(node, "nodes_featureids"), _integers(node, "tree_roots")
    missing = _integers(node, "nodes_missing_value_tracks_true")
    missing = missing if missing.size else np.zeros(count, "int64")
    if {features.size, splits.size, missing.size} != {count}:
        raise ModelError("the nodes_* attributes of TreeEnsemble differ in length")
    return Forest(
        roots=roots,
        features=np.concatenate([features, np.zeros(leaves, "int64")]),
        splits=np.concatenate([splits, np.zeros(leaves, splits.dtype)]),
        modes=np.concatenate([modes, np.zeros(leaves, "int64")]),
        yes=ways[0],
        no=ways[1],
        missing=np.concatenate([missing, np.zeros(leaves, "int64")]) != 0,
        members=_members(node, modes, leaves, dtype),
        interior=count,
        width=features_of(node),
    )


def _members(node: OnnxNode, modes: np.ndarray, leaves: int, dtype: str) -> np.ndarray:
    """Return the set of every node; sets are listed one after the other, a NaN after each."""
    given = node.tensor("membership_values")
    sets: list[list[float]] = [[]]
    for value in () if given is None else given.tolist():
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    owners = np.flatnonzero(modes == MEMBER)
    sets = sets[: owners.size]
    if len(sets) < owners.size:
        raise ModelError("TreeEnsemble has fewer sets of members than nodes that test for one")
    table = np.full((modes.size + leaves, max(map(len, sets), default=0)), np.nan, dtype)
    for owner, values in zip(owners, sets, strict=True):
        table[owner, : len(values)] = values
    return table


def _weights(node: OnnxNode, forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights [nodes, targets], and whether a node has one for a target."""
    weights = _tensor(node, "leaf_weights", str(forest.splits.dtype))
    targets, ids = node.integer("n_targets", 1), _integers(node, "leaf_targetids")
    if ids.size != weights.size or not np.all((ids >= 0) & (ids < targets)):
        raise ModelError("the leaf_* attributes of TreeEnsemble differ in length or name no target")
    table = np.zeros((forest.yes.size, targets), weights.dtype)
    given = np.zeros(table.shape, "bool")
    leaves = forest.interior + np.arange(weights.size)
    table[leaves, ids], given[leaves, ids] = weights, True
    return table, given
