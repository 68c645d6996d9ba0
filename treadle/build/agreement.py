# SPDX-License-Identifier: Apache-2.0
"""Whether two engines' results agree: how far they may be apart, and how that is printed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle import dtype as dtypes

_SHARE = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""What a float result may be apart, as a share of its largest element; integers never."""


@dataclass(frozen=True)
class Agreement:
    """How far two arrays are apart at most, next to the largest element and what is allowed.

    `problem` says why they cannot be compared element by element.
    """

    worst: float = 0.0
    largest: float = 0.0
    allowed: float = 0.0
    problem: str = ""

    @property
    def holds(self) -> bool:
        """True when the arrays agree."""
        return not self.problem and self.worst <= self.allowed

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        if not self.worst:
            return "equal"
        return (
            f"max|Δ| {self.worst:.1e} of max|y| {self.largest:.1e}, {self.allowed:.1e} is allowed"
        )


def agreement(found: np.ndarray, expected: np.ndarray, share: float | None = None) -> Agreement:
    """Compare a result with what it should be.

    `share` is the distance allowed as a share of the largest element (default: by type). Infinities
    and NaN must be in the same places.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return Agreement(problem=f"is {_type(found)}, not {_type(expected)}")
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return Agreement(problem="has infinities or NaN in other places")
    if not np.all(np.isfinite(a[finite])):
        return Agreement(problem=f"has {np.sum(~np.isfinite(a[finite]))} infinities or NaN more")
    largest = float(np.max(np.abs(b[finite]), initial=0.0))
    worst = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
    kind = dtypes.from_numpy(expected.dtype)
    default = _SHARE.get(kind, 0.0)
    allowed = (default if share is None else share) * largest if default else 0.0
    return Agreement(worst, largest, allowed)


def _type(array: np.ndarray) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"
