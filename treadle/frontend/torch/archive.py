# SPDX-License-Identifier: Apache-2.0
"""Archives of torch.export.save, read without running what they hold.

torch unpickles example inputs and some tensors of an archive without limits, loads machine code
that lies in it, and evaluates expressions of sizes as Python: each is looked at before.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.pt2_archive._package import PT2ArchiveReader, load_pt2
from torch.utils._sympy import functions

from treadle.errors import ModelError

_PICKLES = re.compile(r"data/(sample_inputs|weights|constants)/[^/]*\.pt")
_MACHINE_CODE = "data/aotinductor/"
_PLAIN = re.compile(r"'[\w.+-]*'|\b\d+(\.\d*)?(e[+-]?\d+)?\b|\b[a-z_]+=(?!=)")
"""Names of symbols, numbers, and names of keyword arguments: Symbol('s0', integer=True)."""
_ARITHMETIC = re.compile(r"[A-Za-z]\w*|0|[-+*/%(),<>=!&|~ ]")
_SYMBOL = re.compile(r"[a-z]{1,4}\d+|True|False")
_HINT = (
    "if you trust the file, read it in Python, torch.export.load(file), and give the program to "
    "treadle.compile; else do not open it"
)


def load_archive(path: Path) -> ExportedProgram:
    """Return the program of an archive, after a look at what torch would run of it.

    Raises: ModelError where it is more than tensors and operators.
    """
    if not _is_archive(path):
        raise ModelError("the file is no program of this version of torch.export")
    reader = PT2ArchiveReader(str(path))
    for name in reader.get_file_names():
        if name.startswith(_MACHINE_CODE):
            raise ModelError("the file holds machine code of AOTInductor", hint=_HINT)
        if _PICKLES.fullmatch(name):
            _check_pickle(name, reader.read_bytes(name))
        elif name.endswith(".json"):
            for part in _parts(json.loads(reader.read_string(name))):
                _check_expression(name, part.get("expr_str"))
                if part.get("use_pickle"):
                    record = posixpath.join(posixpath.dirname(name), str(part["path_name"]))
                    _check_pickle(record, reader.read_bytes(record))
    programs: dict[str, ExportedProgram] = load_pt2(str(path)).exported_programs
    if len(programs) != 1:
        raise ModelError(f"the file holds {len(programs)} programs, not one")
    return next(iter(programs.values()))


def _is_archive(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/archive_format") for name in archive.namelist())


def _check_pickle(name: str, data: bytes) -> None:
    """Refuse a pickle that torch's reader of tensors does not take."""
    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as e:
        raise ModelError(f"{name} is a pickle of more than tensors", hint=_HINT) from e


def _check_expression(name: str, text: object) -> None:
    """Refuse the expression of a size that is more than arithmetic of symbols and numbers."""
    if not isinstance(text, str):
        return
    bare = _PLAIN.sub("0", text)
    words = re.findall(r"[A-Za-z_]\w*", bare)
    if _ARITHMETIC.sub("", bare) or not all(map(_is_known, words)):
        raise ModelError(f"{name} has a size that is no arithmetic: {text[:60]!r}", hint=_HINT)


def _is_known(word: str) -> bool:
    """True for a symbol, and for a class of expressions of sympy or torch."""
    found = getattr(functions, word, None) or getattr(sympy, word, None)
    is_class = isinstance(found, type) and issubclass(found, sympy.Basic)
    return is_class or _SYMBOL.fullmatch(word) is not None


def _parts(value: Any) -> Iterator[dict[str, Any]]:  # Any: what JSON holds
    """Yield the dictionaries in a value."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
