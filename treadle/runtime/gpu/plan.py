# SPDX-License-Identifier: Apache-2.0
"""A plan at the sizes of one run: every value has its place, every call its numbers.

See docs/design/plan.md. Plans of fixed sizes have one form; others have one for each set of shapes
of their inputs, as long as no size is data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle import dtype as dtypes
from treadle.errors import InputError, SizesError
from treadle.runtime.extents import Extent
from treadle.runtime.gpu.driver import ALIGNMENT

Json = Mapping[str, Any]  # Any: rows of a plan, which its writer has checked
Shapes = tuple[tuple[int, ...], ...]

_DECIDED_BY_DATA = ("size", "if", "loop", "result")


def decides_by_data(plan: Json) -> bool:
    """True where a plan has sizes, branches or loops that data decides."""
    return any(row["op"] in _DECIDED_BY_DATA for row in plan["instructions"])


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [begin, end) of a space: "arena", or ("input" | "output" | "constant", its name)."""

    space: tuple[str, str]
    begin: int
    end: int

    def meets(self, other: Span) -> bool:
        """True where both have a byte."""
        return self.space == other.space and self.begin < other.end and other.begin < self.end

    def holds(self, other: Span) -> bool:
        """True where the other lies in this one."""
        return self.space == other.space and self.begin <= other.begin and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Placed:
    """A value with its place."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    span: Span

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.span.end - self.span.begin


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """One instruction with numbers."""

    op: str
    kernel: str
    origin: str
    args: tuple[Placed, ...]
    dims: tuple[int, ...]
    axis: int = 0


@dataclass(slots=True)
class PlacedPlan:
    """All of a plan with numbers; inputs and outputs by name, in order."""

    inputs: dict[str, Placed] = field(default_factory=dict)
    outputs: dict[str, Placed] = field(default_factory=dict)
    steps: list[PlacedStep] = field(default_factory=list)
    arena_bytes: int = 0


def placed(plan: Json, shapes: Shapes) -> PlacedPlan:
    """Return a plan for inputs of these shapes.

    Raises: InputError where shapes do not fit together; SizesError where they would need another
    program.
    """
    sizes = _Sizes(plan, shapes)
    sizes.check(plan.get("checks", ()))
    made = PlacedPlan()
    values = _values(plan, sizes)
    made.arena_bytes = plan.get("arena_bytes", 0)
    if plan["version"] != 1:
        made.arena_bytes = _place(plan, values)
    settled = [value.placed(values) for value in values]
    made.inputs = {row["name"]: settled[row["value"]] for row in plan["inputs"]}
    made.outputs = {row["name"]: settled[row["value"]] for row in plan["outputs"]}
    made.steps = [_step(row, settled, sizes) for row in plan["instructions"]]
    return made


class _Sizes:
    """The numbers of a plan's sizes in one run."""

    def __init__(self, plan: Json, shapes: Shapes) -> None:
        self.numbers: list[int] = []
        for row in plan.get("sizes", ()):
            self.numbers.append(self._number(row, shapes))
        for port, shape in zip(plan["inputs"], shapes, strict=True):
            self._compare(plan, port, shape)

    def of(self, size: Any) -> int:
        """Return the number that an extent, an offset, ... of a plan is."""
        return size if isinstance(size, int) else self.numbers[size["size"]]

    def _number(self, row: Json, shapes: Shapes) -> int:
        if "input" in row:
            return shapes[row["input"]][row["axis"]]
        a, b = self.of(row["a"]), self.of(row["b"])
        if row["op"] in ("floordiv", "floormod") and b <= 0:
            raise InputError(
                "these inputs make a size of the model impossible to compute (size "
                f"{len(self.numbers)} of the plan, from {a} and {b})"
            )
        return Extent("", [row["op"], a, b]).of(())

    def _compare(self, plan: Json, port: Json, shape: Sequence[int]) -> None:
        wanted = plan["values"][port["value"]]["shape"]
        for axis, (given, extent) in enumerate(zip(shape, wanted, strict=True)):
            if given != self.of(extent):
                raise InputError(
                    f'input "{port["name"]}" has {given} elements along axis {axis}, the model '
                    f"expects {self.of(extent)}",
                    hint="inputs that share a size must agree about it",
                )

    def check(self, rows: Sequence[Json]) -> None:
        """Compare what every run compares, as native/src/dynamic.c does."""
        for row in rows:
            rule = row.get("rule", "equal")
            a, b = self.of(row["a"]), self.of(row["b"])
            if not _HOLDS[rule](a, b):
                raise _broken(rule, row["origin"], a, b, row.get("axis", 0))


