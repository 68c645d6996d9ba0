# SPDX-License-Identifier: Apache-2.0
"""What a command line names and asks for: a model's file, shapes, a target; none of it opened."""

from __future__ import annotations

import argparse
from pathlib import Path

from treadle.build.model_cache import Compilation, compilation
from treadle.cli.arguments import parse_shapes
from treadle.errors import UsageError
from treadle.frontend.tensorflow.formats import is_tensorflow
from treadle.settings import get
from treadle.target.base import Target
from treadle.target.parse import parse_target

DEFAULT_TARGET, DEFAULT_LEVEL = "llvm", 3
"""What networks are compiled with where the command line says nothing."""


_MODELS = "a model: .onnx, .tflite, .pt2, .keras, .pb, .tar, or the folder of a SavedModel"


def check_readable(path: Path, kind: str = _MODELS) -> None:
    """Raise UsageError unless `path` is a file that can be read again, or a SavedModel's folder."""
    if path.is_file() or (kind is _MODELS and path.is_dir() and is_tensorflow(path)):
        return
    if path.is_dir():
        problem = "is a folder"
    else:
        problem = "is not a regular file" if path.exists() else "does not exist"
    raise UsageError(f"{path} {problem}", hint=f"name {kind}")


def target_of(arguments: argparse.Namespace) -> Target:
    """Return what the command line compiles for."""
    return parse_target(DEFAULT_TARGET if arguments.target is None else arguments.target)


def given_shapes(arguments: argparse.Namespace) -> dict[str, tuple[int, ...]] | None:
    """Return what --input-shapes says."""
    return parse_shapes(arguments.input_shapes) if arguments.input_shapes is not None else None


def wanted_model(
    arguments: argparse.Namespace, target: Target, *, sized: bool = True
) -> Compilation | None:
    """Return what decides the compilation that the command line asks for; None where more does."""
    if target.family == "gpu":
        return None  # other kernels run on the CPU on another machine
    if arguments.operators or not isinstance(arguments.records, Path | None):
        return None
    settings = get()
    growth = arguments.weight_growth
    options = {
        "shapes": given_shapes(arguments) if sized else None,
        "level": DEFAULT_LEVEL if arguments.opt_level is None else arguments.opt_level,
        "winograd": settings.winograd if arguments.winograd is None else arguments.winograd,
        "growth": settings.weight_growth if growth is None else growth,
        "has_one_thread": settings.num_threads == 1,
        "unchecked": arguments.unchecked,
        "dynamic": arguments.dynamic,
    }
    return compilation(arguments.model, target, options, arguments.records)
