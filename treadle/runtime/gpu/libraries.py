# SPDX-License-Identifier: Apache-2.0
"""Shared libraries of GPU vendors: where they are, and their functions with types."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Function = Callable[..., int]
Types = Sequence[Any]  # Any: ctypes has no public name for its simple types


def opened(names: Iterable[str | Path]) -> ctypes.CDLL | None:
    """Return the first of some libraries that can be loaded."""
    for name in names:
        try:
            return ctypes.CDLL(str(name))
        except OSError:
            continue
    return None


def package_files(package: str, pattern: str) -> list[Path]:
    """Return the files of an installed package that match a pattern, highest names first.

    Nothing of the package is imported.
    """
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        return []
    if found is None:
        return []
    folders = [Path(place) for place in found.submodule_search_locations or ()]
    return sorted((file for folder in folders for file in folder.glob(pattern)), reverse=True)


def distribution_files(name: str, file: str) -> list[Path]:
    """Return where pip put the files of that name of a distribution, wherever in the environment.

    Nothing of it is imported.
    """
    from importlib.metadata import PackageNotFoundError, files  # 30 ms, where OpenCL is asked for

    try:
        found = files(name)
    except PackageNotFoundError:
        return []
    return [Path(str(place.locate())) for place in found or () if place.name == file]


def typed(library: ctypes.CDLL, signatures: Mapping[str, Types]) -> dict[str, Function]:
    """Return functions of a library that give a status, by name; those it lacks are left out."""
    found: dict[str, Function] = {}
    for name, types in signatures.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            continue
        function.argtypes, function.restype = list(types), ctypes.c_int
        found[name] = function
    return found
