# SPDX-License-Identifier: Apache-2.0
"""The space of sketches of a te graph: every candidate is nothing but a list of schedule steps.

No template takes part: what may be done follows from the axes and reads of the stages. The rules
are in `sketch_rules`, the steps of a candidate in `sketch_steps`, the numbers a cost model learns
from in `sketch_features`, and how long the analytic model thinks it takes in `sketch_cost`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product

import numpy as np

from treadle.build.group import build_group
from treadle.errors import TreadleError
from treadle.graph.nodes import Function
from treadle.target.base import Target
from treadle.te.choice import Script
from treadle.te.schedule import Schedule
from treadle.tune.sketch_cost import costs_of
from treadle.tune.sketch_features import NAMES, features_of
from treadle.tune.sketch_limits import within_limits
from treadle.tune.sketch_plans import Unused
from treadle.tune.sketch_rules import SketchRule, sketches_of
from treadle.tune.sketch_slots import Ints, Slot, Values, drawn_rows, moved_rows, size_of
from treadle.tune.sketch_start import first_candidates
from treadle.tune.sketch_steps import steps_of
from treadle.tune.space import Floats

_CHUNK = 64
"""Candidates that are looked at together where all are iterated."""
_TRIES = 2
"""Children that are made of each parent at once, of which some break a limit."""
_PILOT = 64
"""Candidates of each sketch that tell how many keep all limits."""
_MOST_TRIED = 4096
"""Candidates that are drawn at once."""
_MOST_KNOWN = 20_000
"""Candidates whose numbers are remembered."""
_ROUNDS = 20
"""How often candidates are drawn again in place of those that break a limit."""
_STARTS = 16
"""Candidates that are tried first."""


@dataclass(frozen=True, slots=True)
class SketchPoint:
    """A candidate: the number of a sketch, and for each of its slots the place of the value.

    Places are those of one space; outside of it a candidate is what `to_json` says.
    """

    sketch: int
    places: Values = ()


class SketchSpace:
    """All candidates of the sketches of a schedule's tensors.

    `rules` are asked before those of this package. The schedule itself stays as it is; the steps of
    a candidate are for a fresh one. `unused` are terms of its one reduction that are zero.

    Raises: ScheduleError where the target or a symbolic size is none that sketches are made for.
    """

    kind = "sketch"

    def __init__(
        self,
        schedule: Schedule,
        target: Target,
        rules: Sequence[SketchRule] = (),
        *,
        unused: Unused | None = None,
    ) -> None:
        self.schedule = schedule.fresh()
        self.target = target
        found = sketches_of(self.schedule, target, rules)
        self.sketches = [replace(sketch, unused=unused) for sketch in found] if unused else found
        self._known: dict[SketchPoint, tuple[float, Floats]] = {}

    @staticmethod
    def of_function(
        function: Function, target: Target, rules: Sequence[SketchRule] = ()
    ) -> SketchSpace:
        """Return the space of a fused function of a graph."""
        group = build_group(function, target)[0]
        sums = [s for s in group.schedule.stages if getattr(s.op, "reduce_axis", ())]
        count = getattr(group.attrs, "unused", 0) if len(sums) == 1 else 0
        unused = Unused(count, group.attrs.blocks_axis) if count else None
        return SketchSpace(group.schedule, target, rules, unused=unused)

    @property
    def size(self) -> int:
        """The number of choices of all sketches; some of them break a limit or are alike."""
        return sum(size_of(s.slots) for s in self.sketches)

    def start(self) -> list[SketchPoint]:
        """Return what the analytic model likes best, of many kinds: see `sketch_start`."""
        return first_candidates(self, self._kind, _STARTS)

    def _kind(self, point: SketchPoint) -> tuple[Hashable, Hashable]:
        """Return the tiles in registers of a point, and the loops its stages are computed in."""
        sketch = self.sketches[point.sketch]
        tiles = [sketch.slots[k].values[point.places[k]][-1] for k in sketch.register_slots]
        loops = [point.places[k] for k, s in enumerate(sketch.slots) if s.is_place]
        if not tiles:
            loops = [*point.places]
        return (point.sketch, *tiles), (point.sketch, *loops)

    def __iter__(self) -> Iterator[SketchPoint]:
        for number, sketch in enumerate(self.sketches):
            every = product(*(range(len(s.values)) for s in sketch.slots))
            while places := [*islice(every, _CHUNK)]:
                yield from self._valid(number, np.array(places, dtype=np.int64))

    # -- drawing and varying -----------------------------------------------------------------

    def sample(self, count: int, random: np.random.Generator) -> list[SketchPoint]:
        """Return up to `count` candidates that keep all limits, each sketch as often as others."""
        found: list[SketchPoint] = []
        for _ in range(_ROUNDS):
            missing = count - len(found)
            if missing <= 0:
                break
            tried = min(_MOST_TRIED, int(1.2 * missing / self._share) + 8)
            which = random.integers(len(self.sketches), size=tried)
            drawn: list[SketchPoint] = []
            for number in np.unique(which).tolist():
                own = int(np.sum(which == number))
                drawn += self._valid(number, drawn_rows(self.sketches[number].slots, own, random))
            random.shuffle(drawn)
            found += drawn[:missing]
        return found

    @cached_property
    def _share(self) -> float:
        """How many of the candidates that are drawn keep all limits, at least about so."""
        random = np.random.default_rng(0)
        valid = sum(
            len(self._valid(number, drawn_rows(sketch.slots, _PILOT, random)))
            for number, sketch in enumerate(self.sketches)
        )
        return max(0.05, valid / (_PILOT * len(self.sketches)))

    def mutate(
        self, parents: Sequence[SketchPoint], random: np.random.Generator
    ) -> list[SketchPoint]:
        """Return a child of every parent: a factor moved between levels, or another choice changed.

        Of several that are made at once the first that keeps all limits; if none does, the parent
        itself.
        """
        children = list(parents)
        for number, own in self._by_sketch(parents):
            slots = self.sketches[number].slots
            if slots:
                at = [k for k in own for _ in range(_TRIES)]
                rows = np.array([parents[k].places for k in at], dtype=np.int64)
                self._take(number, at, moved_rows(slots, rows, random), children, parents)
        return children

    def cross(
        self,
        first: Sequence[SketchPoint],
        second: Sequence[SketchPoint],
        random: np.random.Generator,
    ) -> list[SketchPoint]:
        """Return a child of every pair: of the first one's sketch, with choices of both.

        What both sketches choose is told by the name of the choice, so parents may differ in that.
        """
        children = list(first)
        for number, own in self._by_sketch(first):
            rows = np.array([first[k].places for k in own], dtype=np.int64)
            others = np.stack([self._places_in(number, second[k]) for k in own])
            take = (random.random(rows.shape) < 0.5) & (others >= 0)
            self._take(number, own, np.where(take, others, rows), children, first)
        return children

    def _take(
        self,
        number: int,
        at: Sequence[int],
        rows: Ints,
        children: list[SketchPoint],
        parents: Sequence[SketchPoint],
    ) -> None:
        """Put rows that keep all limits in the places of the children, the first of each."""
        valid = within_limits(self.sketches[number], rows, self.target)
        is_other = (rows != np.array([parents[k].places for k in at], dtype=np.int64)).any(axis=1)
        found = np.flatnonzero(valid & is_other)
        which, first = np.unique(np.array(at)[found], return_index=True)
        points = self._evaluated(number, rows[found[first]])
        for k, child in zip(which.tolist(), points, strict=True):
            children[k] = child

    def _places_in(self, number: int, point: SketchPoint) -> Ints:
        """Return the values of a point as places in the slots of a sketch, -1 where it has none."""
        if point.sketch == number:
            return np.array(point.places, dtype=np.int64)
        values = self._values(point)
        slots = self.sketches[number].slots
        return np.array([s.places.get(values.get(s.key, ()), -1) for s in slots], dtype=np.int64)

    def _by_sketch(self, points: Sequence[SketchPoint]) -> Iterator[tuple[int, list[int]]]:
        """Yield the number of every sketch that has points, and which those are."""
        groups: dict[int, list[int]] = {}
        for k, point in enumerate(points):
            groups.setdefault(point.sketch, []).append(k)
        yield from sorted(groups.items())

    # -- numbers -----------------------------------------------------------------------------

    def features(self, candidates: Sequence[SketchPoint]) -> Floats:
        """Return float32[candidates, columns]: see `sketch_features.NAMES`."""
        if not candidates:
            return np.zeros((0, len(NAMES)), np.float32)
        return np.stack([row for _, row in self._known_of(candidates)])

    def estimate(self, candidates: Sequence[SketchPoint]) -> Floats:
        """Return the cycles each takes by the analytic model: float32[candidates]."""
        return np.array([cycles for cycles, _ in self._known_of(candidates)], dtype=np.float32)

    def _known_of(self, candidates: Sequence[SketchPoint]) -> list[tuple[float, Floats]]:
        """Return the cycles and the features of candidates, computed once."""
        unknown = [c for c in dict.fromkeys(candidates) if c not in self._known]
        for number, own in self._by_sketch(unknown):
            rows = np.array([unknown[k].places for k in own], dtype=np.int64)
            self._evaluated(number, rows.reshape(len(own), -1))
        return [self._known[c] for c in candidates]

    def _evaluated(self, number: int, rows: Ints) -> list[SketchPoint]:
        """Return the points of rows; their numbers are computed and remembered."""
        points = [SketchPoint(number, tuple(row)) for row in rows.tolist()]
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        costs = costs_of(self.sketches[number], rows, self.target)
        known = zip(costs.cycles.tolist(), features_of(costs), strict=True)
        self._known.update(zip(points, known, strict=True))
        return points

    def _valid(self, number: int, rows: Ints) -> list[SketchPoint]:
        """Return the points of rows that keep all limits."""
        valid = within_limits(self.sketches[number], rows, self.target)
        return self._evaluated(number, rows[valid])

    def _values(self, point: SketchPoint) -> dict[str, Values]:
        slots = self.sketches[point.sketch].slots
        return {s.key: s.values[k] for s, k in zip(slots, point.places, strict=True)}

    # -- steps and records -------------------------------------------------------------------

    def choice(self, candidate: SketchPoint) -> Script | None:
        """Return the steps of a candidate; None where a step is refused."""
        sketch = self.sketches[candidate.sketch]
        try:
            return Script(steps_of(self.schedule, sketch, self._values(candidate)))
        except TreadleError:
            return None

    def to_json(self, candidate: SketchPoint) -> object:
        """Return {"sketch": number, "tiles": {key: factors}, "choices": {key: value}}."""
        slots = self.sketches[candidate.sketch].slots
        values = self._values(candidate)
        tiles = {s.key: list(values[s.key]) for s in slots if s.is_tile}
        choices = {s.key: values[s.key][0] for s in slots if not s.is_tile}
        return {"sketch": candidate.sketch, "tiles": tiles, "choices": choices}

    def from_json(self, data: object) -> SketchPoint | None:
        """Return the candidate `to_json` has described; None for anything else."""
        if not isinstance(data, dict) or set(data) != {"sketch", "tiles", "choices"}:
            return None
        number, tiles, choices = data["sketch"], data["tiles"], data["choices"]
        if type(number) is not int or not 0 <= number < len(self.sketches):
            return None
        slots = self.sketches[number].slots
        parts = ([s for s in slots if s.is_tile], [s for s in slots if not s.is_tile])
        places = []
        for own, given in zip(parts, (tiles, choices), strict=True):
            if not isinstance(given, dict) or set(given) != {s.key for s in own}:
                return None
            places += [_place(slot, given[slot.key]) for slot in own]
        if None in places:
            return None
        found = self._valid(number, np.array([places], dtype=np.int64))
        return found[0] if found else None


def _place(slot: Slot, value: object) -> int | None:
    """Return the place of a value out of JSON, None where it is none of the slot's."""
    numbers = value if slot.is_tile else [value]
    if not isinstance(numbers, list) or any(type(v) is not int for v in numbers):
        return None
    return slot.places.get(tuple(numbers))
