# SPDX-License-Identifier: Apache-2.0
"""The forms in which a compiled model is written; see docs/design/formats.md.

`tar` is an artifact; `so` a shared object with all of the model, for `td_open` or to be linked; `o`
an object file and `c` a source file to be linked into a program, each with a header; `mlf` a tar
laid out as TVM v0.8's Model Library Format.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.build.artifact import save_artifact
from treadle.build.c_entry import EntryFunction, entry_function
from treadle.build.c_source import header_text, is_portable, write_source
from treadle.build.format_names import Format, check_format
from treadle.build.library_format import save_library_format
from treadle.build.linked import TABLE, linked_model, linked_object
from treadle.errors import UsageError
from treadle.files import check_writable, refused, replacing
from treadle.runtime import native
from treadle.runtime.elf.combine import write_relocatable
from treadle.runtime.toolchain import link_shared
from treadle.target.names import symbol

if TYPE_CHECKING:
    from treadle.build.executable import Executable

Linker = str | Sequence[str] | None

_HASH_MARK = b"treadle-hash64: "
"""What native/src/shared.c looks for at the end of a shared object, before the hash of it all."""


def save_as(exe: Executable, path: str | os.PathLike[str], form: Format, linker: Linker) -> None:
    """Write `exe` to `path` in a format; `o` and `c` write a header next to it.

    Raises:
        ToolchainError: nothing links for the target, or its machine code has no such form.
        UsageError: a file cannot be written, or the format does not fit the target.
    """
    check_format(form, exe.target)
    target = Path(path)
    check_writable(target)
    if form in ("o", "c"):
        check_writable(target.with_suffix(".h"))
    writers: Mapping[str, Callable[[Executable, Path, Linker], None]] = {
        "tar": save_artifact,
        "so": _save_shared,
        "o": _save_object,
        "c": _save_source,
        "mlf": save_library_format,
    }
    writers[form](exe, target, linker)


def write_object(exe: Executable, path: Path, name: str, *exported: str) -> None:
    """Write a whole model as one object file that shows `NAME_model` and the names `exported`."""
    model = linked_object(exe, linked_model(exe, name, exe.plan), *exported)
    with replacing(path) as file:
        write_relocatable(file, model)


def _save_object(exe: Executable, path: Path, linker: Linker) -> None:
    _refuse_linker(linker, "o")
    write_object(exe, path, path.stem)
    _save_header(exe, path)


def _save_header(exe: Executable, path: Path, run: EntryFunction | None = None) -> None:
    with replacing(path.with_suffix(".h")) as file:
        file.write(header_text(exe, linked_model(exe, path.stem, exe.plan), run).encode())


def _refuse_linker(linker: Linker, form: Format) -> None:
    if linker is not None:
        raise UsageError(
            f"a linker is named, and --output-format {form} links nothing", hint="leave it out"
        )


def _save_source(exe: Executable, path: Path, linker: Linker) -> None:
    _refuse_linker(linker, "c")
    if path.stem != symbol(path.stem):
        raise UsageError(
            f"{path.stem!r} is no name of C, and the source file {path} is to be named after it",
            hint=f"write {path.with_stem(symbol(path.stem))}",
        )
    texts, stack_bytes = [], 0
    for kernel in exe.kernels:
        texts.append(kernel.source())
        stack_bytes = max(stack_bytes, kernel.stack_bytes)
        kernel.release()
    # What the compiler makes of portable source decides where it runs, not the target.
    plan = dict(exe.plan)
    if is_portable(texts):
        plan |= {"cpu_features": []}
        plan.pop("triple", None)
    model = linked_model(exe, path.stem, plan)
    run = entry_function(model.name, plan, tuple(model.constants), stack_bytes)
    with replacing(path) as file:
        write_source(file, model, texts, run)
    _save_header(exe, path, run)


def _save_shared(exe: Executable, path: Path, linker: Linker) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix=".treadle-", dir=path.parent) as name:
            made, linked = Path(name) / "model.o", Path(name) / "model.so"
            write_object(exe, made, path.stem, TABLE)
            link_shared([made], linked, exe.target.triple, linker)
            code = linked.read_bytes()
    except OSError as error:
        raise refused(path, error) from None
    with replacing(path) as file:
        file.write(code)
        file.write(_HASH_MARK + native.hash64(code).encode())
