# SPDX-License-Identifier: Apache-2.0
"""The inputs of a run: by name or in order, compared with what the model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from treadle import dtype as dtypes
from treadle.errors import InputError
from treadle.runtime.array import ArrayLike, as_numpy, conversion_hint, describe
from treadle.runtime.native_executor import TensorInfo
from treadle.runtime.ports import dynamic_hint, fits, input_name, type_text

_SEEN = 64
"""Shapes of an input that are known to fit, at most."""


class ModelInputs:
    """What a model takes; `kept` are inputs for the runs that do not give them, by name."""

    def __init__(self, infos: tuple[TensorInfo, ...]) -> None:
        self.infos = infos
        self.index = {info.name: i for i, info in enumerate(infos)}
        self.kept: dict[str, np.ndarray] = {}
        self._by_name = [(i.name, dtypes.to_numpy(i.dtype), {i.shape}) for i in infos]
        self._by_place = [(k, *wanted[1:]) for k, wanted in enumerate(self._by_name)]

    def _check(self, name: str, value: ArrayLike) -> np.ndarray:
        info = self.infos[self.index[name]]
        view = as_numpy(value, f"input {name!r}")
        if view.dtype != dtypes.to_numpy(info.dtype):
            raise InputError(
                f"input {name!r} is {describe(view)} but {type_text(info)} is expected",
                hint=conversion_hint(value, info.dtype),
            )
        if view.ndim != len(info.shape):
            raise InputError(
                f"input {name!r} has {view.ndim} dimensions ({describe(view)}) but "
                f"{type_text(info)} is expected",
                hint=dynamic_hint(info),
            )
        if not fits(view.shape, info.shape):
            raise InputError(
                f"input {name!r} is {describe(view)} but {type_text(info)} is expected",
                hint=dynamic_hint(info),
            )
        return np.ascontiguousarray(view).reshape(view.shape)

    def keep(self, key: str | int, value: ArrayLike) -> None:
        """Keep an input for the runs that do not give it (no copy is made)."""
        name = input_name(key, self.index)
        self.kept[name] = self._check(name, value)

    def gather(
        self, inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None
    ) -> list[np.ndarray]:
        """Return the arrays of a run in order: what it is given, else what is kept.

        Raises: InputError where one is missing or does not fit.
        """
        fitting = self.as_they_are(inputs)
        if fitting is not None:
            return fitting
        given = dict(self.kept)
        if isinstance(inputs, Mapping):
            given |= {
                n: self._check(input_name(n, self.index), value) for n, value in inputs.items()
            }
        elif inputs is not None:
            if len(inputs) > len(self.infos):
                raise InputError(
                    f"the model has {len(self.infos)} inputs but is given {len(inputs)}"
                )
            for index, value in enumerate(inputs):
                given[self.infos[index].name] = self._check(self.infos[index].name, value)
        missing = [info for info in self.infos if info.name not in given]
        if missing:
            listed = ", ".join(f"{info.name}: {type_text(info)}" for info in missing)
            raise InputError(
                f"{len(missing)} of {len(self.infos)} inputs are not given",
                hint=f"give {listed}",
            )
        return [given[info.name] for info in self.infos]

    def as_they_are(
        self, inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike] | None
    ) -> list[np.ndarray] | None:
        """Return all inputs where they are NumPy arrays of the wanted types; None to look closer.

        The way most calls take, so it does as little as possible.
        """
        if inputs is None or len(inputs) != len(self.infos):
            return None
        is_named = type(inputs) is dict or isinstance(inputs, Mapping)  # the former is told faster
        given: Any = inputs  # Any: of either kind, as `is_named` says
        take = given.get if is_named else given.__getitem__
        found: list[np.ndarray] = []
        for key, kind, shapes in self._by_name if is_named else self._by_place:
            value = take(key)
            if (
                type(value) is not np.ndarray
                or value.dtype != kind
                or (value.shape not in shapes and not self._fits(len(found), value.shape))
                or not value.flags.c_contiguous
            ):
                return None
            found.append(value)
        return found

    def _fits(self, index: int, shape: tuple[int, ...]) -> bool:
        """True where a shape is one that an input may have; it is told faster from then on."""
        if not fits(shape, self.infos[index].shape):
            return False
        seen = self._by_name[index][2]
        if len(seen) < _SEEN:
            seen.add(shape)
        return True
