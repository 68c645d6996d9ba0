# SPDX-License-Identifier: Apache-2.0
"""Knobs: what a schedule template lets others choose, and one configuration of it.

A template is `f(group, target, knobs)`. It asks `knobs` for every choice that changes how fast a
kernel runs and not what it computes; without a configured value it gets the cheapest candidate by
its own model. What was asked is recorded: that is the space of the template.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from random import Random
from typing import TypeAlias, TypeVar

from treadle.errors import ConfigError, ScheduleError

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...]"
"""What a knob is set to. Plain, so that it is text, JSON and a part of keys."""

Cost: TypeAlias = "float | tuple[float, ...]"
"""What a candidate costs; of a tuple the first entry, the others decide between equal ones."""

T = TypeVar("T")

_DEEPEST = 4
_LARGEST = 1 << 62
_LONGEST_NAME = 200
_MOST_KNOBS = 10_000
_SHOWN = 12
"""So many candidates stand in an error."""


@dataclass(frozen=True, slots=True)
class Config:
    """Values of some knobs of a kernel, as (name, value) pairs in the order they were chosen.

    Knobs that it does not name are at their defaults: an empty one is the default schedule.

    Raises: ConfigError where a name or value cannot be one of a knob, or a name stands twice.

    >>> Config.of({"tile": (1, 14, 4), "band": 7})
    """

    values: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        if len(self.values) > _MOST_KNOBS:
            raise ConfigError(f"a configuration of {len(self.values)} knobs is too large")
        seen: set[str] = set()
        for name, value in self.values:
            _check_name(name)
            _check_value(name, value)
            if name in seen:
                raise ConfigError(f"knob {name!r} stands twice in a configuration")
            seen.add(name)

    @staticmethod
    def of(values: Mapping[str, object]) -> Config:
        """Return the configuration with these values, lists taken as tuples."""
        return Config(tuple((name, _frozen(name, value)) for name, value in values.items()))

    @staticmethod
    def from_json(data: object) -> Config:
        """Return the configuration that `to_json` made `data` of.

        Raises: ConfigError where it is none.
        """
        if not isinstance(data, dict):
            raise ConfigError(
                f"a configuration is an object of knobs and values, not {_cut(data)}",
                hint='for example {"tile": [1, 14, 4]}',
            )
        return Config.of(data)

    def to_json(self) -> dict[str, object]:
        """Return plain data for a JSON file: an object of values, tuples as lists."""
        return {name: _thawed(value) for name, value in self.values}

    def get(self, name: str) -> Value | None:
        """Return the value of a knob, None where it is at its default."""
        return next((value for n, value in self.values if n == name), None)

    def changed(self, name: str, value: object) -> Config:
        """Return this configuration with one knob set to another value."""
        return Config.of({**dict(self.values), name: value})

    def __str__(self) -> str:
        return ", ".join(f"{n} = {value_text(v)}" for n, v in self.values) or "defaults"


DEFAULTS = Config()
"""The configuration that sets nothing: every knob as its model says."""


def value_text(value: Value) -> str:
    """Return a value as people read it: `1 × 14 × 4`, `yes`, `7`."""
    if isinstance(value, tuple):
        return " × ".join(f"({value_text(v)})" if isinstance(v, tuple) else value_text(v)
                          for v in value)  # fmt: skip
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Knob:
    """One choice as a template made it: the candidates, what each costs, which was taken.

    `costs` are empty where no model says what a candidate costs; the first is the default then.
    `best` is the place of the default among the candidates, `chosen` that of the value taken.
    `parts` name what the entries of a value are where the template has names for them.
    """

    name: str
    candidates: tuple[Value, ...]
    costs: tuple[float, ...]
    best: int
    chosen: int
    parts: tuple[str, ...] = ()

    @property
    def value(self) -> Value:
        """What the schedule was made with."""
        return self.candidates[self.chosen]

    @property
    def is_default(self) -> bool:
        """True when the value is the one an empty configuration has."""
        return self.chosen == self.best

    @property
    def cost(self) -> float | None:
        """What the model says of the value."""
        return self.costs[self.chosen] if self.costs else None

    @property
    def next_best(self) -> int | None:
        """The place of the cheapest candidate other than the value; None if there is none.

        Of equal ones the first.
        """
        others = [i for i in range(len(self.candidates)) if i != self.chosen]
        return min(others, key=lambda i: self.costs[i] if self.costs else 0.0, default=None)


Chooser = Callable[[Knob], int]
"""Says which candidate a knob takes that the configuration does not name (`chosen` is the best)."""


@dataclass(slots=True)
class _Pick:
    """One choice as it was made; a Knob is made of it when somebody asks, which few do."""

    options: Sequence[object]
    costs: list[float]
    best: int
    chosen: int

    def knob(self, name: str) -> Knob:
        candidates = tuple(map(plain, self.options))
        parts = _parts(self.options[0])
        return Knob(name, candidates, tuple(self.costs), self.best, self.chosen, parts)


@dataclass(slots=True)
class _Record:
    """What all name spaces of one run of a template share."""

    config: dict[str, Value]
    choose: Chooser | None
    made: dict[str, _Pick] = field(default_factory=dict)
    spaces: dict[str, int] = field(default_factory=dict)


class Knobs:
    """What a template asks for its choices; it hands out those of a configuration or the best."""

    def __init__(self, config: Config = DEFAULTS, *, choose: Chooser | None = None) -> None:
        self._record = _Record(dict(config.values), choose)
        self._prefix = ""

    def within(self, name: str) -> Knobs:
        """Return knobs whose names begin with `name.`; the second of one name begin with `name_2.`.

        For a part of a template that is run more than once, such as for every stage.
        """
        path = self._prefix + name
        count = self._record.spaces[path] = self._record.spaces.get(path, 0) + 1
        inner = Knobs()
        inner._record = self._record
        inner._prefix = f"{path}_{count}." if count > 1 else f"{path}."
        return inner

    def pick(self, name: str, candidates: Iterable[T], *, cost: Callable[[T], Cost]) -> T:
        """Return the candidate that the configuration names, else the cheapest, else the first.

        Candidates are values of knobs, or dataclasses of such, which a configuration names by the
        tuple of their fields. There is at least one.

        Raises:
            ConfigError: the configuration has a value that is none of them.
            ScheduleError: there is no candidate, or the template has asked for this name before.
        """
        options = list(candidates)
        ranks = [cost(c) for c in options]
        best = min(range(len(options)), key=ranks.__getitem__, default=0)
        costs = [float(r[0] if isinstance(r, tuple) else r) for r in ranks]
        return options[self._settle(name, options, costs, best)]

    def option(self, name: str, default: T, others: Iterable[T]) -> T:
        """Return the candidate that the configuration names, else `default`.

        For what is decided by a rule: no model says what the others cost.

        Raises: as `pick`.
        """
        options = list(dict.fromkeys((default, *others)))
        return options[self._settle(name, options, [], 0)]

    def flag(self, name: str, default: bool) -> bool:
        """Return whether to do something of which no model says what it costs.

        Raises: as `pick`.
        """
        return self.option(name, bool(default), (not default,))

    def _settle(self, name: str, options: Sequence[object], costs: list[float], best: int) -> int:
        """Record a knob; return the place of the candidate it takes."""
        full = self._prefix + name
        if not options:
            raise ScheduleError(f"knob {full} has no candidates")
        if full in self._record.made:
            raise ScheduleError(
                f"the template asks for knob {full} twice",
                hint="give each choice a name of its own, or ask for it in knobs.within(...)",
            )
        _check_name(full)
        plain(options[best])
        pick = _Pick(options, costs, best, best)
        if full in self._record.config:
            pick.chosen = self._place(pick.knob(full))
        elif self._record.choose is not None:
            pick.chosen = self._record.choose(pick.knob(full))
        self._record.made[full] = pick
        return pick.chosen

    def _place(self, knob: Knob) -> int:
        """Return the place among the candidates of the value in the configuration."""
        value = self._record.config[knob.name]
        for place, candidate in enumerate(knob.candidates):
            if _same(candidate, value):
                return place
        raise ConfigError(
            f"{value_text(value)} is no candidate of knob {knob.name}",
            hint=f"there is {_listed(value_text(c) for c in knob.candidates)}",
        )

    @property
    def made(self) -> tuple[Knob, ...]:
        """The choices that were made so far, in order."""
        return tuple(pick.knob(name) for name, pick in self._record.made.items())

    @property
    def config(self) -> Config:
        """The choices that were made so far as a configuration that names all of them."""
        return Config(tuple((k.name, k.value) for k in self.made))

    def check_known(self) -> None:
        """Raise ConfigError where the configuration names what the template did not ask for."""
        for name in self._record.config:
            if name not in self._record.made:
                close = difflib.get_close_matches(name, self._record.made, 1)
                there_is = f"there is {_listed(self._record.made) or 'none'}"
                raise ConfigError(
                    f"there is no knob {name[:_LONGEST_NAME]}",
                    hint=f"did you mean {close[0]}?" if close else there_is,
                )


@dataclass(frozen=True, slots=True)
class Space:
    """All configurations of a template that was given: each knob set to each of its candidates.

    `run(knobs)` applies the template anew, and refuses a configuration that does not fit it. The
    candidates of a knob may depend on the choices
    before it (and on nothing else), so the space is a tree, known one run at a time:

    - `knobs(config)` are the choices along one path: those of `config`, then the defaults.
    - iteration gives every configuration once, all knobs named, the default first; each takes a
      run of the template. What the template refuses (ConfigError, ScheduleError) is left out.
    - `size` is the product of the numbers of candidates along the default path. It is the number
      of configurations where no knob's candidates depend on another's value, else an estimate;
      `sum(1 for _ in space)` counts them.
    """

    run: Callable[[Knobs], object]

    def knobs(self, config: Config = DEFAULTS, choose: Chooser | None = None) -> tuple[Knob, ...]:
        """Return the choices of a run with `config`; what it does not name as `choose` says.

        Raises: ConfigError where the configuration does not fit the template.
        """
        return self._run(config, choose).made

    def _run(self, config: Config, choose: Chooser | None = None) -> Knobs:
        knobs = Knobs(config, choose=choose)
        self.run(knobs)
        return knobs

    @property
    def size(self) -> int:
        """The number of configurations, as far as one run of the template shows it."""
        return math.prod(len(k.candidates) for k in self.knobs())

    def __iter__(self) -> Iterator[Config]:
        return (Config(tuple((k.name, k.value) for k in made)) for made in self.runs())

    def runs(self) -> Iterator[tuple[Knob, ...]]:
        """Yield the choices of every configuration, in the order of iteration."""
        pending = [DEFAULTS]
        while pending:
            start = pending.pop()
            knobs = Knobs(start)
            is_valid = True
            try:
                self.run(knobs)
            except (ConfigError, ScheduleError):
                is_valid = False  # so is all that begins with the choices made until then
            made = knobs.made
            path = [(k.name, k.value) for k in made]
            if is_valid:
                yield made
            for depth in range(len(start.values), len(made)):
                knob = made[depth]
                others = [c for i, c in enumerate(knob.candidates) if i != knob.chosen]
                pending += [Config((*path[:depth], (knob.name, c))) for c in reversed(others)]

    def sample(self, random: Random) -> Config:
        """Return a configuration of which every knob is drawn evenly from its candidates."""
        return self._run(DEFAULTS, lambda knob: random.randrange(len(knob.candidates))).config


def plain(candidate: object) -> Value:
    """Return a candidate as the value that stands for it: a dataclass as the tuple of its fields.

    Raises: ScheduleError where it cannot be one.
    """
    if isinstance(candidate, (bool, int, float, str)):
        return candidate
    if isinstance(candidate, tuple):
        return tuple(plain(c) for c in candidate)
    if is_dataclass(candidate) and not isinstance(candidate, type):
        return tuple(plain(getattr(candidate, f.name)) for f in fields(candidate))
    raise ScheduleError(
        f"{_cut(candidate)} cannot be a candidate of a knob",
        hint="candidates are bool, int, float, str, or tuples or dataclasses of these",
    )


def _parts(candidate: object) -> tuple[str, ...]:
    return tuple(f.name for f in fields(candidate)) if is_dataclass(candidate) else ()


def _same(a: Value, b: Value) -> bool:
    """True for equal values of equal types: no number stands for yes or no."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and a == b


