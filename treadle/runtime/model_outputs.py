# SPDX-License-Identifier: Apache-2.0
"""The outputs of a run: fresh memory, arrays of the caller, or memory the run takes itself.

Memory of results that nobody holds any more is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError
from treadle.runtime import native
from treadle.runtime.array import NDArray, describe, maker_of
from treadle.runtime.native_executor import ExecutorHandle, TensorInfo
from treadle.runtime.ports import fits, type_text


def _maker(info: TensorInfo) -> Callable[[], tuple[np.ndarray, int]]:
    """Return what makes arrays for an output of known sizes."""
    return maker_of(info.shape, dtypes.to_numpy(info.dtype), native.Spares(info.nbytes))


class ModelOutputs:
    """What a model returns, and the memory of earlier results."""

    def __init__(self, infos: tuple[TensorInfo, ...]) -> None:
        self.infos = infos
        self.index = {info.name: i for i, info in enumerate(infos)}
        self._kinds = [dtypes.to_numpy(info.dtype) for info in infos]
        self._makers = [_maker(info) for info in infos if -1 not in info.shape]
        self._leftovers = [native.Leftovers() for _ in infos]

    def fresh(self) -> list[tuple[np.ndarray, int]]:
        """Return memory for every output of known sizes, as arrays with their addresses."""
        return [make() for make in self._makers]

    def writable(self, outputs: Sequence[NDArray]) -> list[NDArray]:
        """Return the arrays a run writes to. Raises: InputError where one does not fit."""
        if len(outputs) != len(self.infos):
            raise InputError(
                f"the model has {len(self.infos)} outputs but is given {len(outputs)} arrays"
            )
        for info, array in zip(self.infos, outputs, strict=True):
            view = array.numpy()
            if array.dtype != info.dtype or not fits(array.shape, info.shape):
                raise InputError(
                    f"the array for output {info.name!r} is {describe(view)} but "
                    f"{type_text(info)} is expected"
                )
            if not view.flags.c_contiguous or not view.flags.writeable:
                raise InputError(f"the array for output {info.name!r} cannot be written in place")
        return list(outputs)

    def lend(self, handle: ExecutorHandle) -> None:
        """Give a run that decides its own sizes the memory of earlier results."""
        for index, leftovers in enumerate(self._leftovers):
            if (held := leftovers.pop()) is not None:
                handle.give_output(index, *held)

    def taken(self, handle: ExecutorHandle) -> list[NDArray]:
        """Return the results of such a run."""
        return [self._taken(handle, index) for index in range(len(self.infos))]

    def _taken(self, handle: ExecutorHandle, index: int) -> NDArray:
        shape, nbytes = handle.result(index)
        memory = np.asarray(handle.take_output(index, nbytes, self._leftovers[index]))
        return NDArray(memory.view(self._kinds[index]).reshape(shape))

    def check_shapes(self, handle: ExecutorHandle, arrays: Sequence[NDArray]) -> None:
        """Compare arrays that such a run has written to with what it has written."""
        for index, (info, array) in enumerate(zip(self.infos, arrays, strict=True)):
            shape, nbytes = handle.result(index)
            if shape != array.shape:
                found = TensorInfo(info.name, info.dtype, shape, nbytes)
                raise InputError(
                    f"the array for output {info.name!r} is {describe(array.numpy())} but the "
                    f"result is {type_text(found)}"
                )
