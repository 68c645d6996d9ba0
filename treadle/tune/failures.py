# SPDX-License-Identifier: Apache-2.0
"""Why a candidate has no time, in the numbers that v0.8's two tuners have in common.

A record says it as text, for people; what the text begins with says which kind it is.
"""

from __future__ import annotations

from enum import IntEnum

BUILD_TIMEOUT = "the build takes longer"
BUILD_FAILED = "building failed"
RUN_TIMEOUT = "it takes longer"
WRONG = "the result is wrong"
NO_REFERENCE = "the reference cannot be computed"


class MeasureErrorNo(IntEnum):
    """Why a candidate has no time."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


_BEGINNINGS = (
    (BUILD_TIMEOUT, MeasureErrorNo.BUILD_TIMEOUT),
    (BUILD_FAILED, MeasureErrorNo.COMPILE_HOST),
    (RUN_TIMEOUT, MeasureErrorNo.RUN_TIMEOUT),
    (WRONG, MeasureErrorNo.WRONG_ANSWER),
    (NO_REFERENCE, MeasureErrorNo.RUNTIME_DEVICE),
    ("the process ", MeasureErrorNo.RUNTIME_DEVICE),  # of `process.py`
    ("the steps do not fit", MeasureErrorNo.INSTANTIATION_ERROR),  # of `build`
)


def error_number(error: str) -> MeasureErrorNo:
    """Return the number of what the engine says of a candidate; "" is no error.

    What is none of the engine's own words comes from lowering or from the compiler.
    """
    if not error:
        return MeasureErrorNo.NO_ERROR
    found = (number for start, number in _BEGINNINGS if error.startswith(start))
    return next(found, MeasureErrorNo.COMPILE_HOST)
