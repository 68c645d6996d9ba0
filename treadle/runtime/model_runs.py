# SPDX-License-Identifier: Apache-2.0
"""One run of a model: from arrays through a native call to arrays.

Nothing here is shared between runs that go on at the same time but what `ModelOutputs` remembers:
the handle is the caller's alone, see `Streams`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from treadle.runtime.array import NDArray, address_of
from treadle.runtime.model_inputs import ModelInputs
from treadle.runtime.model_outputs import ModelOutputs
from treadle.runtime.native_executor import ExecutorHandle, Shapes


class ModelRuns:
    """How a model is run: what it is given, what it returns, and the call between them."""

    def __init__(self, handle: ExecutorHandle) -> None:
        self.given = ModelInputs(handle.inputs())
        self.returned = ModelOutputs(handle.outputs())
        self.is_dynamic = handle.is_dynamic
        self._known = None if self.is_dynamic else self.returned.known()
        self._is_sized_by_shapes = self.is_dynamic and handle.is_sized_by_shapes()
        self._of_the_run = [None] * len(self.returned.infos), [0] * len(self.returned.infos)

    def run(self, handle: ExecutorHandle, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the model on inputs that fit; return its outputs."""
        places = [address_of(view) for view in given]
        if self._known is None:
            return self.run_shaped_at(handle, places, tuple([view.shape for view in given]))
        views, outputs = self._known.fresh()
        handle.run(places, outputs)
        return views

    def run_shaped_at(
        self, handle: ExecutorHandle, inputs: Sequence[int], shapes: Shapes
    ) -> list[np.ndarray]:
        """Run a model whose sizes each run decides on inputs given by address and shape."""
        known = self.returned.known_for(shapes)
        if known is not None:
            views, outputs = known.fresh()
            handle.run_shaped(inputs, shapes, outputs, known.nbytes)
            return views
        self.returned.lend(handle)
        handle.run_shaped(inputs, shapes, *self._of_the_run)
        views = self.returned.taken(handle)
        if self._is_sized_by_shapes:
            self.returned.remember(shapes, views)
        return views

    def run_into(
        self, handle: ExecutorHandle, given: Sequence[np.ndarray], outputs: Sequence[NDArray]
    ) -> list[NDArray]:
        """Run the model on inputs that fit, into arrays of the caller. Raises: InputError."""
        arrays = self.returned.writable(outputs)
        self.repeatable(handle, given, arrays)()
        if self.is_dynamic:
            self.returned.check_shapes(handle, arrays)
        return arrays

    def repeatable(
        self, handle: ExecutorHandle, given: Sequence[np.ndarray], results: Sequence[NDArray]
    ) -> Callable[[], None]:
        """Return a call that runs the model on checked inputs into arrays that fit."""
        sources = [address_of(view) for view in given]
        targets = [array.pointer for array in results]
        if not self.is_dynamic:
            return lambda: handle.run(sources, targets)
        shapes = tuple([view.shape for view in given])
        nbytes = [array.nbytes for array in results]
        return lambda: handle.run_shaped(sources, shapes, targets, nbytes)
