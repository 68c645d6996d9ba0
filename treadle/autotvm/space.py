# SPDX-License-Identifier: Apache-2.0
"""The space of a task in AutoTVM's words: what there is to choose from, by name and by number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from treadle.autotvm.entity import ConfigEntity, value_of
from treadle.errors import ConfigError, UsageError
from treadle.te.knobs import DEFAULTS, Config, Knob, Space, Value
from treadle.tune.define import Annotation, Definitions, Entity, Order, Plain, Split

Define = Callable[[Config], Definitions]
"""Runs the template with a configuration; returns what it has defined, nothing for a kernel of a
model."""


class ConfigSpace:
    """The configurations of a task: `len(space)`, `space.get(index)`, `print(space)`.

    They are numbered as AutoTVM does, the first choice counting fastest. Where what a template
    offers depends on earlier choices, `len` and the numbers are those along the defaults.
    """

    def __init__(self, space: Space, define: Define) -> None:
        self._space = space
        self._define = define
        self._knobs = space.knobs()
        first = define(DEFAULTS)
        self._descriptions = dict(first.descriptions)
        self._kinds: dict[str, Entity] = dict(first.entities)
        """An entity of each name, which says what kind those of the name are."""

    @property
    def space_map(self) -> dict[str, tuple[Value, ...]]:
        """The candidates of each choice by its name."""
        return {knob.name: knob.candidates for knob in self._knobs}

    def __len__(self) -> int:
        return prod(len(knob.candidates) for knob in self._knobs)

    def get(self, index: int) -> ConfigEntity:
        """Return the configuration of a number.

        Raises: UsageError where there is none such; ConfigError where what the template offers
            depends on earlier choices, and it is none.
        """
        if not 0 <= index < len(self):
            raise UsageError(f"there is no configuration {index}", hint=f"there are {len(self)}")
        values: dict[str, object] = {}
        rest = index
        for knob in self._knobs:
            rest, place = divmod(rest, len(knob.candidates))
            values[knob.name] = knob.candidates[place]
        return self.entity(self.checked(Config.of(values)))

    def __iter__(self) -> Iterator[ConfigEntity]:
        return (self.entity(config) for config in self._space)

    def entity(self, config: Config) -> ConfigEntity:
        """Return a configuration with the kinds of its entities and its number."""
        self._learn(config)
        rows = tuple((name, self._entity(name, value)) for name, value in config.values)
        return ConfigEntity(self._index(config), rows)

    def config(self, entity: ConfigEntity) -> Config:
        """Return the configuration that an entity, such as a record's, means.

        Raises: ConfigError where this space has none such.
        """
        values: dict[str, Value] = {}
        known = {knob.name: knob for knob in self._knobs}
        for name, chosen in entity.entities:
            knob = known.get(name)
            if knob is None:  # the template asks for it after other choices
                so_far = Config(tuple(values.items()))
                self._learn(so_far)
                known |= {k.name: k for k in self._space.knobs(so_far)}
                knob = known.get(name)
            if knob is None:
                there_is = ", ".join(known) or "none"
                raise ConfigError(f"the template has no {name!r:.80}", hint=f"there is {there_is}")
            values[name] = self._value(knob, chosen)
        return self.checked(Config(tuple(values.items())))

    def checked(self, config: Config) -> Config:
        """Return a configuration with all its choices. Raises: ConfigError where it is none."""
        return Config(tuple((k.name, k.value) for k in self._space.knobs(config)))

    def _learn(self, config: Config) -> None:
        """Find out of what kinds the choices of a configuration are."""
        is_template = bool(self._kinds)
        if is_template and not {name for name, _ in config.values} <= set(self._kinds):
            self._kinds |= dict(self._define(config).entities)

    def _value(self, knob: Knob, chosen: Entity) -> Value:
        kind = self._kinds.get(knob.name)
        value = None
        if kind is None or isinstance(chosen, type(kind)):
            value = value_of(chosen, knob.candidates)
        if value is None:
            raise ConfigError(f"the template does not offer this {knob.name!r}")
        return value

    def _entity(self, name: str, value: Value) -> Entity:
        kind = self._kinds.get(name)
        if isinstance(kind, Split):
            return Split(value)  # type: ignore[arg-type]  # what a split of this name is known by
        if isinstance(kind, Order):
            return Order(value)  # type: ignore[arg-type]
        return Annotation(value) if isinstance(kind, Annotation) else Plain(value)  # type: ignore[arg-type]

    def _index(self, config: Config) -> int | None:
        """Return the number of a configuration, None where it is not along the defaults."""
        given = dict(config.values)
        index, step = 0, 1
        if given and set(given) != {k.name for k in self._knobs}:
            return None
        for knob in self._knobs:
            value = given.get(knob.name, knob.candidates[knob.best])
            places = [i for i, c in enumerate(knob.candidates) if repr(c) == repr(value)]
            if not places:
                return None
            index += places[0] * step
            step *= len(knob.candidates)
        return index

    def __repr__(self) -> str:
        rows = [
            f"{number:4d} {k.name}: {self._described(k)} len={len(k.candidates)}"
            for number, k in enumerate(self._knobs)
        ]
        return f"ConfigSpace (len={len(self)}, space_map=\n" + "\n".join(rows) + "\n)"

    def _described(self, knob: Knob) -> str:
        return self._descriptions.get(knob.name, f"OtherOption({list(knob.candidates)})")
