# SPDX-License-Identifier: Apache-2.0
"""Arrays in device memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError
from treadle.runtime.array import (
    ArrayLike,
    Device,
    NDArray,
    address_of,
    as_numpy,
    empty_numpy,
    type_of,
)
from treadle.runtime.gpu.devices import Block, opened


class DeviceArray(NDArray):
    """An array in the memory of a device.

    Whatever NumPy does with it works on a copy in the host's memory, made anew each time: it reads
    as any array does, and is written by kernels, models and `copyfrom` alone.
    """

    __slots__ = ("_block", "_shape")

    def __init__(self, shape: Sequence[int], dtype: str, device: Device) -> None:
        """Make one, its elements undefined. Raises: DeviceError."""
        self._shape = tuple(shape)
        self.dtype = dtypes.check_dtype(dtype)
        self.device = device
        self._block: Block = opened(device.kind, device.index).pool.take(self.nbytes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return self._shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * dtypes.to_numpy(self.dtype).itemsize

    @property
    def pointer(self) -> int:
        """Address of the first element in device memory."""
        return self._block.pointer

    @property
    def is_aligned(self) -> bool:
        """True: device memory always is."""
        return True

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """What torch and CuPy read to share the memory of an NVIDIA GPU."""
        if self.device.kind != "cuda":
            raise AttributeError(f"an array on {self.device} is not in the memory of a CUDA device")
        return {
            "shape": self._shape,
            "typestr": dtypes.to_numpy(self.dtype).str,
            "data": (self.pointer, False),
            "strides": None,
            "version": 3,
        }

    @property
    def _view(self) -> np.ndarray:  # type: ignore[override]  # what NDArray reads from
        """A copy of the elements, which cannot be written to: nobody would see it."""
        made = empty_numpy(self._shape, self.dtype)
        driver = opened(self.device.kind, self.device.index).driver
        driver.copy_out(address_of(made), self.pointer, self.nbytes)
        made.flags.writeable = False
        return made

    def numpy(self) -> np.ndarray:
        """Return a copy of the elements in the host's memory."""
        copy = self._view
        copy.flags.writeable = True
        return copy

    def copyfrom(self, source: ArrayLike) -> DeviceArray:
        """Copy elements of the same shape and type from `source`; return self."""
        given: NDArray | np.ndarray
        given = (
            source
            if isinstance(source, DeviceArray) and source.device == self.device
            else _host(source)
        )
        if given.shape != self._shape or type_of(given) != self.dtype:
            expected = f"{self.dtype}[{', '.join(map(str, self._shape))}]"
            found = f"{type_of(given)}[{', '.join(map(str, given.shape))}]"
            raise InputError(
                f"{found} cannot be copied to {expected}",
                hint="both must have the same shape and element type",
            )
        driver = opened(self.device.kind, self.device.index).driver
        if isinstance(given, DeviceArray):
            driver.prepared_copy(self.pointer, given.pointer, self.nbytes)()
        else:
            whole = np.ascontiguousarray(given)
            driver.copy_in(self.pointer, address_of(whole), self.nbytes)
        return self

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise InputError(
            f"elements of an array on {self.device} cannot be written one by one",
            hint="write them in NumPy, and copy the whole array by copyfrom",
        )


def _host(source: ArrayLike) -> np.ndarray:
    return as_numpy(source, "the source")


def device_array(source: np.ndarray, dtype: str, device: Device) -> DeviceArray:
    """Return the elements of a NumPy array in the memory of a device. Raises: DeviceError."""
    made = DeviceArray(source.shape, dtype, device)
    made.copyfrom(source)
    return made
