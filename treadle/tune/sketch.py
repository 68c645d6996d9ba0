# SPDX-License-Identifier: Apache-2.0
"""The space of sketches of a te graph: every candidate is nothing but a list of schedule steps.

No template takes part: what may be done follows from the axes and reads of the stages. The rules
are in `sketch_rules`, the steps of a candidate in `sketch_steps`, the numbers a cost model learns
from in `sketch_features`, and how long the analytic model thinks it takes in `sketch_cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest

import numpy as np
from numpy.typing import NDArray

from treadle.build.group import build_group
from treadle.errors import TreadleError
from treadle.graph.nodes import Function
from treadle.target.base import Target
from treadle.te.choice import Script
from treadle.te.schedule import Schedule
from treadle.tune.sketch_cost import Costs, costs_of
from treadle.tune.sketch_features import features_of
from treadle.tune.sketch_plans import Sketch
from treadle.tune.sketch_rules import SketchRule, sketches_of
from treadle.tune.sketch_slots import Ints, Slot, Values, size_of
from treadle.tune.sketch_steps import steps_of
from treadle.tune.space import Floats

_Vary = Callable[[int, Sketch, Ints], Ints]
_Numbers = Callable[[Costs], NDArray[np.generic]]

_ROUNDS = 20
"""How often candidates are drawn again in place of those that break a limit."""
_START_SAMPLES = 512
_STARTS = 8
_START_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class SketchPoint:
    """A candidate: the number of a sketch, and a value for each of its open choices, in order.

    `tiles` are the factors of every tiled axis from the outer level to the inner, without the
    outermost, which follows; `choices` are all else: what is unrolled, computed where, and so on.
    """

    sketch: int
    tiles: tuple[Values, ...] = ()
    choices: Values = ()


class SketchSpace:
    """All candidates of the sketches of a schedule's tensors.

    `rules` are asked before those of this package. The schedule itself stays as it is; the steps of
    a candidate are for a fresh one.

    Raises: ScheduleError where the target or a symbolic size is none that sketches are made for.
    """

    kind = "sketch"

    def __init__(
        self, schedule: Schedule, target: Target, rules: Sequence[SketchRule] = ()
    ) -> None:
        self.schedule = schedule.fresh()
        self.target = target
        self.sketches = sketches_of(self.schedule, target, rules)

    @staticmethod
    def of_function(
        function: Function, target: Target, rules: Sequence[SketchRule] = ()
    ) -> SketchSpace:
        """Return the space of a fused function of a graph."""
        return SketchSpace(build_group(function, target)[0].schedule, target, rules)

    @property
    def size(self) -> int:
        """The number of choices of all sketches; some of them break a limit or are alike."""
        return sum(size_of(s.slots) for s in self.sketches)

    def start(self) -> list[SketchPoint]:
        """Return the best by the analytic model of some drawn with a fixed seed, and bettered ones.

        The model is not exact, so all have different tiles: the best that were drawn and, in turn
        with them, what mutations made of those as long as the model thought so.
        """
        random = np.random.default_rng(0)
        drawn = self._ranked(self.sample(_START_SAMPLES, random))
        better = drawn[:_STARTS]
        for _ in range(_START_ROUNDS):
            near = self.mutate([parent for parent in better for _ in range(4)], random)
            better = self._ranked([*better, *near])[:_STARTS]
        in_turn = [p for pair in zip_longest(better, drawn[: 2 * _STARTS]) for p in pair if p]
        by_tiles: dict[object, SketchPoint] = {}
        for point in in_turn:
            by_tiles.setdefault((point.sketch, point.tiles or point.choices), point)
        return list(by_tiles.values())[: 2 * _STARTS]

    def _ranked(self, points: Sequence[SketchPoint]) -> list[SketchPoint]:
        """Return different points, the one the model prefers first."""
        different = list(dict.fromkeys(points))
        return [different[k] for k in np.argsort(self.estimate(different), kind="stable")]

    def __iter__(self) -> Iterator[SketchPoint]:
        for number, sketch in enumerate(self.sketches):
            for places in product(*(range(len(s.values)) for s in sketch.slots)):
                row = np.array([places], dtype=np.int64).reshape(1, -1)
                if costs_of(sketch, row, self.target).is_valid[0]:
                    yield _point(number, sketch, row[0])

    # -- drawing and varying -----------------------------------------------------------------

    def sample(self, count: int, random: np.random.Generator) -> list[SketchPoint]:
        """Return up to `count` candidates that keep all limits, each sketch as often as others."""
        found: list[SketchPoint] = []
        for _ in range(_ROUNDS):
            missing = count - len(found)
            if missing <= 0:
                break
            which = random.integers(len(self.sketches), size=2 * missing)
            drawn: list[SketchPoint] = []
            for number in np.unique(which):
                sketch = self.sketches[number]
                rows = _drawn(sketch.slots, int(np.sum(which == number)), random)
                valid = costs_of(sketch, rows, self.target).is_valid
                drawn += [_point(int(number), sketch, row) for row in rows[valid]]
            random.shuffle(drawn)
            found += drawn[:missing]
        return found

    def mutate(
        self, parents: Sequence[SketchPoint], random: np.random.Generator
    ) -> list[SketchPoint]:
        """Return a child of every parent: a factor moved between levels, or another choice changed.

        A child that breaks a limit is drawn again; after some rounds it is the parent itself.
        """

        def vary(_: int, sketch: Sketch, row: Ints) -> Ints:
            child = row.copy()
            for _ in range(1 + int(random.random() < 0.3)):
                k = int(random.integers(len(sketch.slots)))
                child[k] = sketch.slots[k].moved(int(row[k]), random)
            return child

        return self._children(parents, vary)

    def cross(
        self,
        first: Sequence[SketchPoint],
        second: Sequence[SketchPoint],
        random: np.random.Generator,
    ) -> list[SketchPoint]:
        """Return a child of every pair: of the first one's sketch, with choices of both.

        What both sketches choose is told by the name of the choice, so parents may differ in that.
        """

        def mix(number: int, sketch: Sketch, row: Ints) -> Ints:
            other = self._values(second[number])
            child = row.copy()
            take = random.random(len(row)) < 0.5
            for k, slot in enumerate(sketch.slots):
                place = slot.places.get(other.get(slot.key, ()))
                if take[k] and place is not None:
                    child[k] = place
            return child

        return self._children(first, mix, rounds=1)

    def _children(
        self,
        parents: Sequence[SketchPoint],
        vary: _Vary,
        rounds: int = _ROUNDS,
    ) -> list[SketchPoint]:
        """Return what `vary` makes of parents, tried again where that breaks a limit."""
        children = list(parents)
        waiting = [k for k, p in enumerate(parents) if self.sketches[p.sketch].slots]
        for _ in range(rounds):
            made = [
                (k, vary(k, self.sketches[parents[k].sketch], self._row(parents[k])))
                for k in waiting
            ]
            waiting = []
            for number, sketch in enumerate(self.sketches):
                own = [(k, row) for k, row in made if parents[k].sketch == number]
                if not own:
                    continue
                rows = np.stack([row for _, row in own])
                valid = costs_of(sketch, rows, self.target).is_valid
                for (k, row), good in zip(own, valid, strict=True):
                    child = _point(number, sketch, row) if good else parents[k]
                    children[k] = child
                    if child == parents[k]:
                        waiting.append(k)
            if not waiting:
                break
        return children

    # -- numbers -----------------------------------------------------------------------------

    def features(self, candidates: Sequence[SketchPoint]) -> Floats:
        """Return float32[candidates, columns]: see `sketch_features.NAMES`."""
        return self._gathered(candidates, features_of)

    def estimate(self, candidates: Sequence[SketchPoint]) -> Floats:
        """Return the cycles each takes by the analytic model: float32[candidates]."""

        def cycles(costs: Costs) -> NDArray[np.float64]:
            return costs.cycles[:, None]

        return self._gathered(candidates, cycles)[:, 0]

    def _gathered(self, candidates: Sequence[SketchPoint], numbers: _Numbers) -> Floats:
        """Return a row of numbers for each candidate, computed by sketch."""
        found: Floats | None = None
        which = np.array([c.sketch for c in candidates], dtype=np.int64)
        for number in np.unique(which):
            own = np.flatnonzero(which == number)
            rows = np.stack([self._row(candidates[int(k)]) for k in own])
            made = numbers(costs_of(self.sketches[number], rows, self.target))
            if found is None:
                found = np.zeros((len(candidates), made.shape[1]), np.float32)
            found[own] = made
        return np.zeros((0, 1), np.float32) if found is None else found

    def _row(self, point: SketchPoint) -> Ints:
        """Return the places of the values of a point among those of its slots."""
        slots = self.sketches[point.sketch].slots
        values = (*point.tiles, *((v,) for v in point.choices))
        places = [slot.places[value] for slot, value in zip(slots, values, strict=True)]
        return np.array(places, dtype=np.int64)

    def _values(self, point: SketchPoint) -> dict[str, Values]:
        slots = self.sketches[point.sketch].slots
        values = (*point.tiles, *((v,) for v in point.choices))
        return {slot.key: value for slot, value in zip(slots, values, strict=True)}

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
        count = len(candidate.tiles)
        tiles = {s.key: list(v) for s, v in zip(slots[:count], candidate.tiles, strict=True)}
        choices = {s.key: v for s, v in zip(slots[count:], candidate.choices, strict=True)}
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
        row = np.array(places, dtype=np.int64)
        is_valid = costs_of(self.sketches[number], row[None], self.target).is_valid[0]
        return _point(number, self.sketches[number], row) if is_valid else None


def _place(slot: Slot, value: object) -> int | None:
    """Return the place of a value out of JSON, None where it is none of the slot's."""
    numbers = value if slot.is_tile else [value]
    if not isinstance(numbers, list) or any(type(v) is not int for v in numbers):
        return None
    return slot.places.get(tuple(numbers))


def _drawn(slots: Sequence[Slot], count: int, random: np.random.Generator) -> Ints:
    """Return places of values for `count` candidates: int64[count, slots]."""
    if not slots:
        return np.zeros((count, 0), np.int64)
    return np.stack([s.draw(count, random) for s in slots], axis=1)


def _point(number: int, sketch: Sketch, row: Ints) -> SketchPoint:
    values = [s.values[k] for s, k in zip(sketch.slots, row, strict=True)]
    count = sum(s.is_tile for s in sketch.slots)
    return SketchPoint(number, tuple(values[:count]), tuple(v for (v,) in values[count:]))
