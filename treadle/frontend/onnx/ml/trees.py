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
_LEAST_TREES = 128
"""How many trees are worth a walk of their own."""

INDEX = "int32"
"""What numbers of nodes and features are kept as: twice as many to a vector as int64."""

_TESTED_LEVELS = 3
"""Of the uppermost levels of a tree all nodes are tested: 7 look-ups of a feature and no other for
a row, where a walk of as many steps takes 9, each after the one before."""

_PLACES = 1 << 30
"""How many places there may be: twice their number is an index."""
_FEATURES = 1 << 24
"""How many features there may be."""
_FEATURE_SHIFT, _FLAG_SHIFT, _MODE_SHIFT = 32, 56, 58
"""Where a feature, the flags and the mode stand in a node's first word, above its children."""
_SIBLING = 2
"""The flag of interior nodes, which is what lies between their children."""

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
    places, nodes = walked(forest, node.input(0))
    post = node.integer("post_transform", 0)
    if not 0 <= post < len(_TRANSFORMS):
        raise ModelError(f"the post_transform of TreeEnsemble is {post}")
    return transformed(_gathered(node, forest, places, nodes), _TRANSFORMS[post])


def features_of(node: OnnxNode) -> int:
    """Return how many features a row has. Raises ModelError where that is not known."""
    width = node.dims(0)[1]
    if not isinstance(width, int):
        raise ModelError(f"{node.op} needs to know how many features {node.type(0)} has")
    return width


def walked(forest: Forest, x: Node) -> tuple[Node, np.ndarray]:
    """Return the places [rows, trees] where the trees lead rows of features to, and their nodes.

    The node at every place is a leaf wherever a walk ends: `looked_up(table[nodes], places)`.
    """
    tables = _Tables(forest)
    walks = []
    for trees, depth in _alike(forest):
        levels = min(depth, _TESTED_LEVELS)
        place = _first(tables, x, tables.roots[trees], levels)
        for _ in range(depth - levels):
            place = _next(tables, x, place)
        walks.append(place)
    place = walks[0] if len(walks) == 1 else movement.concat(*walks, axis=1)
    return elementwise.shift_right(place, Constant.of(1, INDEX)), tables.nodes


