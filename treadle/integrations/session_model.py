# SPDX-License-Identifier: Apache-2.0
"""What a session needs of a model, and saved models seen so; ONNX files are in session_onnx."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from treadle import dtype as dtypes
from treadle.build.load import load
from treadle.build.loaded import Runnable, Size
from treadle.runtime.artifact_file import Content

TYPE_NAMES = {"float32": "float", "float64": "double"}
"""Element types whose name in ONNX is another."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, its type as ONNX writes it, and its sizes.

    A size is a number, a name, or None where the model gives it no name. `dtype` is None for what
    is no tensor; `is_ranked` is False where the model does not say how many dimensions there are.
    """

    name: str
    type: str
    shape: list[Size | None]
    dtype: np.dtype[Any] | None = field(default=None, repr=False)
    is_ranked: bool = field(default=True, repr=False)

    @property
    def is_optional(self) -> bool:
        """True for an input that may be left out."""
        return self.type.startswith("optional")


@dataclass(frozen=True)
class ModelMetadata:
    """What a model file says about itself; a saved model keeps none of it."""

    custom_metadata_map: dict[str, str] = field(default_factory=dict)
    description: str = ""
    domain: str = ""
    graph_description: str = ""
    graph_name: str = ""
    producer_name: str = ""
    version: int = 0


class SessionModel(Protocol):
    """A model a session can run; its values have been checked against `inputs`."""

    inputs: Sequence[NodeArg]
    outputs: Sequence[NodeArg]
    metadata: ModelMetadata
    notes: Sequence[str]

    def run(self, values: Mapping[str, Any]) -> Sequence[Any]:
        """Return all outputs: arrays, lists of them, or None."""

    def run_fitting(self, values: Mapping[str, Any]) -> list[np.ndarray] | None:
        """Return all outputs, all of them arrays; None, without a run, where that takes `run`.

        It does for values that have to be checked, as these have not been.
        """


def tensor_arg(name: str, dtype: str, shape: Sequence[Size | None]) -> NodeArg:
    """Return what describes a tensor."""
    element = TYPE_NAMES.get(dtype, dtype)
    return NodeArg(name, f"tensor({element})", list(shape), dtypes.to_numpy(dtype))


class SavedModel:
    """An artifact: machine code, which knows the names of sizes that are inputs' own."""

    notes: Sequence[str] = ()
    metadata: ModelMetadata = ModelMetadata()

    def __init__(self, artifact: str | os.PathLike[str] | Content) -> None:
        self._executable = load(artifact)
        self._executor = self._executable.executor
        self.inputs: Sequence[NodeArg]
        self.outputs: Sequence[NodeArg]
        self.inputs, self.outputs = args_of(self._executable)

    def run(self, values: Mapping[str, Any]) -> list[np.ndarray]:
        """Return all outputs as arrays."""
        return [output.numpy() for output in self._executable.run(values)]

    def run_fitting(self, values: Mapping[str, Any]) -> list[np.ndarray] | None:
        """Return all outputs where the values can be used as they are, else None."""
        return self._executor.run_fitting(values)


def args_of(model: Runnable) -> tuple[list[NodeArg], list[NodeArg]]:
    """Return what describes the inputs and the outputs of something compiled.

    A size of an output has a name where it is that of an input.
    """
    given = model.input_sizes()
    names = {size for sizes in given.values() for size in sizes}
    inputs = [tensor_arg(n, dtype, given[n]) for n, dtype, _ in model.inputs]
    outputs = [
        tensor_arg(
            n, dtype, [size if isinstance(size, int) or size in names else None for size in sizes]
        )
        for (n, dtype, _), sizes in zip(model.outputs, model.output_sizes(), strict=True)
    ]
    return inputs, outputs
