# SPDX-License-Identifier: Apache-2.0
"""The space of a schedule template: configurations of its knobs as candidates of a search.

A run of a template takes milliseconds, so nothing here runs it for every candidate: populations
walk the tree of choices as far as earlier runs have shown it (`paths.py`), and `choice` runs the
template for what is to be measured, which says whether such a path exists and makes it known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from treadle.errors import ConfigError, ScheduleError
from treadle.te.knobs import DEFAULTS, Config, Knob, Space, Value
from treadle.tune.knob_features import KnobColumns
from treadle.tune.paths import Ints, Paths, Walk, excess_of, nearest
from treadle.tune.space import Floats

_FIRST_OF_KNOB = 6
"""So many other values of one knob are among the first candidates to try,"""
_FIRST_SINGLES = 12
"""so many changes of one knob in all, the cheapest of every knob before all others,"""
_FIRST_PAIRS = 3
"""and so many pairs of changes."""

_NEAR = 0.5
_NEAREST = 4
"""A mutation takes one of so many nearest values of a knob by this chance, else any."""
_SECOND_CHANGE = 0.3
"""The chance that a mutation changes two knobs."""


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate of a TemplateSpace: the ids of its choices, in the order they are made.

    Ids have a meaning in their space alone; `TemplateSpace.to_json` names knobs and values.
    """

    choices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Change:
    """Another value of one knob, and the logarithm of what it costs over the best."""

    excess: float
    knob: str
    value: Value


