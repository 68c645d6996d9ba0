# SPDX-License-Identifier: Apache-2.0
"""The table of all expression nodes: structurally equal ones are one object."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import ref

N = TypeVar("N")


class _Entry(ref):  # type: ignore[type-arg]  # generic only for type checkers
    """A node of the table, which leaves it when nobody else holds it."""

    __slots__ = ("key",)
    key: tuple[object, ...]


TABLE: dict[tuple[object, ...], _Entry] = {}
"""The nodes that exist, by what they are made of."""


def _forget(entry: _Entry) -> None:
    if TABLE.get(entry.key) is entry:
        del TABLE[entry.key]


def known(key: tuple[object, ...]) -> Any:  # Any: the class that the key starts with
    """Return the node of a key, None where there is none."""
    entry = TABLE.get(key)
    return None if entry is None else entry()


def intern(key: tuple[object, ...], made: N) -> N:
    """Make a node that does not exist yet the one of its key."""
    entry = _Entry(made, _forget)
    entry.key = key
    while True:
        kept = TABLE.setdefault(key, entry)
        if kept is entry:
            return made
        other = kept()
        if other is not None:  # another thread was faster
            return other  # type: ignore[no-any-return]  # a key starts with its class
        _forget(kept)
