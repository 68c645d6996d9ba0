# SPDX-License-Identifier: Apache-2.0
"""Giving back the memory of file pages that have been read and are not needed soon."""

from __future__ import annotations

import mmap

import numpy as np

_WORTHWHILE = 1 << 20


def release_pages(array: np.ndarray) -> None:
    """Take the pages of a large array that is a view of a mapped file out of memory.

    The array stays valid: what is read again comes from the file again. Weights that are packed
    one after the other so never lie in memory twice. Does nothing for any other array.
    """
    if array.nbytes < _WORTHWHILE:
        return
    mapped = _file_of(array)
    if mapped is None or not hasattr(mapped, "madvise") or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = np.frombuffer(mapped, np.uint8).ctypes.data
    low, high = np.lib.array_utils.byte_bounds(array)
    start = -(-(low - first) // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages of this array alone
    end = (high - first) // mmap.PAGESIZE * mmap.PAGESIZE
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
