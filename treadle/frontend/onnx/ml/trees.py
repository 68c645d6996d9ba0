# SPDX-License-Identifier: Apache-2.0
"""The converter of TreeEnsemble: trees of like depth walked at once, a level of each per step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    dims_of,
    reshaped,
    scalar_like,
)
from treadle.frontend.onnx.ml.features import DOMAIN, transformed
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise, indexing, movement
from treadle.ops import reduce as reductions
from treadle.ops.bits import bitcast

_LEVELS = 64
"""Trees may be this deep."""
_LEAST_TREES = 64
"""How many trees are worth a walk of their own."""

INDEX = "int32"
"""What numbers of nodes and features are kept as: twice as many to a vector as int64."""

_WORDS = 4
"""32-bit words of a node."""
_FEATURES = 1 << 24
"""How many features there may be: the bits of a node's first word above them are its flags."""
_MODE_SHIFT = 25

MEMBER = 6
_COMPARE = (
    elementwise.less_equal,
    elementwise.less,
    elementwise.greater_equal,
    elementwise.greater,
    elementwise.equal,
    elementwise.not_equal,
)
"""The test of each mode; 6 tests for a member of a set."""

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True, slots=True)
class Forest:
    """Interior nodes and leaves as one list: leaves stand last and lead to themselves.

    Raises: ModelError where an index is none of a node, or a feature none of `width`.
    """

    roots: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    members: np.ndarray  # [nodes, largest set], NaN where sets are smaller
    interior: int
    width: int

    def __post_init__(self) -> None:
        count = self.yes.size
        inside = all(
            bool(np.all((v >= 0) & (v < bound)))
            for v, bound in (
                (self.yes, count),
                (self.no, count),
                (self.roots, count),
                (self.features, max(self.width, 1)),
                (self.modes, MEMBER + 1),
            )
        )
        columns = (self.no, self.features, self.splits, self.modes, self.missing)
        if not inside or any(c.size != count for c in columns):
            raise ModelError("the nodes_* attributes describe no trees")


@converter("TreeEnsemble", since=(5,), domain=DOMAIN)
def tree_ensemble(node: OnnxNode) -> Node:
    """Convert the sum, mean or extreme of the leaves that trees lead each row [n, features] to."""
    node.without_effect("nodes_hitrates")
    if node.type(0).ndim != 2:
        raise ModelError(f"TreeEnsemble takes rows of features, not {node.type(0)}")
    forest = _forest(node)
    at = walked(forest, node.input(0))
    post = node.integer("post_transform", 0)
    if not 0 <= post < len(_TRANSFORMS):
        raise ModelError(f"the post_transform of TreeEnsemble is {post}")
    return transformed(_gathered(node, forest, at), _TRANSFORMS[post])


def features_of(node: OnnxNode) -> int:
    """Return how many features a row has. Raises ModelError where that is not known."""
    width = node.dims(0)[1]
    if not isinstance(width, int):
        raise ModelError(f"{node.op} needs to know how many features {node.type(0)} has")
    return width


def walked(forest: Forest, x: Node) -> Node:
    """Return the leaves [rows, trees] that the trees lead rows of features to."""
    tables = _Tables(forest)
    walks = []
    for roots, depth in _alike(forest):
        at: Node = Constant.of(roots.astype(INDEX).reshape(1, -1))
        at = broadcast(at, (dims_of(x)[0], roots.size))
        for _ in range(depth):
            at = _next(tables, x, at)
        walks.append(at)
    return walks[0] if len(walks) == 1 else movement.concat(*walks, axis=1)


