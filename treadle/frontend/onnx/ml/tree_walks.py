# SPDX-License-Identifier: Apache-2.0
"""Trees as their models describe them, and as the tables by which `walk_trees` reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import broadcast, dims_of
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise, movement
from treadle.ops.trees import FEATURE_SHIFT, MOST_FEATURES, PLACE, walk_trees

_LEVELS = 1024
"""Trees may be this deep, counted in the tests that `_Tests` makes of theirs."""
_TOGETHER = 12
"""How many trees are walked at once. A step takes some 30 cycles, of which a core spends two or
three on one tree; the places of more trees than this do not stay in the registers of x86."""
_PLACES = 1 << 30
"""How many places there may be: twice their number is an index."""

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
"""The tests of a node, as ONNX numbers them: of feature and split, or for a member of a set."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Interior nodes and leaves as one list, leaves last.

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
        if not 0 < self.width < MOST_FEATURES // 2:
            raise ModelError(f"trees take 1 to {MOST_FEATURES // 2} features, not {self.width}")


@dataclass(frozen=True, slots=True)
class Walk:
    """Where trees lead rows: numbers of places [rows, trees], and the nodes that stand at places.

    The node at every place is a leaf wherever a walk ends: `table[nodes]` is looked up there.
    """

    places: Node
    nodes: np.ndarray


def walked(forest: Forest, x: Node, classes: np.ndarray) -> Walk:
    """Return where the trees lead rows of features [rows, width]; trees stand by their class."""
    if not forest.roots.size:
        none = Constant.of(np.zeros((1, 0), PLACE))
        return Walk(broadcast(none, (dims_of(x)[0], 0)), np.zeros(0, "int64"))
    tests = _Tests.of(forest)
    words, nodes = _words(tests, forest.width)
    starts, steps = _blocks(tests, classes, 2 * (nodes.size - forest.roots.size))
    if tests.missing.any():
        lowest = Constant.of(np.array(-np.inf, forest.splits.dtype))
        x = movement.concat(x, elementwise.where(elementwise.isnan(x), lowest, x), axis=1)
    tables = (Constant.of(t) for t in (words, starts, steps))
    places = walk_trees(x, *tables, trees=forest.roots.size)
    return Walk(places, np.where(nodes < forest.yes.size, nodes, 0))  # no walk ends at the others


