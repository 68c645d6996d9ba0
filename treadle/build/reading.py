# SPDX-License-Identifier: Apache-2.0
"""Which importer reads a model: by what it is, without importing the packages of the others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.errors import UsageError
from treadle.frontend.importer import Imported
from treadle.frontend.keras.formats import is_keras
from treadle.frontend.tensorflow.formats import AnyTensorflow, is_tensorflow
from treadle.frontend.tflite.formats import AnyTflite, is_tflite
from treadle.graph.nodes import Module

if TYPE_CHECKING:
    from treadle.frontend.onnx.files import AnyModel

_TORCH_SUFFIXES = (".pt2", ".pt", ".pth")


def read_model(
    model: AnyModel | Module,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dynamic: bool = False,
    example_inputs: Any = None,  # Any: what `from_torch` takes
    dynamic_shapes: Any = None,
) -> Imported:
    """Return a model of any kind as a graph module, with the notes of its importer.

    `shapes` of a file of TorchScript, which has none, are those of its float32 inputs.
    Arguments and errors are those of `treadle.compile`.
    """
    if isinstance(model, Module):
        return Imported(model)
    if is_of_torch(model):
        if shapes is not None and _takes_shapes(model) and example_inputs is None:
            example_inputs = {name: np.zeros(shape, "float32") for name, shape in shapes.items()}
        elif shapes is not None:
            raise UsageError(
                "shapes are given for a model of torch, which has its own",
                hint="give example inputs of these shapes, or export the program with them",
            )
        return _import_torch(model, example_inputs, dynamic_shapes)
    if example_inputs is not None or dynamic_shapes is not None:
        raise UsageError(
            "example inputs are given for a model that is no module of torch",
            hint="give the sizes of its inputs as shapes={'name': (1, 3, 224, 224)}",
        )
    if is_tflite(model):
        from treadle.frontend.tflite.importer import import_tflite

        return import_tflite(model, shapes, dynamic)
    if isinstance(model, (str, os.PathLike)) and is_keras(model):
        from treadle.frontend.keras.importer import import_keras

        return import_keras(model, shapes, dynamic)
    if isinstance(model, (str, os.PathLike)) and is_tensorflow(model):
        from treadle.frontend.tensorflow.importer import import_tensorflow

        return import_tensorflow(model, shapes, dynamic)
    from treadle.frontend.onnx.importer import import_onnx

    return import_onnx(model, shapes, dynamic)


def read_for(model: Path, shapes: Mapping[str, Sequence[int]]) -> Imported:
    """Return a model file that runs with inputs of these shapes: a program has its own."""
    has_own = is_of_torch(model) and not _takes_shapes(model)
    return read_model(model, None if has_own else shapes)


def from_tflite(
    model: AnyTflite, shapes: Mapping[str, Sequence[int]] | None = None, dynamic: bool = False
) -> Module:
    """Return a TFLite model as a graph module, which `treadle.compile` takes.

    `model` is the path of a .tflite file, its bytes or an open file. Inputs and outputs have the
    names, types and axes of the file's tensors: images are [n, h, w, c], and what is quantised are
    integers. `shapes` gives the shapes of inputs by name. An unknown first dimension becomes 1;
    with `dynamic` unknown ones stay symbolic. Variables start at zero in every run.

    Raises:
        ModelError: the file is unreadable, damaged, or leaves sizes open.
        UnsupportedOperators: operators without a conversion, all of them with counts.
        InputError: `shapes` do not fit the model. UsageError: it is no model.

    >>> module = treadle.from_tflite("mobilenet.tflite")
    """
    from treadle.frontend.tflite.importer import import_tflite

    return import_tflite(model, shapes, dynamic).module


def from_tensorflow(
    model: AnyTensorflow,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dynamic: bool = False,
    signature: str = "serving_default",
    outputs: Sequence[str] | None = None,
) -> Module:
    """Return a TensorFlow model as a graph module, which `treadle.compile` takes.

    `model` is the folder of a SavedModel, of which `signature` is run, or the .pb file of a frozen
    GraphDef. `outputs` chooses outputs of the signature, or names nodes of the graph ("node" or
    "node:1") where those that nothing reads are not the ones. Images are [n, h, w, c] as in the
    model. `shapes` gives the shapes of inputs by name. An unknown first dimension becomes 1; with
    `dynamic` unknown ones stay symbolic. Variables have their saved values in every run.

    Raises:
        ModelError: the model is unreadable, damaged, or leaves sizes open.
        UnsupportedOperators: operators without a conversion, all of them with counts.
        InputError: `shapes` do not fit the model. UsageError: there is no such signature or output.

    >>> module = treadle.from_tensorflow("saved_model", dynamic=True)
    """
    from treadle.frontend.tensorflow.importer import import_tensorflow

    return import_tensorflow(model, shapes, dynamic, signature, outputs).module


def _takes_shapes(model: object) -> bool:
    """True for a file of TorchScript, which does not say what shapes its inputs have."""
    return isinstance(model, (str, os.PathLike)) and Path(model).suffix in (".pt", ".pth")


def is_of_torch(model: object) -> bool:
    """True for a torch.nn.Module, an ExportedProgram, or the name of a file of one."""
    if isinstance(model, (str, os.PathLike)):
        return Path(model).suffix in _TORCH_SUFFIXES
    names = {f"{c.__module__}.{c.__qualname__}" for c in type(model).__mro__}
    return bool(
        names & {"torch.nn.modules.module.Module", "torch.export.exported_program.ExportedProgram"}
    )


def from_torch(model: Any, example_inputs: Any = None, dynamic_shapes: Any = None) -> Module:
    """Return a model of PyTorch as a graph module, which `treadle.compile` takes.

    `model` is a torch.nn.Module, a TorchScript module, an ExportedProgram, or the name of a file:
    .pt2 of torch.export.save, .pt of torch.jit.save. `example_inputs` are what a module is traced
    with: a tensor, a sequence of arguments, a mapping of keyword arguments, or a list of (name,
    shape) or (name, (shape, dtype)). `dynamic_shapes` says, as for torch.export.export, which sizes
    stay open. Weights share torch's memory. Buffers that the model changes are inputs and outputs.

    Raises:
        ModelError: torch cannot export the model, or the file cannot be read.
        UnsupportedOperators: operators without a conversion, all of them with counts.
        UsageError: it is no model, example inputs are missing, or torch is not installed.

    >>> module = treadle.from_torch(model, (torch.zeros(1, 3, 224, 224),))
    """
    return _import_torch(model, example_inputs, dynamic_shapes).module


def _import_torch(model: Any, example_inputs: Any, dynamic_shapes: Any) -> Imported:
    if find_spec("torch") is None:
        raise UsageError(
            "PyTorch is not installed, and the model is one of PyTorch",
            hint="pip install treadle[torch]",
        )
    from treadle.frontend.torch.export import import_torch

    return import_torch(model, example_inputs, dynamic_shapes)
