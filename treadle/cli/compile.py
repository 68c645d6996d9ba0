# SPDX-License-Identifier: Apache-2.0
"""`treadle compile`: a model becomes a file with machine code, plan and weights."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from treadle.build.format_names import FORMATS, check_format, format_of
from treadle.build.load import load
from treadle.build.model_cache import Kept, find
from treadle.cli.arguments import (
    add_compile_options,
    add_cross_compiler,
    add_model,
    cross_compiler,
)
from treadle.cli.named import check_readable, target_of, wanted_model
from treadle.cli.text import print_made
from treadle.errors import UsageError
from treadle.files import check_writable, replacing
from treadle.runtime.toolchain import check_linkable
from treadle.target.backend import backend_kinds, backend_of
from treadle.target.base import Target
from treadle.target.host import why_not_here

_OTHER_FORMATS = {
    ".a", ".dll", ".dylib", ".gz", ".h", ".json", ".lib", ".ll", ".npz", ".obj", ".onnx",
    ".params", ".py", ".s", ".tgz", ".txt", ".wasm", ".whl", ".xz", ".zip",
}  # fmt: skip
"""Suffixes that promise something else than any format."""

_CODE = ("relay", "tir", "ll", "c", "cu", "cl", "asm")
"""What `--dump-code` can write, under the names of v0.8."""

_SOURCES = ("ll", "c", "cu", "cl")
"""Those that are source text of one back end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "the ONNX or TFLite file")
    add_compile_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        "--out",  # a prefix of --output that scripts use; --output-format would make it unclear
        type=Path,
        metavar="FILE",
        help="the file to write (default: the model's name with the format's suffix, in this "
        "folder)",
    )
    parser.add_argument(
        "-f",
        "--output-format",
        choices=FORMATS,
        help="tar: an artifact; so: a shared object with all of the model; o: an object file and "
        "c: C source, each with a header, to be linked into a program; mlf: a tar in the Model "
        "Library Format (default: what the suffix of FILE says, else tar)",
    )
    add_cross_compiler(
        parser,
        "the C compiler or linker to link with; with a target of kind c, it also compiles "
        "(default: Treadle links itself)",
        "--linker",
    )
    parser.add_argument(
        "--dump-code",
        type=_kinds,
        default=(),
        metavar="KINDS",
        help=f"write texts of all kernels next to the artifact: {', '.join(_CODE)}, with commas",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run the model on random input and compare every output with onnxruntime's, or, "
        "where that is not installed, with the operators' NumPy references; where each run decides "
        "sizes, at two choices of them",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compile, write, and print what was done; what is kept of an earlier time is only written."""
    check_readable(arguments.model)
    suffix = {None: "tar", "mlf": "tar"}.get(arguments.output_format, arguments.output_format)
    output = arguments.output or Path(f"{arguments.model.stem}.{suffix}")
    _check_output(output, arguments.model)
    form = format_of(output, arguments.output_format)
    if arguments.target is None and form == "c":
        arguments.target = "c"
    linker = cross_compiler(arguments)
    target = target_of(arguments)
    check_format(form, target)
    if form in ("tar", "so"):
        check_linkable(target.triple, linker)  # better now than after the work
    _check_code(arguments.dump_code, target)
    if arguments.check:
        _check_runs_here(target)
    start = time.perf_counter()
    is_plain = form == "tar" and not linker and not arguments.dump_code
    wanted = wanted_model(arguments, target) if is_plain else None
    kept = None if wanted is None else find(wanted)
    if kept is not None:
        _write_kept(kept, output, time.perf_counter() - start)
    # Who finds the model compiled waits for no compiler, who does not check for no other runtime.
    if kept is None:
        from treadle.cli.compiling import compile_to

        compiled = compile_to(output, form, linker, target, arguments, wanted)
    if not arguments.check:
        return 0
    from treadle.cli.checking import check

    return check(load(output) if kept else compiled, arguments.model, output)


def _write_kept(kept: Kept, output: Path, seconds: float) -> None:
    """Write a model that was compiled before, and print what was printed then.

    A file that holds it already is touched only: a file system that writes a new file out before it
    replaces another takes longer for that than comparing takes.
    """
    start = time.perf_counter()
    if kept.artifact.is_at(output):
        with suppress(OSError):  # a file of another user's keeps its time
            os.utime(output)
    else:
        with replacing(output) as file:
            kept.artifact.copy_to(file)
    rows = [*kept.rows, ("kept", "compiled before in the same way; TREADLE_MODEL_CACHE=0: anew")]
    print_made(rows, {"find": seconds, "write": time.perf_counter() - start}, [output])


def _check_code(kinds: Sequence[str], target: Target) -> None:
    """Refuse to write the source text of another back end than the target's."""
    for kind in kinds:
        if kind in _SOURCES and kind != (own := backend_of(target).suffix):
            other = next(k for k in backend_kinds() if backend_of(k).suffix == kind)
            raise UsageError(
                f"there is no .{kind} text of code for the target {target}",
                hint=f"write --dump-code {own}, or compile with --target {other}",
            )


def _check_runs_here(target: Target) -> None:
    if (error := why_not_here(target)) is not None:
        raise UsageError(
            f"--check runs the model, but {error.problem}",
            hint="compile without --check, and check for this machine without --target",
        )


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    wrong = [kind for kind in kinds if kind not in _CODE]
    if wrong:
        raise argparse.ArgumentTypeError(f"{wrong[0][:40]!r} is none of {', '.join(_CODE)}")
    return kinds


def _check_output(output: Path, model: Path) -> None:
    if output.exists() and output.samefile(model):
        raise UsageError(f"the output {output} is the model itself", hint="give another -o")
    if output.suffix in _OTHER_FORMATS:
        raise UsageError(
            f"{output} is named as a {output.suffix} file, but an artifact is a .tar",
            hint=f"write {output.with_suffix('.tar')}, or another format: --output-format",
        )
    check_writable(output)
