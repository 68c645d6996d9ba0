# SPDX-License-Identifier: Apache-2.0
"""The names of the forms in which a compiled model is written, see docs/design/formats.md."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from treadle.errors import UsageError
from treadle.target.base import Target

Format = Literal["tar", "so", "o", "c", "mlf"]
FORMATS: tuple[Format, ...] = ("tar", "so", "o", "c", "mlf")

_SUFFIXES: dict[str, Format] = {".so": "so", ".o": "o", ".c": "c"}


def format_of(path: Path, chosen: str | None) -> Format:
    """Return the format to write: the one chosen, else the one that the file's name promises.

    Raises: UsageError for an unknown format, and for a name that promises another one.
    """
    promised = _SUFFIXES.get(path.suffix)
    if chosen is None:
        return promised or "tar"
    for known in FORMATS:
        if chosen != known:
            continue
        wanted = {"mlf": ".tar"}.get(known, f".{known}")
        if path.suffix != wanted and (promised or known != "tar"):
            raise UsageError(
                f"{path} is named as another file than --output-format {known} writes",
                hint=f"write {path.with_suffix(wanted)}",
            )
        return known
    raise UsageError(f"{chosen!r} is none of the formats {', '.join(FORMATS)}")


def check_format(form: Format, target: Target) -> None:
    """Raise UsageError where code for a target cannot be written in a format."""
    if form != "c" and target.is_source_only:
        raise UsageError(
            f"a model for {target.triple} can be written as C source only",
            hint="write a .c: --output-format c",
        )
    if form == "c" and target.kind != "c":
        raise UsageError(
            f"code for the target {target.kind} is not C source",
            hint='compile with --target c (or "c -mtriple=… -mcpu=…"), or write --output-format o',
        )
