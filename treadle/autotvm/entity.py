# SPDX-License-Identifier: Apache-2.0
"""What was chosen, as AutoTVM writes it: a named entity for every choice of a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from treadle.errors import ConfigError
from treadle.te.knobs import Config, Value
from treadle.tune.define import Annotation, Entity, Order, Plain, Split

_MOST_LOOPS = 32
_MOST_ENTITIES = 1000
_LONGEST_NAME = 60
_WAYS = ("none", "unroll", "vec", "parallel")


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """A configuration: `config["tile_x"]` is an entity with `apply`, `size`, `perm`, `anns`, `val`.

    `index` is its number in the space of its task, None where it has none. A split that came from
    a record may have -1 for the extent of its outermost loop.
    """

    index: int | None
    entities: tuple[tuple[str, Entity], ...]

    code_hash = None

    def __getitem__(self, name: str) -> Entity:
        for known, entity in self.entities:
            if known == name:
                return entity
        names = ", ".join(known for known, _ in self.entities)
        raise ConfigError(f"the configuration has no {name!r}", hint=f"it has {names or 'nothing'}")

    def to_json_dict(self) -> dict[str, object]:
        """Return what stands under "config" in a record."""
        rows = [[name, *_entity_to_json(entity)] for name, entity in self.entities]
        return {"index": self.index, "code_hash": None, "entity": rows}

    @staticmethod
    def from_json_dict(data: object) -> ConfigEntity:
        """Return the configuration that stands under "config" in a record.

        Raises: ConfigError where it is none.
        """
        if not isinstance(data, Mapping):
            raise ConfigError("the config of a record is an object")
        index, rows = data.get("index"), data.get("entity")
        if index is not None and (type(index) is not int or index < -1):
            raise ConfigError("the index of a configuration is a number")
        if not isinstance(rows, list) or len(rows) > _MOST_ENTITIES:
            raise ConfigError("the entities of a configuration are a list")
        found = tuple(_entity_from_json(row) for row in rows)
        if len({name for name, _ in found}) < len(found):
            raise ConfigError("a name stands twice in a configuration")
        return ConfigEntity(None if index == -1 else index, found)

    def __repr__(self) -> str:
        shown = [(name, _shown(entity)) for name, entity in self.entities]
        return f"{shown},{self.code_hash},{self.index}"


def _shown(entity: Entity) -> object:
    """Return an entity as AutoTVM prints it."""
    if isinstance(entity, Split):
        return [-1, *entity.size[1:]]
    if isinstance(entity, Order):
        return list(entity.perm)
    return list(entity.anns) if isinstance(entity, Annotation) else entity.val


def _entity_to_json(entity: Entity) -> tuple[str, object]:
    if isinstance(entity, Split):
        return "sp", [-1, *entity.size[1:]]
    if isinstance(entity, Order):
        return "re", list(entity.perm)
    if isinstance(entity, Annotation):
        return "an", list(entity.anns)
    return "ot", Config.of({"value": entity.val}).to_json()["value"]


def _entity_from_json(row: object) -> tuple[str, Entity]:
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], str):
        raise ConfigError("an entity is a list of a name, a kind and a value")
    name, kind, value = row
    known = isinstance(kind, str) and kind in _READERS
    if not known:
        raise ConfigError(
            f"entity {name[:_LONGEST_NAME]!r} is of no known kind",
            hint=f"there is {', '.join(_READERS)}",
        )
    entity = _READERS[kind](value)
    if entity is None:
        raise ConfigError(f"entity {name[:_LONGEST_NAME]!r} has no value of kind {kind!r}")
    return name, entity


def _split(value: object) -> Split | None:
    sizes = _integers(value)
    if not sizes or min(sizes) < -1 or 0 in sizes or sizes.count(-1) > 1:
        return None
    return Split(tuple(sizes))


def _order(value: object) -> Order | None:
    places = _integers(value)
    if places is None or sorted(places) != list(range(len(places))):
        return None
    return Order(tuple(places))


def _annotation(value: object) -> Annotation | None:
    if not isinstance(value, list) or len(value) > _MOST_LOOPS:
        return None
    return Annotation(tuple(value)) if all(how in _WAYS for how in value) else None


def _plain(value: object) -> Plain:
    return Plain(Config.of({"value": value}).values[0][1])


def _integers(value: object) -> Sequence[int] | None:
    if not isinstance(value, list) or len(value) > _MOST_LOOPS:
        return None
    return value if all(type(v) is int for v in value) else None


_READERS: Mapping[str, Callable[[object], Entity | None]] = {
    "sp": _split, "re": _order, "an": _annotation, "ot": _plain,
}  # fmt: skip


def value_of(entity: Entity, candidates: Sequence[Value]) -> Value | None:
    """Return which of the candidates of a knob an entity means; None where it means none.

    An extent of -1 in a split stands for what the others leave.
    """
    if isinstance(entity, Split):
        fitting = [c for c in candidates if _covers(entity.size, c)]
        return fitting[0] if len(fitting) == 1 else None
    wanted = plain_value(entity)
    return next((c for c in candidates if repr(c) == repr(wanted)), None)


def plain_value(entity: Entity) -> Value:
    """Return the value of the knob that an entity is of."""
    if isinstance(entity, Split):
        return entity.size
    if isinstance(entity, Order):
        return entity.perm
    return entity.anns if isinstance(entity, Annotation) else entity.val


def _covers(sizes: Sequence[int], candidate: Value) -> bool:
    if not isinstance(candidate, tuple) or len(candidate) != len(sizes):
        return False
    return all(want in (-1, have) for want, have in zip(sizes, candidate, strict=True))
