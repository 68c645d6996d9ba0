# SPDX-License-Identifier: Apache-2.0
"""Opening what a command line names: a model file that is compiled first, or a saved artifact."""

from __future__ import annotations

import argparse
from pathlib import Path

from treadle.build.compile import Report, built, fused_model
from treadle.build.executable import Executable
from treadle.build.load import is_artifact, load
from treadle.build.loaded import Runnable
from treadle.build.record_context import records_to_read
from treadle.build.watch import overrides_watched
from treadle.cli.arguments import parse_shapes, refuse_compile_options
from treadle.cli.operators import load_operators
from treadle.cli.progress import shown_progress
from treadle.errors import UsageError
from treadle.frontend.tensorflow.formats import is_tensorflow

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


def given_shapes(arguments: argparse.Namespace) -> dict[str, tuple[int, ...]] | None:
    """Return what --input-shapes says."""
    return parse_shapes(arguments.input_shapes) if arguments.input_shapes is not None else None


def compile_file(arguments: argparse.Namespace, *, sized: bool = True) -> Executable:
    """Return the model the command line names, compiled as its options say; a run loads it.

    Unless `sized`, the shapes given are not for compiling: with --dynamic, they are those of runs.
    """
    check_readable(arguments.model)
    load_operators(arguments.operators)
    shapes = given_shapes(arguments) if sized else None
    report, records = Report(), records_to_read(arguments.records)
    with shown_progress(report), overrides_watched():
        fused = fused_model(
            arguments.model,
            target=DEFAULT_TARGET if arguments.target is None else arguments.target,
            shapes=shapes,
            opt_level=DEFAULT_LEVEL if arguments.opt_level is None else arguments.opt_level,
            winograd=arguments.winograd,
            weight_growth=arguments.weight_growth,
            unchecked=arguments.unchecked,
            dynamic=arguments.dynamic,
            records=records,
            report=report,
        )
        return built(fused, records, report)


def open_artifact(arguments: argparse.Namespace, path: Path) -> Runnable:
    """Return a saved model.

    Raises: UsageError where the command line says how to compile it.
    """
    refuse_compile_options(arguments, path)
    return load(path, verify=True)


def open_model(arguments: argparse.Namespace) -> Runnable:
    """Return the model the command line names, ready to run."""
    check_readable(arguments.model)
    if is_artifact(arguments.model):
        return open_artifact(arguments, arguments.model)
    return compile_file(arguments, sized=not arguments.dynamic)