def _check_name(name: object) -> None:
    is_name = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable()
    if not is_name:
        raise ConfigError(f"{_cut(name)} is not the name of a knob")


def _check_value(name: str, value: object, depth: int = 0) -> None:
    if isinstance(value, tuple) and depth < _DEEPEST:
        for part in value:
            _check_value(name, part, depth + 1)
        return
    is_number = isinstance(value, (int, float)) and abs(value) < _LARGEST  # so no NaN, no infinity
    if not is_number and not (isinstance(value, str) and len(value) <= _LONGEST_NAME):
        raise ConfigError(
            f"{_cut(value)} is no value of knob {name}",
            hint="values are true, false, numbers, texts, and lists of these",
        )


def _frozen(name: str, value: object, depth: int = 0) -> Value:
    if isinstance(value, (list, tuple)) and depth < _DEEPEST:
        return tuple(_frozen(name, v, depth + 1) for v in value)
    if not isinstance(value, tuple):
        _check_value(str(name), value)
    return value  # type: ignore[return-value]  # it has just been checked, or Config refuses it


def _thawed(value: Value) -> object:
    return [_thawed(v) for v in value] if isinstance(value, tuple) else value


def _listed(words: Iterable[str]) -> str:
    shown: Sequence[str] = list(words)
    rest = len(shown) - _SHOWN
    return ", ".join(shown[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _cut(value: object) -> str:
    try:
        text = json.dumps(value) if not isinstance(value, (bytes, set)) else repr(value)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}…"
