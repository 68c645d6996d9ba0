# SPDX-License-Identifier: Apache-2.0
"""A model's instructions one by one: what each takes, and what each writes; here or on a device."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence

import numpy as np

from treadle.build.loaded import Runnable
from treadle.errors import InputError, UsageError
from treadle.runtime.array import ArrayLike, NDArray, array

Inputs = Mapping[str, ArrayLike] | Sequence[ArrayLike] | None


class DebugExecutor:
    """What looks into a model, with the names that TVM v0.8 has for it.

    Inputs are given by name or in order; where none are, those given last are used again.
    Example: `DebugExecutor(treadle.load("model.tar")).run_individual({"data": x}, number=10)`
    """

    def __init__(self, model: Runnable) -> None:
        self._model = model
        self._rows = model.instructions()
        self._inputs: Inputs = None

    def _given(self, inputs: Inputs) -> Inputs:
        if inputs is not None:
            self._inputs = inputs
        return self._inputs

    def names(self) -> list[str]:
        """Return the name of each instruction: its kernel's, or what it does where it has none."""
        return [str(row.get("kernel", row["op"])) for row in self._rows]

    def run_individual(
        self, inputs: Inputs = None, *, number: int = 1, repeat: int = 1, min_repeat_ms: float = 0
    ) -> list[float]:
        """Return the mean seconds of each instruction, in the order of `names`.

        The model runs `number` times, more where that takes less than `min_repeat_ms`, and that
        `repeat` times. Instructions that no run comes to take 0.
        """
        if number < 1 or repeat < 1:
            raise UsageError("number and repeat are 1 or more")
        executor, inputs = self._model.executor, self._given(inputs)
        if min_repeat_ms > 0:
            total = sum(row.seconds for row in executor.profile(inputs, runs=1))
            number = max(number, math.ceil(min_repeat_ms * 1e-3 / max(total, 1e-9)))
        rows = executor.profile(inputs, runs=number * repeat)
        return [row.seconds / row.runs if row.runs else 0.0 for row in rows]

    def debug_get_output(
        self, node: int | str, out: NDArray | None = None, *, inputs: Inputs = None
    ) -> NDArray:
        """Run the model; return a copy of what an instruction writes, by number or name.

        Of several of the same name it is the last. `out` is written to where it is given.
        Raises: UsageError when there is no such instruction, or it writes nothing that can be seen:
        it only decides sizes, or stands inside a branch or a loop.
        """
        index = self._index(node)
        found: list[np.ndarray] = []

        def observe(_: int, value: np.ndarray) -> None:
            found.append(value.copy())

        self._model.executor.watch(self._given(inputs), observe, [index])
        if not found:
            raise UsageError(
                f"instruction {index}, {self.names()[index]}, writes nothing that can be seen",
                hint="it decides sizes only, or stands inside a branch or a loop",
            )
        if out is None:
            return array(found[-1])
        if (out.shape, out.numpy().dtype) != (found[-1].shape, found[-1].dtype):
            raise InputError(
                f"the value is {found[-1].dtype}{list(found[-1].shape)}, the array for it "
                f"{out.dtype}{list(out.shape)}"
            )
        np.copyto(out.numpy(), found[-1])
        return out

    def _index(self, node: int | str) -> int:
        names = self.names()
        if isinstance(node, int):
            if -len(names) <= node < len(names):
                return node % len(names)
            raise UsageError(f"there is no instruction {node}: there are {len(names)}")
        origins = [str(row.get("origin", "")) for row in self._rows]
        for index in reversed(range(len(names))):
            if node in (names[index], *origins[index].split("+")):
                return index
        near = difflib.get_close_matches(node, [*names, *origins], 3)
        raise UsageError(
            f"the model has no instruction {node!r}",
            hint=f"did you mean {' or '.join(near)}?"
            if near
            else f"there are {', '.join(names[:20])}",
        )