class TemplateSpace:
    """The configurations of a template as candidates.

    A candidate names every knob. Where it was drawn along a path that no run has shown, it may
    turn out that the template does not offer one of its values there. The candidate then stands for
    the configuration with the nearest values (in `choice`, `to_json` and all else), unless another
    candidate has that already: then it is no candidate. What was learned keeps the next ones right.
    The analytic model is that of the template's own knobs (`estimate`).

    Raises: ConfigError, ScheduleError or InternalError where the template does not run.
    """

    kind = "template"

    def __init__(self, space: Space) -> None:
        self._space = space
        self._paths = Paths()
        self._configs: dict[Point, Config] = {}
        self._meant: dict[Point, Point | None] = {}
        self._taken: dict[Point, Point] = {}
        self._start: list[Point] = []
        self._columns: KnobColumns | None = None
        self._default_knobs = space.knobs()
        self._is_guided = any(knob.costs for knob in self._default_knobs)
        self._default = self._learn(self._default_knobs)
        self._size = 1
        for knob in self._default_knobs:
            self._size *= len(knob.candidates)

    @property
    def size(self) -> int:
        """The number of configurations, as far as the default path shows it (`Space.size`)."""
        return self._size

    # -- first candidates ------------------------------------------------------------------------

    def start(self) -> list[Point]:
        """Return some 16 points to try first; the default alone where no knob says what costs less.

        First the default, then points with one knob changed and the others at what is then their
        default, the cheapest by the knobs' own costs first, then pairs of such changes.
        """
        if not self._start:
            changes = self._cheapest_changes()
            pairs = [
                (a.excess + b.excess, {a.knob: a.value, b.knob: b.value})
                for a, b in combinations(changes, 2)
                if a.knob != b.knob
            ]
            pairs.sort(key=lambda pair: pair[0])
            ways = [{c.knob: c.value} for c in changes] + [way for _, way in pairs[:_FIRST_PAIRS]]
            found = [self._run(way) for way in ways]
            exist = [point for point in found if point is not None]
            self._start = list(dict.fromkeys((self._default, *exist)))
        return list(self._start) if self._is_guided else self._start[:1]

    def _cheapest_changes(self) -> list[_Change]:
        """Return changes of one knob of the default, the cheapest first."""
        found: list[tuple[int, _Change]] = []
        for knob in self._default_knobs:
            excess = excess_of(knob)
            others = [i for i in range(len(knob.candidates)) if i != knob.chosen]
            others = sorted(others, key=excess.__getitem__)[:_FIRST_OF_KNOB]
            changes = [_Change(excess[i], knob.name, knob.candidates[i]) for i in others]
            found += enumerate(changes)
        found.sort(key=lambda pair: (pair[0] > 0, pair[1].excess))
        return sorted((c for _, c in found[:_FIRST_SINGLES]), key=lambda c: c.excess)

    def __iter__(self) -> Iterator[Point]:
        return map(self._learn, self._space.runs())

    # -- populations -----------------------------------------------------------------------------

    def sample(self, count: int, random: np.random.Generator) -> list[Point]:
        """Return points of which every knob is drawn evenly from its candidates."""
        return _points(self._paths.draw(count, random))

    def mutate(self, parents: Sequence[Point], random: np.random.Generator) -> list[Point]:
        """Return points with one or two knobs changed; those after them keep what is allowed."""
        if not parents:
            return []
        walk = self._walk(parents)
        once = self._vary(walk, random)
        again = self._vary(once, random)
        twice = (random.random(len(parents)) < _SECOND_CHANGE)[:, None]
        return _points(Walk(np.where(twice, again.rows, once.rows), once.nodes, once.excess))

    def _vary(self, walk: Walk, random: np.random.Generator) -> Walk:
        return self._paths.follow(self._paths.vary(walk, random, _NEAR, _NEAREST))

    def cross(
        self, first: Sequence[Point], second: Sequence[Point], random: np.random.Generator
    ) -> list[Point]:
        """Return points of which every knob is that of one parent or of the other."""
        if not first:
            return []
        a, b = self._by_knob(first), self._by_knob(second)
        take = (random.random(a.shape) < 0.5) & (a >= 0) | (b < 0)
        return _points(self._paths.follow(np.where(take, a, b)))

    def features(self, candidates: Sequence[Point]) -> Floats:
        """Return numbers of the knobs (`KnobColumns`); the columns are those of `start`."""
        if self._columns is None:
            self.start()
            self._columns = KnobColumns(self._paths.knobs, self._paths.values)
        walk = self._walk(candidates)
        excess = self._paths.excess_by_knob(walk)
        return self._columns.rows(self._paths.values, self._paths.by_knob(walk.rows), excess)

    def estimate(self, candidates: Sequence[Point]) -> Floats:
        """Return how much longer each takes than the best by the model of every knob.

        That is the product over the knobs of the value's cost over the least of its candidates;
        of a knob without a model, other values than the default count as 2 % slower. Costs of
        knobs are in units of their own, so this orders candidates, and says little of how much
        faster one is. NaN where no knob has a model.
        """
        if not self._is_guided:
            return np.full(len(candidates), np.nan, np.float32)
        excess = self._walk(candidates).excess.sum(axis=1)
        return np.asarray(np.exp(excess), np.float32)

    def _by_knob(self, points: Sequence[Point]) -> Ints:
        meant = (self._meant.get(p) or p for p in points)
        return self._paths.by_knob(self._paths.rows([p.choices for p in meant]))

    def _walk(self, points: Sequence[Point]) -> Walk:
        return self._paths.follow(self._by_knob(points))

    # -- single candidates -----------------------------------------------------------------------

    def choice(self, candidate: Point) -> Config | None:
        """Return the configuration of a point, all knobs named; None where there is none such.

        That is where another candidate has the configuration it comes to, or the template refuses
        what it was told (ConfigError, ScheduleError). Of what else a template raises nothing is
        caught.
        """
        if candidate not in self._meant:
            known = candidate if candidate in self._configs else self._run(self._named(candidate))
            is_free = known is not None and self._taken.setdefault(known, candidate) == candidate
            self._meant[candidate] = known if is_free else None
        meant = self._meant[candidate]
        return None if meant is None else self._configs[meant]

    def to_json(self, candidate: Point) -> object:
        """Return an object of knobs and values."""
        return Config.of(self._named(self._meant.get(candidate) or candidate)).to_json()

    def from_json(self, data: object) -> Point | None:
        """Return the point of what `to_json` gave; knobs that are not named are at their default.

        The template is run where the known paths do not have it.
        """
        try:
            config = Config.from_json(data)
            point = self._shown(config)
            if point is None:
                made = self._space.knobs(config)
                if not {k.name for k in made} >= {name for name, _ in config.values}:
                    return None
                point = self._learn(made)
        except (ConfigError, ScheduleError):
            return None
        return self._taken.setdefault(point, point)

    def _named(self, point: Point) -> dict[str, Value]:
        return dict(self._paths.values[c] for c in point.choices)

    def _shown(self, config: Config) -> Point | None:
        """Return the point of a configuration where the known paths have it."""
        ids = [self._paths.choice_id(name, value) for name, value in config.values]
        known = tuple(i for i in ids if i is not None)
        if len(known) < len(ids) or not known:
            return None
        (point,) = _points(self._walk([Point(known)]))
        return point if set(point.choices) == set(known) else None

    def _run(self, wanted: Mapping[str, Value]) -> Point | None:
        """Return the point of a run that takes what is nearest to what is wanted of the knobs."""

        def choose(knob: Knob) -> int:
            if knob.name not in wanted:
                return knob.best
            return nearest(wanted[knob.name], knob.candidates)

        try:
            made = self._space.knobs(DEFAULTS, choose)
        except (ConfigError, ScheduleError):
            return None
        return self._learn(made)

    def _learn(self, made: Sequence[Knob]) -> Point:
        point = Point(self._paths.learn(made))
        self._configs[point] = Config(tuple((k.name, k.value) for k in made))
        return point


def _points(walk: Walk) -> list[Point]:
    """Return the points of rows, without what stands after the end of a path."""
    rows = walk.rows.tolist()
    if walk.rows.size == 0 or walk.rows[:, -1].min() >= 0:
        return [Point(tuple(row)) for row in rows]
    return [Point(tuple(c for c in row if c >= 0)) for row in rows]
