# SPDX-License-Identifier: Apache-2.0
"""The kinds of arguments that schedule primitives take, each as a plain value and back.

write   from what a user hands to a primitive to the plain value of a step
read    from a plain value, which may come from anywhere, to what the primitive works with
python  from a plain value to the Python that a user would write
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

from treadle import dtype as dt
from treadle.errors import TreadleError
from treadle.expr.fold import fold_binary
from treadle.expr.nodes import Binary, Const, Expr, ExprLike, convert
from treadle.expr.traversal import rewrite
from treadle.te.loops import Tiles
from treadle.te.operations import ComputeOp, ExternOp, IterVar, PlaceholderOp, Tensor
from treadle.te.steps import Plain

if TYPE_CHECKING:
    from treadle.te.stage import Stage


class Names(Protocol):
    """What the stages, tensors and axes are called where steps are printed as Python."""

    def stage(self, number: int) -> str:
        """Return an expression for a stage."""

    def tensor(self, number: int, output: int) -> str:
        """Return an expression for a tensor that a stage makes."""

    def axis(self, number: int, index: int) -> str:
        """Return the variable that holds an axis of a stage."""


class Kind:
    """An argument that is a plain value already."""

    def write(self, stage: Stage, what: str, value: Any) -> Plain:  # a user's argument
        """Return the plain value of an argument of primitive `what` of a stage."""
        return self.checked(stage, what, value)

    def read(self, stage: Stage, what: str, plain: Plain) -> Any:  # as the kind says
        """Return the argument that a plain value stands for.

        Raises: ScheduleError where it is none of this kind.
        """
        return self.checked(stage, what, plain)

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        """Return an argument that `read` takes, of a step of this stage, as Python."""
        return quoted(plain) if isinstance(plain, str) else repr(plain)

    def checked(self, stage: Stage, what: str, value: Any) -> Plain:  # anything at all
        """Return a value, which is a number, a string, True, False or None."""
        item = value.value if isinstance(value, Const) else value
        is_number = isinstance(item, (int, float)) and isfinite(item)
        if item is None or isinstance(item, str) or is_number:
            return item
        raise stage.error(f"{what}: {value!r:.60} is not a number or a string")


class _Word(Kind):
    """A name from a short list, which the primitive checks."""

    def checked(self, stage: Stage, what: str, value: Any) -> Plain:
        if isinstance(value, str):
            return value
        raise stage.error(f"{what}: {value!r:.60} is not a string")


class _Whole(Kind):
    """A number of the program, not a size."""

    def checked(self, stage: Stage, what: str, value: Any) -> Plain:
        item = getattr(value, "item", None)
        number = item() if item is not None else getattr(value, "value", value)
        if type(number) is int and abs(number) < 1 << 63:
            return number
        raise stage.error(f"{what}: {value!r:.60} is not a whole number")


def _folded(e: Expr) -> Expr | None:
    """Return what Python makes of an operation on two numbers that a text says."""
    return fold_binary(e) if isinstance(e, Binary) else None


class _Size(Kind):
    """An integer, or an expression of sizes, which is text in a step."""

    def write(self, stage: Stage, what: str, value: ExprLike) -> Plain:
        e = rewrite(convert(value), _folded)
        if not dt.is_integer(e.dtype):
            raise stage.error(f"{what}: {e} is not an integer")
        if isinstance(e, Const):
            return int(e.value)
        return stage.schedule.sizes.text(e)

    def read(self, stage: Stage, what: str, plain: Plain) -> Expr:
        if not isinstance(plain, str):
            number = WHOLE.checked(stage, what, plain)
            assert isinstance(number, int)
            return Const.of(number)
        try:
            e = stage.schedule.sizes.parsed(plain)
        except TreadleError as error:
            raise stage.error(f"{what}: {error.problem}", error.hint) from None
        if not dt.is_integer(e.dtype):
            raise stage.error(f"{what}: {plain!r:.60} is not an integer")
        return e

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        return stage.schedule.sizes.text(self.read(stage, "", plain))


class _Axis(Kind):
    """An axis of the stage, by its number."""

    def write(self, stage: Stage, what: str, value: IterVar) -> Plain:
        for index, axis in enumerate(stage.all_iter_vars):
            if axis is value:
                return index
        raise stage.no_loop(value, what)

    def read(self, stage: Stage, what: str, plain: Plain) -> IterVar:
        axes = stage.all_iter_vars
        if type(plain) is int and 0 <= plain < len(axes):
            return axes[plain]
        there = ", ".join(f"{k} ({a.name})" for k, a in enumerate(axes)) or "none"
        raise stage.error(f"{what}: there is no axis {plain!r:.40}; the axes are {there}")

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        assert isinstance(plain, int)
        return names.axis(stage.number, plain)


class _Axes(Kind):
    """Several axes of the stage."""

    def write(self, stage: Stage, what: str, value: Sequence[IterVar]) -> Plain:
        return tuple(AXIS.write(stage, what, v) for v in value)

    def read(self, stage: Stage, what: str, plain: Plain) -> tuple[IterVar, ...]:
        if isinstance(plain, tuple):
            return tuple(AXIS.read(stage, what, p) for p in plain)
        raise stage.error(f"{what}: {plain!r:.40} is not a list of axes")

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        assert isinstance(plain, tuple)
        return ", ".join(AXIS.python(names, stage, p) for p in plain)


class _AxisList(_Axes):
    """Several axes of the stage, as one argument."""

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        return f"[{super().python(names, stage, plain)}]"


class _Tiles(Kind):
    """Groups of tiles, each as (axes, size, wrap)."""

    def write(self, stage: Stage, what: str, value: Sequence[Any]) -> Plain:  # tuples
        groups = ((axes, size, *wrap) for axes, size, *wrap in value)
        return tuple(
            (AXES.write(stage, what, axes), *(WHOLE.write(stage, what, n) for n in numbers))
            for axes, *numbers in groups
        )

    def read(self, stage: Stage, what: str, plain: Plain) -> tuple[Tiles, ...]:
        if not isinstance(plain, tuple):
            raise stage.error(f"{what}: {plain!r:.40} is not a list of tiles")
        return tuple(self._group(stage, what, group) for group in plain)

    def _group(self, stage: Stage, what: str, plain: Plain) -> Tiles:
        if not isinstance(plain, tuple) or len(plain) not in (2, 3):
            raise stage.error(f"{what}: {plain!r:.40} is not axes, a size and a number of tiles")
        axes = AXES.read(stage, what, plain[0])
        if not axes:
            raise stage.error(f"{what}: tiles are along one axis or more")
        return Tiles(axes, *(WHOLE.read(stage, what, n) for n in plain[1:]))

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        assert isinstance(plain, tuple)
        groups = []
        for axes, *numbers in (g for g in plain if isinstance(g, tuple)):
            groups.append(", ".join([AXIS_LIST.python(names, stage, axes), *map(str, numbers)]))
        return f"[{', '.join(f'({g})' for g in groups)}]"


class _Flag(Kind):
    """True or False."""

    def checked(self, stage: Stage, what: str, value: Any) -> Plain:
        if isinstance(value, bool):
            return value
        raise stage.error(f"{what}: {value!r:.60} is not True or False")


class _Place(Kind):
    """A stage and an axis of it, as (number, axis)."""

    def write(self, stage: Stage, what: str, value: tuple[Stage, IterVar]) -> Plain:
        parent, axis = value
        if parent.schedule is not stage.schedule:
            raise stage.error(f"{what}: {parent.name} is a stage of another schedule")
        return parent.number, AXIS.write(parent, what, axis)

    def read(self, stage: Stage, what: str, plain: Plain) -> tuple[Stage, IterVar]:
        if isinstance(plain, tuple) and len(plain) == 2:
            parent = _stage(stage, what, plain[0])
            return parent, AXIS.read(parent, what, plain[1])
        raise stage.error(f"{what}: {plain!r:.40} is not a stage and an axis of it")

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        assert isinstance(plain, tuple)
        parent = _stage(stage, "", plain[0])
        return f"{names.stage(parent.number)}, {AXIS.python(names, parent, plain[1])}"


class _Tensor(Kind):
    """A tensor, as (number of the stage that makes it, which of its outputs)."""

    def write(self, stage: Stage, what: str, value: Tensor) -> Plain:
        return stage.schedule[value].number, value.value_index

    def read(self, stage: Stage, what: str, plain: Plain) -> Tensor:
        if isinstance(plain, tuple) and len(plain) == 2:
            return output_of(_stage(stage, what, plain[0]), what, plain[1])
        raise stage.error(f"{what}: {plain!r:.40} is not a stage and one of its outputs")

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        assert isinstance(plain, tuple)
        made_by, output = plain
        assert isinstance(made_by, int)
        assert isinstance(output, int)
        return names.tensor(made_by, output)


class _Output(Kind):
    """One of the tensors that the stage makes, by its place among them."""

    def write(self, stage: Stage, what: str, value: Tensor) -> Plain:
        return value.value_index

    def read(self, stage: Stage, what: str, plain: Plain) -> Tensor:
        return output_of(stage, what, plain)

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        assert isinstance(plain, int)
        return names.tensor(stage.number, plain)


class _Stages(Kind):
    """Several stages, by their numbers."""

    def write(self, stage: Stage, what: str, value: Any) -> Plain:  # operations, tensors
        items = (
            [value] if isinstance(value, (Tensor, PlaceholderOp, ComputeOp, ExternOp)) else value
        )
        return tuple(stage.schedule[v].number for v in items)

    def read(self, stage: Stage, what: str, plain: Plain) -> tuple[Stage, ...]:
        if isinstance(plain, tuple):
            return tuple(_stage(stage, what, p) for p in plain)
        raise stage.error(f"{what}: {plain!r:.40} is not a list of stages")

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        assert isinstance(plain, tuple)
        return f"[{', '.join(names.tensor(p, 0) for p in plain if isinstance(p, int))}]"


class _Thread(Kind):
    """A hardware axis, as (tag, extent, name); an extent of -1 is not said."""

    def write(self, stage: Stage, what: str, value: IterVar) -> Plain:
        if value.kind != "thread":
            raise stage.error(f"{value.name} is not a thread axis")
        return value.tag, SIZE.write(stage, what, value.extent), value.name

    def read(self, stage: Stage, what: str, plain: Plain) -> IterVar:
        if isinstance(plain, tuple) and len(plain) == 3:
            tag, extent, name = plain
            if isinstance(tag, str) and isinstance(name, str):
                long = SIZE.read(stage, what, extent)
                return IterVar(name, extent=long, kind="thread", tag=tag)
        raise stage.error(f"{what}: {plain!r:.40} is not a tag, an extent and a name")

    def python(self, names: Names, stage: Stage, plain: Plain) -> str:
        assert isinstance(plain, tuple)
        tag, extent, name = plain
        long = SIZE.python(names, stage, extent)
        arguments = [quoted(tag)] if extent == -1 else [f"(0, {long})", quoted(tag)]
        if name != tag:
            arguments.append(f"name={quoted(name)}")
        return f"te.thread_axis({', '.join(arguments)})"


def quoted(text: Plain) -> str:
    """Return a string as a literal of Python."""
    return json.dumps(text, ensure_ascii=False)


def _stage(near: Stage, what: str, number: Plain) -> Stage:
    found = near.schedule.numbered(number)
    if found is None:
        raise near.error(f"{what}: there is no stage {number!r:.40}")
    return found


def output_of(stage: Stage, what: str, index: Plain) -> Tensor:
    """Return one of the tensors that a stage makes."""
    made = stage.op.outputs
    if type(index) is int and 0 <= index < len(made):
        return made[index]
    raise stage.error(f"{what}: there is no output {index!r:.40} of {stage.name}")


VALUE, WORD, WHOLE, SIZE = Kind(), _Word(), _Whole(), _Size()
AXIS, AXES, AXIS_LIST, PLACE, THREAD = _Axis(), _Axes(), _AxisList(), _Place(), _Thread()
TENSOR, OUTPUT, STAGES, TILES, FLAG = _Tensor(), _Output(), _Stages(), _Tiles(), _Flag()
