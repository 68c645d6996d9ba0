# SPDX-License-Identifier: Apache-2.0
"""Weights as they lie in an artifact (mod.params), mapped: see `treadle.build.artifact`."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping

import numpy as np

from treadle.errors import ArtifactError

_LIST_MAGIC, _ARRAY_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
_NUMBER = struct.Struct("<Q")
_ARRAY = struct.Struct("<QQiiiBBH")
_LONGEST_NAME, _MOST_ARRAYS, _MOST_AXES = 4096, 400_000, 32


class MappedBytes:
    """Part of an open file in memory; what is read from it keeps it there."""

    def __init__(self, descriptor: int, begin: int, end: int) -> None:
        start = begin - begin % mmap.ALLOCATIONGRANULARITY
        self._map = mmap.mmap(descriptor, end - start, access=mmap.ACCESS_COPY, offset=start)
        self._flat = np.frombuffer(self._map, np.uint8)[begin - start :]
        self._at = 0

    def take(self, nbytes: int) -> np.ndarray:
        """Return the next bytes. Raises: ArtifactError where there are not so many."""
        if not 0 <= nbytes <= self._flat.size - self._at:
            raise _damaged("they are cut off")
        self._at += nbytes
        return self._flat[self._at - nbytes : self._at]

    def number(self) -> int:
        """Return the next number of 64 bits."""
        (number,) = _NUMBER.unpack(self.take(_NUMBER.size).tobytes())
        return int(number)


def _damaged(what: str) -> ArtifactError:
    return ArtifactError(f"the weights (mod.params) are damaged: {what}")


def mapped_weights(memory: MappedBytes) -> Mapping[str, np.ndarray]:
    """Return the bytes of every array of a list, by name. Raises: ArtifactError."""
    if memory.number() != _LIST_MAGIC:
        raise _damaged("they do not begin as weights do")
    memory.number()
    names = []
    for _ in range(_limited(memory.number(), _MOST_ARRAYS)):
        encoded = memory.take(_limited(memory.number(), _LONGEST_NAME))
        names.append(encoded.tobytes().decode(errors="replace"))
    if memory.number() != len(names):
        raise _damaged("names and arrays are not as many")
    return {name: _array(memory) for name in names}


def _array(memory: MappedBytes) -> np.ndarray:
    magic, _, _, _, ndim, *_ = _ARRAY.unpack(memory.take(_ARRAY.size).tobytes())
    if magic != _ARRAY_MAGIC:
        raise _damaged("an array does not begin as one does")
    memory.take(8 * _limited(ndim, _MOST_AXES))
    return memory.take(memory.number())


def _limited(number: int, most: int) -> int:
    if not 0 <= number <= most:
        raise _damaged(f"they say {number:,} where at most {most:,} can be")
    return number
