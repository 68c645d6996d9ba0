# SPDX-License-Identifier: Apache-2.0
"""TorchScript: what torch.jit.save wrote, as a program of torch.export."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._export.converter import TS2EPConverter
from torch.export import ExportedProgram

from treadle.errors import InputError, ModelError
from treadle.frontend.importer import did_you_mean


class _Converter(TS2EPConverter):  # type: ignore[misc]  # torch counts as without types
    """torch's own converter of TorchScript, which keeps the sizes of the example inputs."""

    dynamic_shapes: Any = None

    def retrace_as_exported_program(
        self, gm: fx.GraphModule, name_to_constant: dict[str, Any]
    ) -> ExportedProgram:
        """Return the converted graph as a program; attributes of the script are its buffers."""
        return torch.export.export(
            gm, self.sample_args, dynamic_shapes=self.dynamic_shapes, strict=False
        )


def exported_script(
    module: torch.jit.ScriptModule,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
) -> ExportedProgram:
    """Return a TorchScript module, traced or scripted, as a program."""
    given = (*args, *_in_order(module, kwargs)) if kwargs else args
    converter = _Converter(module, given)
    converter.dynamic_shapes = dynamic_shapes
    return converter.convert()


def _in_order(module: torch.jit.ScriptModule, named: Mapping[str, Any]) -> list[Any]:
    names = input_names(module)
    for name in named:
        if name not in names:
            raise InputError(f"the model has no input {name!r}", hint=did_you_mean(name, names))
    return [named[name] for name in names if name in named]


def input_names(module: torch.jit.ScriptModule) -> Sequence[str]:
    """Return the names of the arguments of `forward`."""
    inputs = list(module.graph.inputs())[1:]
    return [value.debugName().partition(".")[0] for value in inputs]


def load_script(path: Path) -> torch.jit.ScriptModule:
    """Return the module of a file of torch.jit.save. Raises: ModelError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that torch.jit is out of fashion
            return torch.jit.load(path, map_location="cpu").eval()
    except (RuntimeError, ValueError, OSError) as e:
        raise ModelError(
            "the file holds no TorchScript module",
            at=str(path),
            hint="a file of torch.save holds weights or Python objects: load it in Python and give "
            "the module to treadle.compile(module, inputs), or write a .pt2 with torch.export.save",
        ) from e
