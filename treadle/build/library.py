# SPDX-License-Identifier: Apache-2.0
"""`Executable.export_library`: the shared object of a model, linked by a function of the user's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.build.formats import save_as, write_object
from treadle.build.linked import TABLE
from treadle.errors import UsageError
from treadle.files import check_writable

if TYPE_CHECKING:
    from treadle.build.executable import Executable


def export_library(
    exe: Executable,
    path: Path,
    fcompile: Callable[..., object] | None,
    addons: Sequence[str] | None,
    workspace_dir: str | os.PathLike[str] | None,
    options: Mapping[str, object],
) -> None:
    """Write `exe` as a shared object, or as an artifact; see `Executable.export_library`."""
    if isinstance(addons, str):
        raise UsageError("addons is a list of object files", hint=f"write addons=[{addons!r}]")
    if fcompile is not None:
        check_writable(path)
        with tempfile.TemporaryDirectory(prefix="treadle-") as name:
            folder = Path(name if workspace_dir is None else workspace_dir)
            made = folder / "lib0.o"
            write_object(exe, made, path.stem, TABLE)
            fcompile(str(path), [*map(str, addons or ()), str(made)], **options)
        return
    if addons or options:
        given = ", ".join(["addons"] * bool(addons) + list(options))
        raise UsageError(
            f"{given} of export_library is for a function that links",
            hint="give one, such as fcompile=treadle.runtime.cc.create_shared",
        )
    save_as(exe, path, "tar" if path.suffix == ".tar" else "so", None)
