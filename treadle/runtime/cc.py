# SPDX-License-Identifier: Apache-2.0
"""Functions that link object files with a compiler of the user's, in the form of TVM v0.8.

`fcompile(output, files, options=None)`: what `Executable.export_library` takes. They read no
environment: that TVM_NDK_CC names the compiler of `ndk.create_shared` is a rule of TVM's, kept by
who offers that name, as `cross_compiler(os.environ["TVM_NDK_CC"])`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from treadle.errors import ToolchainError, UsageError
from treadle.runtime.toolchain import find_compiler, named_tool, run_tool

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Link = Callable[..., None]


def create_shared(
    output: str | os.PathLike[str],
    objects: Files,
    options: Sequence[str] | None = None,
    cc: str | Sequence[str] | None = None,
) -> None:
    """Link object files (or compile C) into the shared object `output`.

    `cc` is a command, or a list of its words (default: this machine's compiler); `options` follow
    the files. The file appears complete or not at all. Raises: ToolchainError, UsageError.
    """
    if isinstance(options, str):
        raise UsageError("options is a list of words", hint=f"write options={options.split()!r}")
    files = [objects] if isinstance(objects, str | os.PathLike) else list(objects)
    out = Path(output).absolute()
    with tempfile.TemporaryDirectory(prefix=".treadle-", dir=out.parent) as folder:
        made = Path(folder) / out.name
        words = [
            "-shared",
            "-fPIC",
            "-o",
            str(made),
            *(os.fspath(f) for f in files),
            *(options or ()),
        ]
        run_tool([*_command(cc), *words])
        if not made.is_file():
            raise ToolchainError(f"{_command(cc)[0]} writes no file", hint="check its options")
        made.replace(out)


def _command(cc: str | Sequence[str] | None) -> tuple[str, ...]:
    tool = named_tool(cc) if cc is not None else find_compiler()
    if tool is None:
        raise ToolchainError("no C compiler is found: neither cc, gcc nor clang")
    return tool.command


def cross_compiler(
    compile_func: str | Sequence[str] | Link,
    options: Sequence[str] | None = None,
    output_format: str | None = None,
    get_target_triple: Callable[[], str] | None = None,
    add_files: Sequence[str] | None = None,
) -> Link:
    """Return a function that links with `compile_func`: a compiler, or a function like this one's.

    `options` and `add_files` are added to those of every call. The result carries `output_format`
    (default: that of `compile_func`, else "so"), which says what it makes, and
    `get_target_triple`, if there is one.
    """
    fixed, more = list(options or ()), list(add_files or ())

    def link(output: str, files: Files, options: Sequence[str] | None = None) -> None:
        named = [files] if isinstance(files, str | os.PathLike) else list(files)
        words = [*fixed, *(options or ())]
        if callable(compile_func):
            compile_func(output, [*named, *more], options=words)
        else:
            create_shared(output, [*named, *more], words, cc=compile_func)

    link.output_format = output_format or getattr(compile_func, "output_format", "so")  # type: ignore[attr-defined]
    if get_target_triple is not None:
        link.get_target_triple = get_target_triple  # type: ignore[attr-defined]
    return link


create_shared.output_format = "so"  # type: ignore[attr-defined]
