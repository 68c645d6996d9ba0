# SPDX-License-Identifier: Apache-2.0
"""Opening what a command line names: a model file that is compiled first, or a saved artifact."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.build.load import is_artifact, load
from treadle.build.loaded import LoadedExecutable, Runnable
from treadle.build.model_cache import Compilation, find
from treadle.cli.arguments import refuse_compile_options
from treadle.cli.named import check_readable, given_shapes, target_of, wanted_model
from treadle.errors import ArtifactError
from treadle.target.host import why_not_here

if TYPE_CHECKING:
    from treadle.build.executable import Executable


def compile_file(
    arguments: argparse.Namespace, *, sized: bool = True, wanted: Compilation | None = None
) -> Executable:
    """Return the model the command line names, compiled as its options say; a run loads it.

    Unless `sized`, the shapes given are not for compiling: with --dynamic, they are those of runs.
    The model is kept as what is `wanted`, if anything is.
    """
    # Who finds the model compiled, or has an artifact, does not wait for the compiler.
    from treadle.cli.compiling import compile_named, keep_made

    made = compile_named(arguments, given_shapes(arguments) if sized else None)
    if wanted is not None:
        keep_made(wanted, made)
    return made


def open_artifact(arguments: argparse.Namespace, path: Path) -> Runnable:
    """Return a saved model.

    Raises: UsageError where the command line says how to compile it.
    """
    refuse_compile_options(arguments, path)
    return load(path, verify=True)


def open_model(arguments: argparse.Namespace) -> Runnable:
    """Return the model the command line names, ready to run; one that is kept is not made anew."""
    check_readable(arguments.model)
    if is_artifact(arguments.model):
        return open_artifact(arguments, arguments.model)
    is_sized, target = not arguments.dynamic, target_of(arguments)
    wanted = wanted_model(arguments, target, sized=is_sized)
    kept = None if wanted is None or why_not_here(target) else find(wanted)
    if kept is not None:
        with suppress(ArtifactError):
            return LoadedExecutable(kept.artifact)
    return compile_file(arguments, sized=is_sized, wanted=wanted)
