# SPDX-License-Identifier: Apache-2.0
"""The inputs of a TFLite model: unknown sizes settled by the user, or left symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.errors import ModelError
from treadle.frontend.declared import DeclaredInput, unique_names
from treadle.frontend.declared import parameters as declared_parameters
from treadle.frontend.tflite.model import Subgraph, Tensor
from treadle.graph.nodes import Var


def parameters(
    graph: Subgraph, shapes: Mapping[str, Sequence[int]] | None, dynamic: bool
) -> tuple[dict[int, Var], list[str]]:
    """Return the parameter of every input by tensor number, and notes on the choices made.

    An unknown first dimension becomes 1 with a note; with `dynamic` unknown ones stay symbolic.

    Raises:
        ModelError: sizes stay unknown, or an input holds something else than numbers.
        InputError: `shapes` do not fit the model.
    """
    tensors = [graph.tensors[k] for k in graph.inputs]
    for tensor in tensors:
        check_elements(tensor)
    names = unique_names([t.name for t in tensors])
    declared = [
        DeclaredInput(name, t.shape, t.dtype) for name, t in zip(names, tensors, strict=True)
    ]
    made, notes = declared_parameters(declared, shapes, dynamic)
    return dict(zip(graph.inputs, made, strict=True)), notes


def check_elements(tensor: Tensor) -> None:
    """Raise ModelError for a tensor of something else than numbers."""
    if tensor.dtype.isupper():
        raise ModelError(
            f"the input {tensor.name!r} has elements of {tensor.dtype}, which is not supported",
            hint="export the model with inputs of numbers; do the rest of the work before it runs",
        )
