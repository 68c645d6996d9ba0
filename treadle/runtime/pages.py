# SPDX-License-Identifier: Apache-2.0
"""Giving back the memory of file pages that have been read and are not needed soon."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable, Iterator

import numpy as np

HUGE_PAGE = 2 << 20
"""The runtime's memory of so many bytes and more begins at a multiple of them, on huge pages where
there are any."""

_WORTHWHILE = 1 << 16

_GAP = 64
"""Bytes that padding between aligned arrays stays below."""


def release_pages(array: np.ndarray) -> None:
    """Take the pages of a large array that is a view of a mapped file out of memory.

    The array stays valid: what is read again comes from the file again. Weights that are packed
    one after the other so never lie in memory twice. Does nothing for any other array.
    """
    release_all_pages((array,))


def release_all_pages(arrays: Iterable[np.ndarray]) -> None:
    """Do as `release_pages` for arrays that may lie side by side: their common pages go, too."""
    spans: dict[int, list[tuple[int, int]]] = {}
    files: dict[int, mmap.mmap] = {}
    for array in arrays:
        mapped = _file_of(array) if array.nbytes else None
        if mapped is not None:
            files[id(mapped)] = mapped
            spans.setdefault(id(mapped), []).append(np.lib.array_utils.byte_bounds(array))
    for key, mapped in files.items():
        first = np.frombuffer(mapped, np.uint8).ctypes.data
        for low, high in _joined(spans[key]):
            if high - low >= _WORTHWHILE:
                _release(mapped, low - first, high - first)


def release_heap() -> None:
    """Give back what is free in the C library's heap, where that can be asked for (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _joined(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join places in memory that no other array can lie between."""
    spans.sort()
    low, high = spans[0]
    for start, end in spans[1:]:
        if start - high >= _GAP:
            yield low, high
            low = start
        high = max(high, end)
    yield low, high


def _release(mapped: mmap.mmap, low: int, high: int) -> None:
    if not hasattr(mapped, "madvise") or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = -(-low // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages of these arrays alone
    end = high // mmap.PAGESIZE * mmap.PAGESIZE
    if start < end:
        mapped.madvise(mmap.MADV_DONTNEED, start, end - start)


def _file_of(array: np.ndarray) -> mmap.mmap | None:
    """Return the read-only file mapping an array is a view of, if it is one."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    # In a writable mapping the pages may hold what the file does not.
    return owner if isinstance(owner, mmap.mmap) and memoryview(owner).readonly else None