def least_and_most(forest: Forest, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest of the values [nodes, 2] of the leaves of every tree."""
    low, high = values.T.copy()
    inside = slice(0, forest.interior)
    for _ in range(_LEVELS):
        lower, higher = low.copy(), high.copy()
        lower[inside] = np.minimum(low[forest.yes], low[forest.no])[inside]
        higher[inside] = np.maximum(high[forest.yes], high[forest.no])[inside]
        if np.array_equal(low, lower) and np.array_equal(high, higher):
            break
        low, high = lower, higher
    return low[forest.roots], high[forest.roots]


@dataclass(frozen=True, slots=True)
class _Tests:
    """Nodes that all ask whether feature <= split, and `missing`, whether NaN is a yes too.

    They are those of a forest by the same numbers, leaves among them, then others that they need.
    """

    roots: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    is_leaf: np.ndarray

    @staticmethod
    def of(forest: Forest) -> _Tests:
        """Return the tests that lead every row, NaN included, to the leaves of a forest.

        x < t     is x <= the number before t
        x >= t    is not x < t, and x > t not x <= t, but for NaN, for which none holds
        x == t    is x <= t and not x < t; a set is searched member by member
        """
        whole = _equal_apart(_unequal_swapped(_members_apart(forest)))
        modes = whole.modes
        is_below = (modes == LT) | (modes == GTE)
        splits = np.where(is_below, _number_before(whole.splits), whole.splits)
        is_above = ((modes == GTE) | (modes == GT)) & ~np.isnan(whole.splits)
        is_leaf = np.zeros(modes.size, "bool")
        is_leaf[forest.interior : forest.yes.size] = True
        missing = (whole.missing ^ is_above) & ~is_leaf
        is_for_nan = missing & np.isnan(splits)  # only NaN is a yes: all numbers are the other way
        swaps = is_above ^ is_for_nan
        return _Tests(
            roots=forest.roots,
            features=whole.features,
            splits=np.where(is_for_nan, np.inf, splits).astype(forest.splits.dtype),
            yes=np.where(swaps, whole.no, whole.yes),
            no=np.where(swaps, whole.yes, whole.no),
            missing=missing & ~is_for_nan,
            is_leaf=is_leaf,
        )

    def depths(self) -> np.ndarray:
        """Return how many steps lead from each root to leaves only."""
        heights = np.zeros(self.yes.size, "int64")
        for _ in range(_LEVELS + 1):
            higher = 1 + np.maximum(heights[self.yes], heights[self.no])
            higher[self.is_leaf] = 0
            if np.array_equal(higher, heights):
                break
            heights = higher
        depths: np.ndarray = heights[self.roots]
        if depths.max() > _LEVELS:
            raise ModelError(f"TreeEnsemble has trees of more than {_LEVELS} levels")
        return depths


def _number_before(x: np.ndarray) -> np.ndarray:
    """Return the largest number less than each, NaN where there is none."""
    before = np.nextafter(x, np.array(-np.inf, x.dtype))
    return np.where(before < x, before, np.array(np.nan, x.dtype))


def _appended(forest: Forest, at: np.ndarray, **columns: np.ndarray) -> Forest:
    """Return a forest with nodes added that are those `at` some places but for `columns`."""

    def both(name: str) -> np.ndarray:
        own: np.ndarray = getattr(forest, name)
        return np.concatenate([own, columns.get(name, own[at])])

    return replace(
        forest,
        features=both("features"),
        splits=both("splits"),
        modes=both("modes"),
        yes=both("yes"),
        no=both("no"),
        missing=both("missing"),
        members=both("members"),
    )


def _with(values: np.ndarray, at: np.ndarray, new: object) -> np.ndarray:
    """Return values of which those at some places are new."""
    made = values.copy()
    made[at] = new
    return made


def _members_apart(forest: Forest) -> Forest:
    """Return a forest that tests for one member of a set after the other.

    before: x in {a, b} ? yes : no      after: x == a ? yes : (x == b ? yes : no)
    """
    at = np.flatnonzero(forest.modes == MEMBER)
    if not at.size:
        return forest
    sets = [row[~np.isnan(row)] for row in forest.members[at]]
    first = [values[0] if values.size else np.nan for values in sets]
    begin = replace(
        forest, modes=_with(forest.modes, at, EQ), splits=_with(forest.splits, at, first)
    )
    owners = np.concatenate([np.full(max(0, v.size - 1), k) for k, v in zip(at, sets, strict=True)])
    owners = owners.astype("int64")
    added = forest.yes.size + np.arange(owners.size)
    is_last = np.append(owners[1:] != owners[:-1], [True] * min(1, owners.size)).astype("bool")
    whole = _appended(
        begin,
        owners,
        splits=np.concatenate([v[1:] for v in sets]).astype(forest.splits.dtype),
        no=np.where(is_last, begin.no[owners], added + 1),
        missing=np.zeros(owners.size, "bool"),
    )
    second = added[np.roll(is_last, 1)]  # of the members of every set
    return replace(whole, no=_with(whole.no, owners[np.roll(is_last, 1)], second))


def _unequal_swapped(forest: Forest) -> Forest:
    """Return a forest that tests x == t where it tested x != t, which holds for NaN."""
    at = forest.modes == NEQ
    return replace(
        forest,
        modes=np.where(at, EQ, forest.modes),
        yes=np.where(at, forest.no, forest.yes),
        no=np.where(at, forest.yes, forest.no),
        missing=forest.missing & ~at,
    )


def _equal_apart(forest: Forest) -> Forest:
    """Return a forest without tests for equal numbers.

    before: x == t ? yes : no      after: x <= t ? (x < t ? no : yes) : no
    """
    at = np.flatnonzero(forest.modes == EQ)
    whole = _appended(
        forest,
        at,
        modes=np.full(at.size, LT, forest.modes.dtype),
        yes=forest.no[at],
        no=forest.yes[at],
        missing=np.zeros(at.size, "bool"),
    )
    added = forest.yes.size + np.arange(at.size)
    return replace(whole, modes=_with(whole.modes, at, LEQ), yes=_with(whole.yes, at, added))


def _words(tests: _Tests, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two words for every place and the node that stands there, roots last.

    Where NaN is a yes, the feature is read `width` further on, where NaN counts as minus infinity.
    Every edge of the trees has a place of its own: a node that two edges lead to stands twice.
    Children stand side by side, that for yes first; those of neighbours in the model near them.
    """
    interior = np.flatnonzero(~tests.is_leaf)
    children = np.stack([tests.yes[interior], tests.no[interior]], axis=1)
    nodes = np.concatenate([children.reshape(-1), tests.roots])
    if nodes.size > _PLACES:
        raise ModelError(f"trees of {nodes.size} nodes: at most {_PLACES} may be")
    rank = np.zeros(tests.yes.size, "int64")
    rank[interior] = np.arange(interior.size)
    is_leaf = tests.is_leaf[nodes]
    child = np.where(is_leaf, 2 * np.arange(nodes.size) - 2, 4 * rank[nodes])
    features = (tests.features + width * tests.missing)[nodes]
    first = (child & (1 << FEATURE_SHIFT) - 1) | (features << FEATURE_SHIFT)
    splits = np.where(is_leaf, np.array(np.nan, tests.splits.dtype), tests.splits[nodes])
    bits = splits.view(f"int{8 * splits.itemsize}").astype("int64")
    return np.stack([first, bits], axis=1).reshape(-1), nodes


def _blocks(tests: _Tests, classes: np.ndarray, roots_at: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the trees of every block start, and how many steps the deepest takes.

    Trees of a class are together, of these those of like depth.
    """
    depths = tests.depths()
    order = np.lexsort((depths, classes))
    together = min(_TOGETHER, order.size)
    first = np.minimum(np.arange(0, order.size, together), order.size - together)
    trees = order[first[:, None] + np.arange(together)]
    return (roots_at + 2 * trees).astype(PLACE), depths[trees].max(axis=1).astype(PLACE)
