# SPDX-License-Identifier: Apache-2.0
"""The outputs of a run: fresh memory, arrays of the caller, or memory the run takes itself.

Memory of large results that nobody holds any more is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError
from treadle.runtime import native
from treadle.runtime.array import SMALL, NDArray, array_over, describe, maker_of
from treadle.runtime.native_executor import ExecutorHandle, Shapes, TensorInfo
from treadle.runtime.ports import fits, type_text

_REMEMBERED = 64
"""Sets of input shapes whose outputs are known, at most."""

Maker = Callable[[], tuple[np.ndarray, int]]
"""Makes an array, its elements undefined; returns it with its address."""


class KnownOutputs:
    """Outputs of known sizes: what makes them, and the shape and the bytes of each."""

    def __init__(
        self, makers: Sequence[Maker], shapes: Sequence[tuple[int, ...]], nbytes: Sequence[int]
    ) -> None:
        self._makers = makers
        self.shapes = shapes
        self.nbytes = nbytes

    def fresh(self) -> tuple[list[np.ndarray], list[int]]:
        """Return arrays for all outputs, and their addresses."""
        views, places = [], []
        for make in self._makers:
            view, place = make()
            views.append(view)
            places.append(place)
        return views, places


class ModelOutputs:
    """What a model returns, and the memory of earlier results."""

    def __init__(self, infos: tuple[TensorInfo, ...]) -> None:
        self.infos = infos
        self.index = {info.name: i for i, info in enumerate(infos)}
        self._dtypes = [info.dtype for info in infos]
        self._kinds = [dtypes.to_numpy(info.dtype) for info in infos]
        self._leftovers = [native.Leftovers() for _ in infos]
        self._by_shapes: dict[Shapes, KnownOutputs] = {}

    def known(self) -> KnownOutputs:
        """Return the outputs of a model whose sizes are all known."""
        makers = [
            maker_of(info.shape, kind, native.Spares(info.nbytes))
            for info, kind in zip(self.infos, self._kinds, strict=True)
        ]
        shapes = [info.shape for info in self.infos]
        return KnownOutputs(makers, shapes, [info.nbytes for info in self.infos])

    def known_for(self, shapes: Shapes) -> KnownOutputs | None:
        """Return the outputs for inputs of these shapes, where `remember` has been told of them."""
        return self._by_shapes.get(shapes)

    def remember(self, shapes: Shapes, views: Sequence[np.ndarray]) -> None:
        """Keep in mind what a run made of such inputs, where its sizes follow from theirs.

        Large results are better taken from the run, which shares memory between sizes.
        """
        nbytes = [view.nbytes for view in views]
        if max(nbytes, default=0) > SMALL:
            return
        if len(self._by_shapes) >= _REMEMBERED:
            self._by_shapes.clear()
        makers = [maker_of(view.shape, view.dtype) for view in views]
        self._by_shapes[shapes] = KnownOutputs(makers, [view.shape for view in views], nbytes)

    def arrays(self, views: Sequence[np.ndarray]) -> list[NDArray]:
        """Return the results of a run as arrays of Treadle."""
        return list(map(array_over, views, self._dtypes))

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

    def taken(self, handle: ExecutorHandle) -> list[np.ndarray]:
        """Return the results of such a run."""
        return [self._taken(handle, index) for index in range(len(self.infos))]

    def _taken(self, handle: ExecutorHandle, index: int) -> np.ndarray:
        shape, nbytes = handle.result(index)
        memory = np.asarray(handle.take_output(index, nbytes, self._leftovers[index]))
        return memory.view(self._kinds[index]).reshape(shape)

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
