# SPDX-License-Identifier: Apache-2.0
"""What runs of a template have shown of its tree of choices, as arrays that many rows walk at once.

The candidates of a knob may depend on the choices before it, so a space of knobs is a tree, of
which a run of the template shows one path. A path that no run has shown is taken to go on as the
nearest one of which that is known: after another value of the same knob, nearest by its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treadle.errors import ScheduleError
from treadle.te.knobs import Knob, Value

Ints = NDArray[np.int64]
Rows = NDArray[np.int64]
"""Paths as rows of ids of choices, in the order of the tree; after the end of a path -1."""

END = -1
UNKNOWN_EXCESS = math.log(1.02)
"""A rule without a model is believed to be right by so much."""

_LENGTH_GAP = 8.0
"""The distance between values that do not have the same number of entries."""


@dataclass(frozen=True, slots=True)
class Menu:
    """The candidates of a knob at a place of the tree, as ids of choices.

    `excess` are the logarithms of what each costs over the cheapest one.
    """

    knob: int
    choices: tuple[int, ...]
    excess: tuple[float, ...]
    best: int


@dataclass(frozen=True, slots=True)
class Walk:
    """Where rows went: choices, nodes and excess at every depth; after the end -1, -1 and 0."""

    rows: Rows
    nodes: Ints
    excess: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The tree as it is known: per node, per menu (`place` counts the candidates of one)."""

    depth: int
    menu_of: Ints
    first_child: Ints
    children: Ints
    knob_of: Ints
    size: Ints
    best: Ints
    first_choice: Ints
    choices: Ints
    excess: NDArray[np.float64]


