# SPDX-License-Identifier: Apache-2.0
"""What becomes of a candidate, in Ansor's words: costs, or the number of an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from treadle.build.records import Record


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


_NAMES = {
    MeasureErrorNo.NO_ERROR: "NoError",
    MeasureErrorNo.INSTANTIATION_ERROR: "InstantiationError",
    MeasureErrorNo.COMPILE_HOST: "CompileHostError",
    MeasureErrorNo.COMPILE_DEVICE: "CompileDeviceError",
    MeasureErrorNo.RUNTIME_DEVICE: "RuntimeDeviceError",
    MeasureErrorNo.WRONG_ANSWER: "WrongAnswerError",
    MeasureErrorNo.BUILD_TIMEOUT: "BuildTimeoutError",
    MeasureErrorNo.RUN_TIMEOUT: "RunTimeoutError",
    MeasureErrorNo.UNKNOWN_ERROR: "UnknownError",
}

_BEGINNINGS = (
    ("the build takes longer", MeasureErrorNo.BUILD_TIMEOUT),
    ("it takes longer", MeasureErrorNo.RUN_TIMEOUT),
    ("the result is wrong", MeasureErrorNo.WRONG_ANSWER),
    ("the reference cannot", MeasureErrorNo.WRONG_ANSWER),
    ("the process", MeasureErrorNo.RUNTIME_DEVICE),
    ("the steps do not fit", MeasureErrorNo.INSTANTIATION_ERROR),
    ("building failed", MeasureErrorNo.COMPILE_HOST),
)
"""What the texts of the tuner's errors begin with."""


def error_no_of(error: str) -> MeasureErrorNo:
    """Return the number of an error of the tuner; 0 of "", the unknown one of all others."""
    if not error:
        return MeasureErrorNo.NO_ERROR
    for number in MeasureErrorNo:
        if error.startswith(f"{_NAMES[number]} "):
            return number
    found = (number for start, number in _BEGINNINGS if error.startswith(start))
    return next(found, MeasureErrorNo.UNKNOWN_ERROR)


def error_of(number: int) -> str:
    """Return an error of Ansor as text, which `error_no_of` knows again."""
    known = 0 < number <= MeasureErrorNo.UNKNOWN_ERROR
    return f"{_NAMES[MeasureErrorNo(number) if known else MeasureErrorNo.UNKNOWN_ERROR]} of Ansor"


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """What a candidate took: seconds of a call, one figure per repeat; or why there are none.

    `all_cost` are the seconds that building and measuring took, `timestamp` is when it ended; both
    are 0 in what is read from records, which do not keep them.
    """

    costs: Sequence[float] = ()
    error_no: int = 0
    error_msg: str = ""
    all_cost: float = 0.0
    timestamp: float = field(default=0.0)

    @staticmethod
    def of(record: Record, all_cost: float = 0.0, timestamp: float = 0.0) -> MeasureResult:
        """Return what a record says."""
        error_no = error_no_of(record.error)
        return MeasureResult(record.seconds, error_no, record.error, all_cost, timestamp)

    @property
    def mean(self) -> float:
        """The mean of the costs; infinite where there are none."""
        return sum(self.costs) / len(self.costs) if self.costs else float("inf")

    def __str__(self) -> str:
        tail = f"all_cost:{self.all_cost:.2f}, Tstamp:{self.timestamp:.2f})"
        if self.error_no == 0:
            costs = ",".join(f"{c:.4f}" for c in self.costs)
            return f"MeasureResult(cost:[{costs}], error_no:0, {tail}"
        name = _NAMES[MeasureErrorNo(self.error_no)]
        return f"MeasureResult(error_type:{name}, error_msg:{self.error_msg}, {tail}"
