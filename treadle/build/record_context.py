# SPDX-License-Identifier: Apache-2.0
"""The records that a compilation reads where none are named: those of the block it stands in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from treadle.build.records import Records

_APPLIED: ContextVar[Records | None] = ContextVar("applied records", default=None)


@contextmanager
def applied(records: Records | None) -> Iterator[None]:
    """Let compilations in the block, in this thread, read records.

    Those of blocks around it count for what these say nothing of; None hides them.
    """
    outer = _APPLIED.get()
    found = records if records is None or outer is None else records.over(outer)
    token = _APPLIED.set(found)
    try:
        yield
    finally:
        _APPLIED.reset(token)


def records_to_read(named: Records | str | os.PathLike[str] | None) -> Records | None:
    """Return the records that a compilation reads which names some, or a file of them.

    What they say goes before what the blocks around the compilation apply. None: there are none.

    Raises: as `Records.read`.
    """
    outer = _APPLIED.get()
    if named is None:
        return outer
    own = named if isinstance(named, Records) else Records.read(named)
    return own if outer is None else own.over(outer)