class Paths:
    """The known part of a tree of choices. Choices, (knob, value) pairs, are called by ids.

    Ids are given in the order in which choices are seen, and stay.
    """

    def __init__(self) -> None:
        self.knobs: list[str] = []
        self.values: list[tuple[str, Value]] = []
        self.knob_of_choice: list[int] = []
        self._knob_ids: dict[str, int] = {}
        self._choice_ids: dict[tuple[int, str], int] = {}
        self._menu_ids: dict[Menu, int] = {}
        self._menus: list[Menu] = []
        self._menu_of: list[int] = []
        self._children: list[dict[int, int]] = []
        self._assumed: list[Ints] = []
        self._depth = 0
        self._arrays: _Arrays | None = None
        self._nearest: Ints | None = None
        self._orders: dict[int, Ints] = {}

    # -- what runs show --------------------------------------------------------------------------

    def learn(self, made: Sequence[Knob]) -> tuple[int, ...]:
        """Remember the path of one run; return its choices.

        Raises: ScheduleError where the template asked for something else after the same choices.
        """
        self._depth = max(self._depth, len(made))
        path: list[int] = []
        before: tuple[int, int] | None = None
        for knob in made:
            node = self._node(before, self._menu(knob))
            before = node, knob.chosen
            path.append(self._menus[self._menu_of[node]].choices[knob.chosen])
        if before is not None and before[1] not in self._children[before[0]]:
            self._join(before, END)
        return tuple(path)

    def choice_id(self, name: str, value: Value) -> int | None:
        """Return the id of a choice, None where no run has shown it."""
        knob = self._knob_ids.get(name)
        return None if knob is None else self._choice_ids.get((knob, repr(value)))

    def _menu(self, knob: Knob) -> int:
        number = self._knob_ids.setdefault(knob.name, len(self.knobs))
        if number == len(self.knobs):
            self.knobs.append(knob.name)
        choices = tuple(self._choice(number, knob.name, c) for c in knob.candidates)
        menu = Menu(number, choices, excess_of(knob), knob.best)
        found = self._menu_ids.setdefault(menu, len(self._menus))
        if found == len(self._menus):
            self._menus.append(menu)
            self._nearest = None
        return found

    def _choice(self, knob: int, name: str, value: Value) -> int:
        found = self._choice_ids.setdefault((knob, repr(value)), len(self.values))
        if found == len(self.values):
            self.values.append((name, value))
            self.knob_of_choice.append(knob)
            self._nearest = None
        return found

    def _node(self, before: tuple[int, int] | None, menu: int) -> int:
        """Return the node after a choice at another; the root after none."""
        if before is None:
            found = 0 if self._menu_of else None
        else:
            found = self._children[before[0]].get(before[1])
        if found is None:
            found = len(self._menu_of)
            self._menu_of.append(menu)
            self._children.append({})
            self._assumed.append(np.empty(0, np.int64))
            if before is not None:
                self._join(before, found)
        if found == END or self._menu_of[found] != menu:
            raise ScheduleError(
                f"after the same choices a template asked for another knob "
                f"or other candidates than before, at {self.knobs[self._menus[menu].knob]}",
                hint="candidates depend on the group, the target and earlier knobs alone",
            )
        return found

    def _join(self, before: tuple[int, int], child: int) -> None:
        """Let `child` follow a choice, and the choices near it of which nothing else is known."""
        node, place = before
        known = self._children[node]
        known[place] = child
        menu = self._menus[self._menu_of[node]]
        numbers = self._numbers(menu.choices)
        places = np.array(sorted(known))
        nearest = places[_distances(numbers, numbers[places]).argmin(axis=1)]
        self._assumed[node] = np.array([known[p] for p in nearest.tolist()], np.int64)
        self._arrays = None

    def _numbers(self, choices: Sequence[int]) -> NDArray[np.float64]:
        """Return the values of choices as rows of numbers, of equal length."""
        rows = [entries(self.values[c][1]) for c in choices]
        numbers = [[_number(e, c) for e in r] for r, c in zip(rows, choices, strict=True)]
        width = max(map(len, numbers))
        return np.array([r + [_LENGTH_GAP] * (width - len(r)) for r in numbers])

    # -- arrays ----------------------------------------------------------------------------------

    @property
    def _tree(self) -> _Arrays:
        if self._arrays is None:
            sizes = [len(m.choices) for m in self._menus]
            self._arrays = _Arrays(
                self._depth,
                np.array(self._menu_of, np.int64),
                _starts([len(a) for a in self._assumed]),
                np.concatenate(self._assumed) if self._assumed else np.empty(0, np.int64),
                np.array([m.knob for m in self._menus], np.int64),
                np.array(sizes, np.int64),
                np.array([m.best for m in self._menus], np.int64),
                _starts(sizes),
                np.array([c for m in self._menus for c in m.choices], np.int64),
                np.array([e for m in self._menus for e in m.excess], np.float64),
            )
        return self._arrays

    @property
    def _nearest_place(self) -> Ints:
        """The place in each menu of each choice, or of the nearest one; 0 for those of others."""
        if self._nearest is None:
            table = np.zeros((len(self._menus), len(self.values)), np.int64)
            of_knob = np.array(self.knob_of_choice)
            for row, menu in zip(table, self._menus, strict=True):
                ids = np.flatnonzero(of_knob == menu.knob)
                both = self._numbers([*ids.tolist(), *menu.choices])
                row[ids] = _distances(both[: len(ids)], both[len(ids) :]).argmin(axis=1)
                row[list(menu.choices)] = np.arange(len(menu.choices))
            self._nearest = table
        return self._nearest

    def rows(self, paths: Sequence[tuple[int, ...]]) -> Rows:
        """Return paths as rows of an array."""
        rows = np.full((len(paths), self._depth), END, np.int64)
        lengths = np.array([len(p) for p in paths], np.int64)
        inside = np.arange(self._depth) < lengths[:, None]
        rows[inside] = [choice for path in paths for choice in path]
        return rows

    def by_knob(self, rows: Rows) -> Ints:
        """Return the choices of rows in columns of knobs, -1 where a path has no such knob."""
        columns = np.full((len(rows), len(self.knobs) + 1), END, np.int64)
        knobs = np.array([*self.knob_of_choice, len(self.knobs)], np.int64)[rows]
        columns[np.arange(len(rows))[:, None], knobs] = rows
        return columns[:, :-1]

    def excess_by_knob(self, walk: Walk) -> NDArray[np.float64]:
        """Return what each choice of a walk costs over the best, in columns of knobs."""
        columns = np.zeros((len(walk.rows), len(self.knobs) + 1))
        knobs = np.array([*self.knob_of_choice, len(self.knobs)], np.int64)[walk.rows]
        columns[np.arange(len(walk.rows))[:, None], knobs] = walk.excess
        return columns[:, :-1]

    # -- walks -----------------------------------------------------------------------------------

    def draw(self, count: int, random: np.random.Generator) -> Walk:
        """Return `count` walks that take every candidate of a knob equally often."""
        sizes = self._tree.size
        chance = random.random((count, self._depth))
        return self._walk(count, lambda menu, depth: (chance[:, depth] * sizes[menu]).astype(int))

    def follow(self, wanted: Ints) -> Walk:
        """Return walks that choose what is wanted of each knob, or the nearest to it there.

        `wanted` are choices in columns of knobs; -1 stands for the default.
        """
        tree, nearest = self._tree, self._nearest_place
        each = np.arange(len(wanted))

        def choose(menu: Ints, _: int) -> Ints:
            want = wanted[each, tree.knob_of[menu]]
            return np.where(want == END, tree.best[menu], nearest[menu, want])

        return self._walk(len(wanted), choose)

    def _walk(self, count: int, choose: Callable[[Ints, int], Ints]) -> Walk:
        tree = self._tree
        rows = np.full((count, tree.depth), END, np.int64)
        nodes, excess = rows.copy(), np.zeros(rows.shape)
        node = np.zeros(count, np.int64)
        for depth in range(tree.depth):
            live = node != END
            menu = tree.menu_of[node]
            place = choose(menu, depth)
            at = tree.first_choice[menu] + place
            nodes[:, depth] = node
            rows[:, depth] = np.where(live, tree.choices[at], END)
            excess[:, depth] = np.where(live, tree.excess[at], 0.0)
            node = np.where(live, tree.children[tree.first_child[node] + place], END)
        return Walk(rows, nodes, excess)

    def vary(self, walk: Walk, random: np.random.Generator, near: float, most: int) -> Ints:
        """Return what is wanted of each knob where one choice of every row is changed.

        The new one is one of the `most` nearest of the knob's candidates by a chance of `near`,
        else any other one. Rows without a knob of two candidates stay.
        """
        tree = self._tree
        count = len(walk.rows)
        wanted = self.by_knob(walk.rows)
        sizes = np.where(walk.nodes == END, 1, tree.size[tree.menu_of[walk.nodes]])
        chance = random.random(sizes.shape) * (sizes > 1)
        depth = chance.argmax(axis=1) if tree.depth else np.zeros(count, np.int64)
        can = np.flatnonzero(chance.max(axis=1, initial=0.0) > 0.0)
        depth = depth[can]
        menu = tree.menu_of[walk.nodes[can, depth]]
        now = walk.rows[can, depth]
        others = tree.size[menu] - 1
        limit = np.where(random.random(len(can)) < near, np.minimum(others, most), others)
        rank = 1 + (random.random(len(can)) * limit).astype(np.int64)
        place = self._neighbours(menu, self._nearest_place[menu, now], rank)
        wanted[can, tree.knob_of[menu]] = tree.choices[tree.first_choice[menu] + place]
        return wanted

    def _neighbours(self, menu: Ints, place: Ints, rank: Ints) -> Ints:
        """Return the place of the candidate that is the `rank`-th nearest to that at `place`."""
        result = np.empty(len(menu), np.int64)
        for number in np.unique(menu).tolist():
            here = menu == number
            result[here] = self._by_distance(number)[place[here], rank[here]]
        return result

    def _by_distance(self, menu: int) -> Ints:
        """Return, for each place of a menu, the places from itself to the farthest."""
        if menu not in self._orders:
            numbers = self._numbers(self._menus[menu].choices)
            distances = _distances(numbers, numbers)
            np.fill_diagonal(distances, -1.0)
            self._orders[menu] = distances.argsort(axis=1, kind="stable")
        return self._orders[menu]


