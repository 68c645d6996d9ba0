# SPDX-License-Identifier: Apache-2.0
"""Intrinsics in LLVM IR: registers of as many lanes as an instruction has, and its call.

Values here are vectors, (text, element type, length); a vector of one element is a scalar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from treadle.errors import InternalError
from treadle.target.llvm_builder import Builder, element_type, register_type, vector
from treadle.te.intrinsics import Form, Intrinsic


@dataclass(frozen=True, slots=True)
class Vector:
    """A value of `length` elements of one type; `per_lane` of them belong to each lane.

    0: it is the same for all lanes, and repeated to fill a register.
    """

    text: str
    element: str
    length: int
    per_lane: int = 1

    @property
    def type(self) -> str:
        """Its LLVM type."""
        return vector(self.element, self.length)


class Intrinsics:
    """Emits the intrinsics that a machine with these features has."""

    def __init__(self, builder: Builder, features: frozenset[str]) -> None:
        self.b = builder
        self.features = features

    def call(self, record: Intrinsic, lanes: int, values: Sequence[Vector]) -> str:
        """Return the results for values of that many lanes: the accumulator, then the operands."""
        forms = record.forms_for(self.features)
        if not forms:
            raise InternalError(f"intrinsic {record.name} reaches a target that lacks it")
        return self._in_forms(record, forms, lanes, values).text

    def _in_forms(
        self, record: Intrinsic, forms: dict[int, Form], lanes: int, values: Sequence[Vector]
    ) -> Vector:
        width = min((n for n in forms if n >= lanes), default=0)
        if width:
            wide = [self.resized(v, width * v.per_lane) if v.per_lane else v for v in values]
            return self.resized(self._instruction(record, forms[width], wide), lanes)
        most = max(forms)
        low = max(most, lanes // 2 // most * most)
        parts = [
            self._in_forms(record, forms, end - begin, [self._part(v, begin, end) for v in values])
            for begin, end in ((0, low), (low, lanes))
        ]
        return self.joined(parts)

    def _part(self, value: Vector, begin: int, end: int) -> Vector:
        """Return what belongs to some of the lanes."""
        if not value.per_lane:
            return value
        return self.shuffled(value, range(begin * value.per_lane, end * value.per_lane))

    def _instruction(self, record: Intrinsic, form: Form, values: Sequence[Vector]) -> Vector:
        result, name, params = form.signature
        args: list[tuple[str, str]] = []
        for value, param in zip(values, params, strict=True):
            fitted = value
            if not value.per_lane:
                places = range(form.lanes)
                fitted = self.shuffled(value, [k % value.length for k in places])
            args.append((param, self._bits(fitted.text, fitted.type, param)))
        made = self.b.intrinsic(result, name, *args)
        element = element_type(record.result)
        text = self._bits(made, result, register_type(record.result, form.lanes))
        return Vector(text, element, form.lanes)

    def _bits(self, value: str, source: str, target: str) -> str:
        return value if source == target else self.b.let(f"bitcast {source} {value} to {target}")

    # -- vectors

    def resized(self, value: Vector, length: int) -> Vector:
        """Return the first elements of a vector, or a longer one that begins with it."""
        return self.shuffled(value, [k if k < value.length else None for k in range(length)])

    def shuffled(self, value: Vector, places: Sequence[int | None]) -> Vector:
        """Return elements of a vector by their places; None: any value."""
        length, element = len(places), value.element
        if list(places) == list(range(value.length)):
            return value
        if value.length == 1:
            type_ = vector(element, length)
            text = self.b.let(f"insertelement {type_} poison, {element} {value.text}, i64 0")
            first = Vector(text, element, length, value.per_lane)
            rest = all(p is None for p in places[1:])
            return first if rest else self._shuffle(first, first, places)
        if length == 1:
            text = self.b.let(f"extractelement {value.type} {value.text}, i64 {places[0]}")
            return Vector(text, element, 1, value.per_lane)
        return self._shuffle(value, None, places)

    def _shuffle(self, a: Vector, b: Vector | None, places: Iterable[int | None]) -> Vector:
        order = [f"i32 {'poison' if p is None else p}" for p in places]
        mask = f"<{len(order)} x i32> <{', '.join(order)}>"
        other = "poison" if b is None else b.text
        text = self.b.let(f"shufflevector {a.type} {a.text}, {a.type} {other}, {mask}")
        return Vector(text, a.element, len(order), a.per_lane)

    def joined(self, parts: Sequence[Vector]) -> Vector:
        """Return vectors one after the other as one."""
        whole = parts[0]
        for part in parts[1:]:
            length = max(whole.length, part.length)
            places = [*range(whole.length), *range(length, length + part.length)]
            a, b = self.resized(whole, max(length, 2)), self.resized(part, max(length, 2))
            if length == 1:
                places = [0, 2]
            whole = self._shuffle(a, b, places)
        return whole

    def interleaved(self, parts: Sequence[Vector], lanes: int) -> Vector:
        """Return for every lane its elements, the first of each part, the second, and so on."""
        whole, count = self.joined(parts), len(parts)
        places = [k * lanes + lane for lane in range(lanes) for k in range(count)]
        return self.shuffled(whole, places)