def _alike(forest: Forest) -> list[tuple[np.ndarray, int]]:
    """Return the roots of trees that are walked together, and how many steps lead to their leaves.

    All trees of one walk take as many steps as the deepest, so the deeper half of the trees is
    walked apart, and of that the deeper half again, while they fill several vectors.
    """
    depths = _depths(forest)
    order = np.argsort(depths, kind="stable")
    roots, depths = forest.roots[order], depths[order]
    found: list[tuple[np.ndarray, int]] = []
    while roots.size >= 2 * _LEAST_TREES and depths[0] < depths[-1]:
        cut = int(np.searchsorted(depths, depths[(roots.size - 1) // 2], side="right"))
        if cut == roots.size:
            cut = int(np.searchsorted(depths, depths[-1]))
        found.append((roots[:cut], int(depths[cut - 1])))
        roots, depths = roots[cut:], depths[cut:]
    return [*found, (roots, int(depths.max(initial=0)))] if roots.size or not found else found


def _tensor(node: OnnxNode, name: str, dtype: str) -> np.ndarray:
    value = node.tensor(name)
    if value is None:
        raise ModelError(f"TreeEnsemble lacks its attribute {name!r}")
    return value.astype(dtype)


def _integers(node: OnnxNode, name: str) -> np.ndarray:
    return np.array(node.integers(name) or (), "int64")


def _forest(node: OnnxNode) -> Forest:
    dtype = node.type(0).dtype
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
        members=_members(node, modes, leaves),
        interior=count,
        width=features_of(node),
    )


def _members(node: OnnxNode, modes: np.ndarray, leaves: int) -> np.ndarray:
    """Return the set of every node; sets are listed one after the other, a NaN after each."""
    given = node.tensor("membership_values")
    dtype = node.type(0).dtype
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


def _depths(forest: Forest) -> np.ndarray:
    """Return how many steps lead from each root to leaves only."""
    interior = slice(0, forest.interior)
    heights = np.zeros(forest.yes.size, "int64")
    for _ in range(_LEVELS + 1):
        higher = heights.copy()
        higher[interior] = 1 + np.maximum(heights[forest.yes], heights[forest.no])[interior]
        if np.array_equal(higher, heights):
            break
        heights = higher
    depths: np.ndarray = heights[forest.roots]
    if depths.max(initial=0) > _LEVELS:
        raise ModelError(f"TreeEnsemble has trees of more than {_LEVELS} levels")
    return depths


def looked_up(table: np.ndarray, at: Node) -> Node:
    """Return the rows of a table at the given places."""
    return indexing.gather(Constant.of(np.ascontiguousarray(table)), at, axis=0)


class _Tables:
    """What stands at each node, as constants that all steps of a walk share.

    The words of a node lie side by side, so that it takes one cache line, not one per word: feature
    and flags, the node for yes, the node for no, the bits of a float32 split.
    """

    def __init__(self, forest: Forest) -> None:
        if forest.width > _FEATURES:
            raise ModelError(f"trees over {forest.width} features: at most {_FEATURES} may be")
        flags = forest.missing.astype(INDEX) * _FEATURES + (forest.modes << _MODE_SHIFT)
        self._has_bits = forest.splits.dtype == np.float32
        split = np.ascontiguousarray(forest.splits).view(INDEX) if self._has_bits else 0 * flags
        columns = (flags + forest.features, forest.yes, forest.no, split)
        words = np.stack([c.astype(INDEX) for c in columns], axis=1).reshape(-1)
        self._words = Constant.of(words)
        self._splits = Constant.of(np.ascontiguousarray(forest.splits))
        self._members = Constant.of(np.ascontiguousarray(forest.members))
        interior = slice(0, forest.interior)
        self.modes: list[int] = np.unique(forest.modes[interior]).tolist()
        self.tracks_missing = bool(forest.missing[interior].any())

    def word(self, number: int | Node, at: Node) -> Node:
        start = elementwise.multiply(at, Constant.of(_WORDS, INDEX))
        which = Constant.of(number, INDEX) if isinstance(number, int) else number
        return indexing.gather(self._words, elementwise.add(start, which), axis=0)

    def after(self, at: Node, goes: Node) -> Node:
        """Return the node for yes where `goes` holds, else the one for no."""
        return self.word(elementwise.where(goes, *(Constant.of(w, INDEX) for w in (1, 2))), at)

    def feature(self, at: Node) -> Node:
        return elementwise.bitwise_and(self.word(0, at), Constant.of(_FEATURES - 1, INDEX))

    def split(self, at: Node) -> Node:
        if self._has_bits:
            return bitcast(self.word(3, at), dtype="float32")
        return indexing.gather(self._splits, at, axis=0)

    def members(self, at: Node) -> Node:
        return indexing.gather(self._members, at, axis=0)

    def is_missing_yes(self, at: Node) -> Node:
        flag = elementwise.bitwise_and(self.word(0, at), Constant.of(_FEATURES, INDEX))
        return elementwise.not_equal(flag, Constant.of(0, INDEX))

    def has_mode(self, mode: int, at: Node) -> Node:
        flags = elementwise.shift_right(self.word(0, at), Constant.of(_MODE_SHIFT, INDEX))
        return elementwise.equal(flags, Constant.of(mode, INDEX))


def _next(tables: _Tables, x: Node, at: Node) -> Node:
    """Return where each tree goes from node `at` [rows, trees].

    What all interior nodes share is not looked up: leaves lead to themselves either way.
    """
    value: Node = indexing.gather_elements(x, tables.feature(at), axis=1)
    goes = _passes(tables, value, at)
    if tables.tracks_missing:
        is_missing = elementwise.logical_and(elementwise.isnan(value), tables.is_missing_yes(at))
        goes = elementwise.logical_or(goes, is_missing)
    return tables.after(at, goes)


def _passes(tables: _Tables, value: Node, at: Node) -> Node:
    """Return whether each value passes the test of node `at` [rows, trees]."""
    tests = [
        _COMPARE[mode](value, tables.split(at)) if mode < MEMBER else _is_member(tables, value, at)
        for mode in tables.modes
    ]
    if len(tests) == 1:
        return tests[0]
    applying = [
        elementwise.logical_and(test, tables.has_mode(mode, at))
        for mode, test in zip(tables.modes, tests, strict=True)
    ]
    return reduce(elementwise.logical_or, applying)


def _is_member(tables: _Tables, value: Node, at: Node) -> Node:
    one = reshaped(value, (*dims_of(value), 1))
    return reductions.max_(elementwise.equal(one, tables.members(at)), axes=(2,))


def _gathered(node: OnnxNode, forest: Forest, at: Node) -> Node:
    """Return [rows, targets] from the leaf each tree ends in."""
    targets = node.integer("n_targets", 1)
    dtype = node.type(0).dtype
    unused = np.zeros(forest.interior)
    weights = np.concatenate([unused, _tensor(node, "leaf_weights", dtype)]).astype(dtype)
    ids = np.concatenate([unused, _integers(node, "leaf_targetids")]).astype("int64")
    shape = (*dims_of(at), 1)
    weight = reshaped(looked_up(weights, at), shape)
    target = reshaped(looked_up(ids, at), shape)
    here = elementwise.equal(target, Constant.of(np.arange(targets)))
    how = node.integer("aggregate_function", 1)
    if how in (0, 1):
        zero = scalar_like(0, weight)
        total: Node = reductions.sum_(elementwise.where(here, weight, zero), axes=(1,))
        if how == 1:
            return total
        return elementwise.divide(total, scalar_like(float(forest.roots.size), total))
    if how not in (2, 3):
        raise ModelError(f"the aggregate_function of TreeEnsemble is {how}")
    limit = scalar_like(np.inf if how == 2 else -np.inf, weight)
    reduction = reductions.min_ if how == 2 else reductions.max_
    best: Node = reduction(elementwise.where(here, weight, limit), axes=(1,))
    return elementwise.where(elementwise.equal(best, limit), scalar_like(0, best), best)
