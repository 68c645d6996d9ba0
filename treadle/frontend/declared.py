# SPDX-License-Identifier: Apache-2.0
"""Inputs that a file declares with unknown sizes: settled by the user, or left symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.errors import InputError, ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.importer import did_you_mean
from treadle.frontend.inputs import given_sizes
from treadle.graph.nodes import Var
from treadle.graph.types import Dim, TensorType

UNKNOWN = -1
"""What stands for a size that a file leaves open."""


@dataclass(frozen=True, slots=True)
class DeclaredInput:
    """An input as a file has it; sizes may be `UNKNOWN`, and all of them where `shape` is None."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str


def unique_names(names: Sequence[str]) -> list[str]:
    """Return names of which those that were there before get a number behind them."""
    taken: dict[str, int] = {}
    made = []
    for name in names:
        taken[name] = count = taken.get(name, -1) + 1
        made.append(f"{name}_{count}" if count else name)
    return made


def parameters(
    inputs: Sequence[DeclaredInput], shapes: Mapping[str, Sequence[int]] | None, dynamic: bool
) -> tuple[list[Var], list[str]]:
    """Return the parameter of every input, in order, and notes on the choices made.

    An unknown first dimension becomes 1 with a note; with `dynamic` unknown ones stay symbolic.

    Raises:
        ModelError: sizes stay unknown.
        InputError: `shapes` do not fit the model.
    """
    given = _checked(shapes or {}, {i.name: i for i in inputs})
    notes: list[str] = []
    settled = [_settled(i, given, dynamic, notes) for i in inputs]
    left_open = [i for i, dims in zip(inputs, settled, strict=True) if None in dims]
    if left_open:
        raise _open_error(left_open)
    made = [
        Var(i.name, TensorType(tuple(d for d in dims if d is not None), i.dtype), i.name)
        for i, dims in zip(inputs, settled, strict=True)
    ]
    return made, notes


def _settled(
    declared: DeclaredInput,
    given: Mapping[str, tuple[int, ...]],
    dynamic: bool,
    notes: list[str],
) -> list[Dim | None]:
    name = declared.name
    if name in given:
        return list(given[name])
    if declared.shape is None:
        return [None]
    made: list[Dim | None] = []
    for axis, size in enumerate(declared.shape):
        if size != UNKNOWN:
            made.append(size)
        elif dynamic:
            made.append(SizeVar(f"{name}_{axis}", "int64"))
        elif axis == 0:
            made.append(1)
            notes.append(
                f"input {name!r}: the unknown dimension 0 is compiled as 1; "
                f"give --input-shapes for another size"
            )
        else:
            made.append(None)
    return made


def _checked(
    shapes: Mapping[str, Sequence[int]], inputs: Mapping[str, DeclaredInput]
) -> dict[str, tuple[int, ...]]:
    checked = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(f"the model has no input {name!r}", hint=did_you_mean(name, inputs))
        sizes = given_sizes(name, shape, (1, 224, 224, 3))
        declared = inputs[name].shape
        fits = declared is None or (
            len(sizes) == len(declared)
            and all(d in (s, UNKNOWN) for s, d in zip(sizes, declared, strict=True))
        )
        if not fits or any(s < 0 for s in sizes):
            raise InputError(
                f"the shape {list(sizes)} does not fit input {name!r}",
                hint=f"the model declares {name}{_text(declared)}",
            )
        checked[name] = sizes
    return checked


def _text(shape: Sequence[int] | None) -> str:
    if shape is None:
        return " without a shape"
    return "[" + ", ".join("?" if d == UNKNOWN else str(d) for d in shape) + "]"


def _open_error(inputs: Sequence[DeclaredInput]) -> ModelError:
    rows = [f"  {i.name}{_text(i.shape)}" for i in inputs]
    example = " ".join(f"{i.name}:{_example(i.shape)}" for i in inputs)
    return ModelError(
        "the model leaves sizes of its inputs open:\n" + "\n".join(rows),
        hint=f'give them, for example --input-shapes "{example}"',
    )


def _example(shape: Sequence[int] | None) -> str:
    known = (UNKNOWN,) * 2 if shape is None else shape
    sizes = [d if d != UNKNOWN else (1 if k == 0 else 128) for k, d in enumerate(known)]
    return "[" + ",".join(map(str, sizes)) + "]"
