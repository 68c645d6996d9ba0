# SPDX-License-Identifier: Apache-2.0
"""Arrays filled with numbers, to try a model or a kernel on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from treadle import dtype as dtypes

FillMode = Literal["zeros", "ones", "random"]

_INTEGERS = 2


def filled(
    mode: FillMode, dtype: str, shape: Sequence[int], random: np.random.Generator
) -> np.ndarray:
    """Return an array of zeros, ones, or random numbers.

    Random floats are normally distributed; random integers are 0 or 1, which every index is.
    """
    kind = dtypes.to_numpy(dtype)
    if mode != "random":
        return np.full(shape, 0 if mode == "zeros" else 1, kind)
    if dtypes.is_float(dtype):
        return random.standard_normal(shape, np.float32).astype(kind)
    return random.integers(0, _INTEGERS, shape).astype(kind)
