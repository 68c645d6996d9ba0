# SPDX-License-Identifier: Apache-2.0
"""From what users have, a module, a program or a file, to a program of torch.export."""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_map_only

from treadle.errors import ModelError, TreadleError, UsageError
from treadle.frontend.importer import Imported
from treadle.frontend.torch.archive import load_archive
from treadle.frontend.torch.importer import import_program
from treadle.frontend.torch.script import exported_script, load_script
from treadle.frontend.torch.tensors import torch_dtype

Inputs = Any
"""Example inputs: a tensor, a sequence of arguments, a mapping of keyword arguments, or what
v0.8's `from_pytorch` took: a list of (name, shape) or (name, (shape, dtype))."""


def import_torch(model: Any, example_inputs: Inputs = None, dynamic_shapes: Any = None) -> Imported:
    """Return a torch.nn.Module, ExportedProgram or a file of one as a graph module, with notes.

    `example_inputs` are what a module is traced with; `dynamic_shapes` says, as for torch.export,
    which sizes stay open. A program says both itself.

    Raises:
        ModelError: the module cannot be exported or the file cannot be read.
        UnsupportedOperators: operators without a conversion, all of them with counts.
        UsageError: there are no example inputs, or `model` is none.
    """
    # In inference mode, and of tensors made in it, torch writes no operator by others.
    with torch.inference_mode(False), torch.no_grad():
        return _imported(model, example_inputs, dynamic_shapes)


def _imported(model: Any, example_inputs: Inputs, dynamic_shapes: Any) -> Imported:
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix == ".pt2":
            return import_program(_read_file(path), path.name)
        model = load_script(path)
    if isinstance(model, ExportedProgram):
        return import_program(model)
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"a model of type {type(model).__name__} is no model of torch",
            hint="give a torch.nn.Module, an ExportedProgram or the name of a .pt2 file",
        )
    if example_inputs is None:
        raise UsageError(
            "a torch module is compiled for example inputs, and none are given",
            hint="such as treadle.compile(module, (torch.zeros(1, 3, 224, 224),)); on the command "
            'line give their shapes: --input-shapes "x:[1,3,224,224]"',
        )
    imported = import_program(_exported(model, example_inputs, dynamic_shapes), _name_of(model))
    notes = [_TRAINING] if model.training else []
    return Imported(imported.module, (*notes, *imported.notes))


_TRAINING = "the module is in training mode; call .eval() before compiling it for inference"


def _name_of(module: torch.nn.Module) -> str:
    return str(getattr(module, "original_name", type(module).__name__))


def _exported(module: torch.nn.Module, inputs: Inputs, dynamic_shapes: Any) -> ExportedProgram:
    args, kwargs = tree_map_only(torch.Tensor, _ordinary, arguments_of(inputs))
    if any(t.is_inference() for t in chain(module.parameters(), module.buffers())):
        module = copy.deepcopy(module)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch speaks of its own code here
            if isinstance(module, torch.jit.ScriptModule):
                return exported_script(module, args, kwargs, dynamic_shapes)
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except TreadleError:
        raise
    except Exception as e:
        reason, fix = _said(e)
        raise ModelError(
            f"torch.export cannot export the module: {reason}",
            at=_name_of(module),
            hint=f"change dynamic_shapes as torch suggests: {fix}" if fix else _ROAD,
        ) from e


_ROAD = (
    "torch.compile(module, backend='treadle') compiles what it can and leaves the rest to Python"
)


def _said(error: Exception) -> tuple[str, str]:
    """Return what torch says went wrong, and which dimensions it suggests if it is about those.

    Constraints violated (b)! For more ...
      - Not all values of b = ... satisfy the generated guard ...
    Suggested fixes:
      b = Dim('b', max=10)
    """
    text, _, rest = str(error).partition("Suggested fixes:")
    reasons = [line.strip(" -") for line in text.splitlines() if line.startswith("  - ")]
    if not reasons:
        return _first_line(error), ""
    fixes, _, _ = rest.strip().partition("\n\n")
    return "; ".join(reasons), "; ".join(line.strip() for line in fixes.splitlines())


def _ordinary(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor as those made outside of inference mode are."""
    return x.clone() if x.is_inference() else x


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def arguments_of(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments and keyword arguments that example inputs are.

    Raises: UsageError for what are none.
    """
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), {name: _example(value) for name, value in inputs.items()}
    if not isinstance(inputs, Sequence) or isinstance(inputs, str):
        raise UsageError(
            f"the example inputs are a {type(inputs).__name__}",
            hint="give a tensor, a tuple of arguments, or a mapping of keyword arguments",
        )
    if inputs and all(map(_is_info, inputs)):
        return tuple(_zeros(info[1]) for info in inputs), {}
    return tuple(_example(value) for value in inputs), {}


def _is_info(value: object) -> bool:
    """True for (name, shape) and (name, (shape, dtype))."""
    return isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[0], str)


def _zeros(described: Sequence[Any]) -> torch.Tensor:
    """Return an input of a shape, or of (shape, dtype)."""
    if len(described) == 2 and isinstance(described[1], str):
        return torch.zeros(tuple(described[0]), dtype=torch_dtype(described[1]))
    return torch.zeros(tuple(described))


def _example(value: Any) -> Any:
    """Return an array as a tensor, anything else as it is."""
    return torch.from_dlpack(value) if hasattr(value, "__dlpack__") else value


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch logs while it reads a file to itself: what goes wrong is raised."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


_SAVED = "write it with torch.export.save(torch.export.export(module, inputs), 'm.pt2')"


def _read_file(path: Path) -> ExportedProgram:
    try:
        with _quiet():
            return load_archive(path)
    except ModelError as e:
        raise ModelError(e.problem, at=str(path), hint=e.hint or _SAVED) from e
    except Exception as e:
        raise ModelError(
            f"the file is no program of torch.export: {_first_line(e)}",
            at=str(path),
            hint=_SAVED,
        ) from e
