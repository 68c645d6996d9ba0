# SPDX-License-Identifier: Apache-2.0
"""What becomes of a candidate, in Ansor's words: costs, or the number of an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.build.records import Record
from treadle.tune.failures import MeasureErrorNo, error_number

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


def error_no_of(error: str) -> MeasureErrorNo:
    """Return the number of an error of the tuner, or of one of Ansor as text."""
    for number in MeasureErrorNo:
        if error.startswith(f"{_NAMES[number]} "):
            return number
    return error_number(error)


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