def entries(value: Value) -> list[bool | int | float | str]:
    """Return what a value consists of, nested tuples flattened."""
    if isinstance(value, tuple):
        return [e for v in value for e in entries(v)]
    return [value]


def size_number(number: float) -> float:
    """Return a number on the scale on which values are compared: the logarithm of base 2."""
    return math.copysign(math.log2(1.0 + abs(number)), number)


def _number(entry: bool | int | float | str, choice: int) -> float:
    """Return an entry as a number; texts are as far from each other as their ids."""
    return float(choice) if isinstance(entry, str) else size_number(entry)


def nearest(value: Value, candidates: Sequence[Value]) -> int:
    """Return the place of the candidate whose numbers differ least from those of a value.

    A text is as near to all others; of equally near ones it is the first.
    """
    for place, candidate in enumerate(candidates):
        if candidate == value and repr(candidate) == repr(value):  # 1 is not yes
            return place
    return min(range(len(candidates)), key=lambda place: _gap(value, candidates[place]))


def _gap(a: Value, b: Value) -> float:
    ours, theirs = entries(a), entries(b)
    gaps = [_entry_gap(x, y) for x, y in zip(ours, theirs, strict=False)]
    return sum(gaps) + _LENGTH_GAP * abs(len(ours) - len(theirs))


def _entry_gap(a: bool | int | float | str, b: bool | int | float | str) -> float:
    if isinstance(a, str) or isinstance(b, str):
        return float(a != b)
    return abs(size_number(a) - size_number(b))


def excess_of(knob: Knob) -> tuple[float, ...]:
    """Return the logarithms of the costs over the least; where there is none, a rule's default.

    Costs that are not all positive say an order only: they are spread from 1 to 2.
    """
    if not knob.costs:
        return tuple(0.0 if i == knob.best else UNKNOWN_EXCESS for i in range(len(knob.candidates)))
    costs = np.array(knob.costs)
    costs = np.where(np.isfinite(costs), costs, np.nanmax(costs[np.isfinite(costs)], initial=1.0))
    least = costs.min()
    ratio = costs / least if least > 0.0 else 1.0 + (costs - least) / max(np.ptp(costs), 1e-30)
    return tuple(np.log(ratio).tolist())


def _distances(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each row of the one is from each of the other, absolute differences added."""
    return np.asarray(np.abs(first[:, None] - second[None]).sum(axis=2))


def _starts(sizes: Sequence[int]) -> Ints:
    return np.cumsum([0, *sizes[:-1]]).astype(np.int64) if len(sizes) else np.empty(0, np.int64)