def _alike(forest: Forest) -> list[tuple[np.ndarray, int]]:
    """Return which trees are walked together, and how many steps lead to their leaves.

    All trees of one walk take as many steps as the deepest, so the deeper half of the trees is
    walked apart, and of that the deeper half again, while they fill several vectors.
    """
    depths = _depths(forest)
    order = np.argsort(depths, kind="stable")
    depths = depths[order]
    found: list[tuple[np.ndarray, int]] = []
    while order.size >= 2 * _LEAST_TREES and depths[0] < depths[-1]:
        cut = int(np.searchsorted(depths, depths[(order.size - 1) // 2], side="right"))
        if cut == order.size:
            cut = int(np.searchsorted(depths, depths[-1]))
        found.append((order[:cut], int(depths[cut - 1])))
        order, depths = order[cut:], depths[cut:]
    return [*found, (order, int(depths.max(initial=0)))] if order.size or not found else found


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
    """What the steps of a walk look up, as two 64-bit words for each place a walk may be at.

    A node's children stand side by side, that for yes first, so that a step knows both words of a
    place as soon as it knows the place, and all it waits for next is the feature. Every edge of the
    trees has a place of its own, so has every root: a node that two edges lead to stands twice. The
    first word is where the node's children begin, its feature, its flags; the second is its split.
    The children of a leaf are the leaf itself. A place is the number of its first word.
    """

    def __init__(self, forest: Forest) -> None:
        if forest.width > _FEATURES:
            raise ModelError(f"trees over {forest.width} features: at most {_FEATURES} may be")
        interior = slice(0, forest.interior)
        children = np.stack([forest.yes[interior], forest.no[interior]], axis=1)
        self.nodes = np.concatenate([children.reshape(-1), forest.roots])
        """Which node stands at each place."""
        if self.nodes.size > _PLACES:
            raise ModelError(f"trees of {self.nodes.size} nodes: at most {_PLACES} may be")
        self.roots = 2 * (np.arange(forest.roots.size) + 2 * forest.interior)
        self.words = self._packed(forest)
        self._constant = Constant.of(self.words.reshape(-1))
        self._dtype = str(forest.splits.dtype)
        self._members = Constant.of(np.ascontiguousarray(forest.members[self.nodes]))
        self.modes: list[int] = np.unique(forest.modes[interior]).tolist()
        self.tracks_missing = bool(forest.missing[interior].any())

    def _packed(self, forest: Forest) -> np.ndarray:
        nodes = self.nodes
        is_interior = nodes < forest.interior
        children = 2 * np.where(is_interior, 2 * nodes, np.arange(nodes.size))
        flags = forest.missing[nodes] + _SIBLING * is_interior + 4 * forest.modes[nodes]
        first = children + (forest.features[nodes] << _FEATURE_SHIFT) + (flags << _FLAG_SHIFT)
        splits = np.ascontiguousarray(forest.splits)
        bits = splits.view(f"int{8 * splits.itemsize}")[nodes]
        return np.stack([first, bits.astype("int64")], axis=1)

    def at(self, place: Node) -> _Standing:
        """Return what the tables hold of the nodes at some places."""
        second = elementwise.add(place, Constant.of(1, INDEX))
        words = (indexing.gather(self._constant, p, axis=0) for p in (place, second))
        return self._standing(place, *words)

    def known(self, places: np.ndarray) -> _Standing:
        """Return the same of places [trees] that are known now."""
        words = (Constant.of(w.reshape(1, -1)) for w in self.words[places // 2].T)
        return self._standing(Constant.of(places.astype(INDEX).reshape(1, -1)), *words)

    def _standing(self, place: Node, first: Node, second: Node) -> _Standing:
        if self._dtype == "float32":
            second = elementwise.cast(second, dtype=INDEX)
        return _Standing(place, first, bitcast(second, dtype=self._dtype))

    def children(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places for yes and for no of nodes whose places are known."""
        first = self.words[places // 2, 0]
        yes = first & ((1 << _FEATURE_SHIFT) - 1)
        return yes, yes + (first >> _FLAG_SHIFT & _SIBLING)

    def members(self, place: Node) -> Node:
        """Return the sets of the nodes at some places."""
        number = elementwise.shift_right(place, Constant.of(1, INDEX))
        return indexing.gather(self._members, number, axis=0)


@dataclass(frozen=True, slots=True)
class _Standing:
    """Places [rows or 1, trees], and the first word and the split of the nodes there."""

    place: Node
    word: Node
    split: Node

    def feature(self) -> Node:
        return self._bits(_FEATURE_SHIFT, _FEATURES - 1)

    def has_mode(self, mode: int) -> Node:
        return elementwise.equal(self._bits(_MODE_SHIFT, 7), Constant.of(mode, INDEX))

    def is_missing_yes(self) -> Node:
        return elementwise.not_equal(self._bits(_FLAG_SHIFT, 1), Constant.of(0, INDEX))

    def after(self, goes: Node) -> Node:
        """Return the place for yes where `goes` holds, else the one beside it; leaves stay."""
        sibling = self._bits(_FLAG_SHIFT, _SIBLING)
        sibling = elementwise.where(goes, Constant.of(0, INDEX), sibling)
        return elementwise.add(elementwise.cast(self.word, dtype=INDEX), sibling)

    def _bits(self, shift: int, mask: int) -> Node:
        low = elementwise.shift_right(self.word, Constant.of(shift, "int64"))
        return elementwise.bitwise_and(elementwise.cast(low, dtype=INDEX), Constant.of(mask, INDEX))


def _first(tables: _Tables, x: Node, places: np.ndarray, levels: int) -> Node:
    """Return where trees go from known places [trees] in a few levels.

    All nodes of these levels are tested: what they hold is read in order, and none waits for
    another.
    """
    if not levels:
        whole = (dims_of(x)[0], places.size)
        return broadcast(Constant.of(places.astype(INDEX).reshape(1, -1)), whole)
    goes = _goes(tables, x, tables.known(places))
    return elementwise.where(
        goes, *(_first(tables, x, to, levels - 1) for to in tables.children(places))
    )


def _next(tables: _Tables, x: Node, place: Node) -> Node:
    """Return where each tree goes from `place` [rows, trees]."""
    here = tables.at(place)
    return here.after(_goes(tables, x, here))


def _goes(tables: _Tables, x: Node, here: _Standing) -> Node:
    """Return whether each row goes to the child for yes [rows, trees].

    What all interior nodes share is not looked up: leaves lead to themselves either way.
    """
    whole = (dims_of(x)[0], dims_of(here.place)[1])
    value: Node = indexing.gather_elements(x, broadcast(here.feature(), whole), axis=1)
    goes = _passes(tables, value, here)
    if not tables.tracks_missing:
        return goes
    is_missing = elementwise.logical_and(elementwise.isnan(value), here.is_missing_yes())
    return elementwise.logical_or(goes, is_missing)


def _passes(tables: _Tables, value: Node, here: _Standing) -> Node:
    """Return whether each value passes the test of the node it is `here` at [rows, trees]."""
    tests = [
        _COMPARE[mode](value, here.split)
        if mode < MEMBER
        else _is_member(tables, value, here.place)
        for mode in tables.modes
    ]
    if len(tests) == 1:
        return tests[0]
    applying = [
        elementwise.logical_and(test, here.has_mode(mode))
        for mode, test in zip(tables.modes, tests, strict=True)
    ]
    return reduce(elementwise.logical_or, applying)


def _is_member(tables: _Tables, value: Node, place: Node) -> Node:
    one = reshaped(value, (*dims_of(value), 1))
    return reductions.max_(elementwise.equal(one, tables.members(place)), axes=(2,))


def _gathered(node: OnnxNode, forest: Forest, at: Node, nodes: np.ndarray) -> Node:
    """Return [rows, targets] from the places that trees end at and the nodes at all places."""
    targets = node.integer("n_targets", 1)
    dtype = node.type(0).dtype
    unused = np.zeros(forest.interior)
    weights = np.concatenate([unused, _tensor(node, "leaf_weights", dtype)]).astype(dtype)
    ids = np.concatenate([unused, _integers(node, "leaf_targetids")]).astype(INDEX)
    shape = (*dims_of(at), 1)
    weight = reshaped(looked_up(weights[nodes], at), shape)
    target = reshaped(looked_up(ids[nodes], at), shape)
    here = elementwise.equal(target, Constant.of(np.arange(targets, dtype=INDEX)))
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
