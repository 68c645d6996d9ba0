# SPDX-License-Identifier: Apache-2.0
"""What `tune` can be told to do after each measurement: `f(tuner, inputs, results)`."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import IO, TYPE_CHECKING, TypeAlias

from treadle.autotvm.measure import MeasureInput, MeasureResult
from treadle.autotvm.record import encode
from treadle.build.appending import append, appending
from treadle.errors import UsageError

if TYPE_CHECKING:
    from treadle.autotvm.tuner import Tuner

Callback: TypeAlias = Callable[["Tuner", Sequence[MeasureInput], Sequence[MeasureResult]], object]

_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def format_si_prefix(x: float, si_prefix: str) -> float:
    """Return a number in thousands ("k"), millions ("M") and so on.

    Raises: UsageError where there is no such prefix.
    """
    if si_prefix not in _UNITS:
        raise UsageError(
            f"there is no prefix {si_prefix!r} of a unit", hint=f"there is {', '.join(_UNITS)}"
        )
    return x / _UNITS[si_prefix]


def log_to_file(file_out: str | os.PathLike[str] | IO[str], protocol: str = "json") -> Callback:
    """Return a callback that appends a line of every measurement to a file, or an open one.

    Raises: UsageError for a protocol other than "json".
    """
    if protocol != "json":
        raise UsageError(f"there is no protocol {protocol!r}", hint='records are written as "json"')

    def log(_: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        lines = [encode(i, r) + "\n" for i, r in zip(inputs, results, strict=True)]
        if isinstance(file_out, (str, os.PathLike)):
            _append(file_out, "".join(lines))
        else:
            file_out.writelines(lines)

    return log


def _append(path: str | os.PathLike[str], text: str) -> None:
    """Append lines, all or none; others may append or prune the file at the same time."""
    try:
        with appending(Path(path)) as file:
            append(file, text.encode())
    except OSError as error:
        raise UsageError(
            f"the records {os.fspath(path)} cannot be written: {error.strerror}",
            hint="name a file in a folder that you may write to",
        ) from None


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> ProgressBar:
    """Return a callback that shows how far a tuning is of `total` measurements.

    Raises: UsageError where there is no such prefix.
    """
    return ProgressBar(total, prefix, si_prefix)


class ProgressBar:
    """A line that is written again after every measurement, and ended when the tuning ends.

    Where the logger "autotvm" says everything (DEBUG), there is no such line, as in v0.8.

    [Task  1/25]  Current/Best:  203.76/ 218.31 GFLOPS | Progress: (456/456) | 640.50 s Done.
    """

    def __init__(self, total: int, prefix: str, si_prefix: str) -> None:
        format_si_prefix(0, si_prefix)
        self._total = total
        self._prefix = prefix
        self._si_prefix = si_prefix
        self._count = 0
        self._start = time.monotonic()
        self._is_open = True
        self._show(0.0, 0.0)

    def __call__(
        self, tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Take note of measurements."""
        self._count += len(inputs)
        current = 0.0
        for one, result in zip(inputs, results, strict=True):
            current = one.task.flop / fmean(result.costs) if result.error_no == 0 else 0.0
        self._show(current, tuner.best_flops)

    def finish(self) -> None:
        """End the line; `tune` does so."""
        if self._is_open and _is_shown():
            self._is_open = False
            sys.stdout.write(" Done.\n")
            sys.stdout.flush()

    def _show(self, current: float, best: float) -> None:
        if not _is_shown():
            return
        unit = self._si_prefix
        speeds = "/".join(f"{format_si_prefix(x, unit):7.2f}" for x in (current, best))
        sys.stdout.write(
            f"\r{self._prefix} Current/Best: {speeds} {unit}FLOPS | "
            f"Progress: ({self._count}/{self._total}) | {time.monotonic() - self._start:.2f} s"
        )
        sys.stdout.flush()


def _is_shown() -> bool:
    return logging.getLogger("autotvm").level < logging.DEBUG
