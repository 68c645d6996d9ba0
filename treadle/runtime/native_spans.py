# SPDX-License-Identifier: Apache-2.0
"""Whether bytes that lie scattered in memory are still what they were."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from treadle.runtime.native import library


class Span(NamedTuple):
    """Neighbouring bytes: the address of the first, and how many."""

    address: int
    nbytes: int


class Spans:
    """A copy of bytes at several places, to be compared with what is there later.

    Whoever makes it and asks it keeps the memory alive.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._places = np.array([s.address for s in spans], np.uintp)
        self._bytes = np.array([s.nbytes for s in spans], np.uintp)
        self._kept = b"".join(ctypes.string_at(*s) for s in spans)
        self._equal = library().td_spans_equal
        self._given = (self._places.ctypes.data, self._bytes.ctypes.data, len(spans), self._kept)

    def are_unchanged(self) -> bool:
        """True where all bytes are as they were; some 10 ns a place that no cache holds."""
        return bool(self._equal(*self._given))
