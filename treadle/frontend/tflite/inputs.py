# SPDX-License-Identifier: Apache-2.0
"""The inputs of a TFLite model: unknown sizes settled by the user, or left symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.errors import InputError, ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.importer import did_you_mean
from treadle.frontend.inputs import given_sizes
from treadle.frontend.tflite.model import Subgraph, Tensor
from treadle.graph.nodes import Var
from treadle.graph.types import Dim, TensorType


def unique_names(names: Sequence[str]) -> list[str]:
    """Return names of which those that were there before get a number behind them."""
    taken: dict[str, int] = {}
    made = []
    for name in names:
        taken[name] = count = taken.get(name, -1) + 1
        made.append(f"{name}_{count}" if count else name)
    return made


def parameters(
    graph: Subgraph, shapes: Mapping[str, Sequence[int]] | None, dynamic: bool
) -> tuple[dict[int, Var], list[str]]:
    """Return the parameter of every input by tensor number, and notes on the choices made.

    An unknown first dimension becomes 1 with a note; with `dynamic` unknown ones stay symbolic.

    Raises:
        ModelError: sizes stay unknown, or an input holds something else than numbers.
        InputError: `shapes` do not fit the model.
    """
    names = dict(
        zip(graph.inputs, unique_names([graph.tensors[k].name for k in graph.inputs]), strict=True)
    )
    given = _checked(shapes or {}, {n: graph.tensors[k] for k, n in names.items()})
    notes: list[str] = []
    settled = {k: _settled(n, graph.tensors[k], given, dynamic, notes) for k, n in names.items()}
    left_open = [names[k] for k, dims in settled.items() if None in dims]
    if left_open:
        raise _open_error({n: graph.tensors[k] for k, n in names.items() if n in left_open})
    made = {
        k: Var(names[k], _typed(graph.tensors[k], [d for d in dims if d is not None]), names[k])
        for k, dims in settled.items()
    }
    return made, notes


def _typed(tensor: Tensor, dims: Sequence[Dim]) -> TensorType:
    check_elements(tensor)
    return TensorType(tuple(dims), tensor.dtype)


def check_elements(tensor: Tensor) -> None:
    """Raise ModelError for a tensor of something else than numbers."""
    if tensor.dtype.isupper():
        raise ModelError(
            f"the input {tensor.name!r} has elements of {tensor.dtype}, which is not supported",
            hint="export the model with inputs of numbers; do the rest of the work before it runs",
        )


def _settled(
    name: str,
    tensor: Tensor,
    given: Mapping[str, tuple[int, ...]],
    dynamic: bool,
    notes: list[str],
) -> list[Dim | None]:
    if name in given:
        return list(given[name])
    made: list[Dim | None] = []
    for axis, size in enumerate(tensor.shape):
        if size != -1:
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
    shapes: Mapping[str, Sequence[int]], tensors: Mapping[str, Tensor]
) -> dict[str, tuple[int, ...]]:
    checked = {}
    for name, shape in shapes.items():
        if name not in tensors:
            raise InputError(f"the model has no input {name!r}", hint=did_you_mean(name, tensors))
        sizes = given_sizes(name, shape, (1, 224, 224, 3))
        declared = tensors[name].shape
        fits = len(sizes) == len(declared) and all(
            d in (s, -1) for s, d in zip(sizes, declared, strict=True)
        )
        if not fits or any(s < 0 for s in sizes):
            raise InputError(
                f"the shape {list(sizes)} does not fit input {name!r}",
                hint=f"the model declares {name}{_text(declared)}",
            )
        checked[name] = sizes
    return checked


def _text(shape: Sequence[int]) -> str:
    return "[" + ", ".join("?" if d == -1 else str(d) for d in shape) + "]"


def _open_error(tensors: Mapping[str, Tensor]) -> ModelError:
    rows = [f"  {name}{_text(t.shape)}" for name, t in tensors.items()]
    example = " ".join(f"{name}:{_example(t.shape)}" for name, t in tensors.items())
    return ModelError(
        "the model leaves sizes of its inputs open:\n" + "\n".join(rows),
        hint=f'give them, for example --input-shapes "{example}"',
    )


def _example(shape: Sequence[int]) -> str:
    sizes = [d if d != -1 else (1 if k == 0 else 128) for k, d in enumerate(shape)]
    return "[" + ",".join(map(str, sizes)) + "]"
