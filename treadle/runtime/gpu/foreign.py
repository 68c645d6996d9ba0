# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries in the memory of an NVIDIA GPU: torch's, CuPy's, Numba's.

They tell where they are by the CUDA array interface, an attribute of plain data. What they hold is
read after all that was started on the default stream.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError, TypeMismatch

_CUDA = 2  # DLPack's number of the kind of device


@dataclass(frozen=True, slots=True)
class ForeignArray:
    """Where the elements of such an array are; it is alive as long as `owner`."""

    shape: tuple[int, ...]
    dtype: str
    pointer: int
    index: int
    owner: object


def foreign_array(source: object, what: str) -> ForeignArray | None:
    """Return what an array of another library says of itself; None for one that is on no GPU.

    Raises: InputError for one that cannot be read where it lies.
    """
    try:
        told: Any = getattr(source, "__cuda_array_interface__", None)  # Any: plain data
    except (RuntimeError, TypeError) as error:
        raise InputError(f"{what} cannot be read where it is: {error}") from None
    if told is None:
        return None
    shape = tuple(int(extent) for extent in told["shape"])
    try:
        kind = np.dtype(told["typestr"])
        dtype = dtypes.from_numpy(kind)
    except (TypeError, TypeMismatch):
        raise InputError(f"{what} has elements of type {told['typestr']}") from None
    if not _is_whole(shape, told.get("strides"), kind.itemsize):
        raise InputError(f"{what} is not contiguous in memory", hint="call .contiguous() on it")
    return ForeignArray(shape, dtype, int(told["data"][0]), _index(source), source)


def _is_whole(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> bool:
    """True where elements follow each other in C order."""
    if strides is None or 0 in shape:
        return True
    wanted = [itemsize * math.prod(shape[k + 1 :]) for k in range(len(shape))]
    return all(s == w or n == 1 for s, w, n in zip(strides, wanted, shape, strict=True))


def _index(source: object) -> int:
    """Return the number of the device; 0 where the array does not tell."""
    ask = getattr(source, "__dlpack_device__", None)
    kind, index = ask() if ask is not None else (_CUDA, 0)
    return int(index) if int(kind) == _CUDA else 0