_HOLDS: Mapping[str, Callable[[int, int], bool]] = {
    "equal": lambda a, b: a == b,
    "within": lambda a, b: a <= b,
    "asked": lambda a, b: a <= b,
    "filled": lambda a, b: a > 0 or b == 0,
    "kept": lambda a, b: a != 1,
    "never": lambda a, b: False,
}


def _broken(rule: str, origin: str, a: int, b: int, axis: int) -> InputError:
    if rule == "equal":
        words = f"{origin} combines tensors of different sizes: {a} and {b}"
    elif rule == "within":
        words = f"{origin} reads {a} elements along axis {axis} of a tensor that has {b}"
    elif rule == "never":
        return SizesError(f"these inputs take a branch that cannot run, {origin}")
    elif rule == "asked":
        return InputError(
            f"these inputs have sizes that the model was not made for: it asks for {origin}"
        )
    elif rule == "kept":
        return SizesError(
            f"with these inputs {origin}, which names no axes, drops axis {axis} too, and the "
            "rank of its result changes",
            hint="give the node its axes, or compile the model for these sizes",
        )
    else:
        words = f"axis {axis} of what {origin} reads is empty, its result is not"
    return InputError(f"with these inputs {words}", hint="check the sizes of the inputs")


# ---- places --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Value:
    kind: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    name: str = ""
    of: int = -1
    offset: int = 0
    first: int = -1
    last: int = -1

    def placed(self, values: Sequence[_Value]) -> Placed:
        """Return it with its place."""
        owner = self if self.of < 0 else values[self.of]
        begin = self.offset if owner is self else self.offset + owner.offset
        space = ("arena", "") if owner.kind in ("arena", "workspace") else (owner.kind, owner.name)
        return Placed(self.kind, self.dtype, self.shape, Span(space, begin, begin + self.nbytes))


def _values(plan: Json, sizes: _Sizes) -> list[_Value]:
    names: dict[int, str] = {}
    for port in (*plan["inputs"], *plan["outputs"]):
        names.setdefault(port["value"], port["name"])
    made = []
    for index, row in enumerate(plan["values"]):
        shape = tuple(sizes.of(extent) for extent in row["shape"])
        if any(extent < 0 for extent in shape):
            listed = ", ".join(map(str, shape))
            raise InputError(
                f"with these inputs the model makes a value of the shape [{listed}]",
                hint="check the sizes of the inputs",
            )
        nbytes = math.prod(shape) * dtypes.to_numpy(row["dtype"]).itemsize
        if row["kind"] == "workspace" and "bytes" in row:
            nbytes = sizes.of(row["bytes"])
        name = row.get("param", names.get(index, ""))
        value = _Value(row["kind"], row["dtype"], shape, nbytes, name)
        value.of = row.get("of", -1)
        value.offset = sizes.of(row.get("offset", 0))
        made.append(value)
    return made


def _args_of(row: Json) -> list[int]:
    return [*row.get("args", ()), *(row[k] for k in ("from", "to") if k in row)]


def _place(plan: Json, values: Sequence[_Value]) -> int:
    """Give the values of an arena offsets, largest first; return the bytes they take together."""
    for position, row in enumerate(plan["instructions"]):
        for k in _args_of(row):
            owner = values[k] if values[k].of < 0 else values[values[k].of]
            owner.first = position if owner.first < 0 else owner.first
            owner.last = position
    used = [v for v in values if v.kind in ("arena", "workspace") and v.first >= 0]
    done: list[_Value] = []
    high = 0
    for value in sorted(used, key=lambda v: (-v.nbytes, v.first)):
        others = [o for o in done if o.first <= value.last and value.first <= o.last]
        value.offset = 0
        for other in sorted(others, key=lambda o: o.offset):
            if value.offset + value.nbytes <= other.offset:
                break
            value.offset = max(value.offset, _aligned(other.offset + other.nbytes))
        done.append(value)
        high = max(high, value.offset + value.nbytes)
    return high


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _step(row: Json, values: Sequence[Placed], sizes: _Sizes) -> PlacedStep:
    return PlacedStep(
        op=row["op"],
        kernel=row.get("kernel", ""),
        origin=row.get("origin", ""),
        args=tuple(values[k] for k in _args_of(row)),
        dims=tuple(sizes.of(d) for d in row.get("dims", ())),
        axis=row.get("axis", 0),
    )
