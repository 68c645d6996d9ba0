# SPDX-License-Identifier: Apache-2.0
"""What tuning prints, in the forms of TVM v0.8, which users and their scripts know."""

from __future__ import annotations

import time
from collections.abc import Sequence

from treadle.auto_scheduler.outcome import MeasureResult
from treadle.auto_scheduler.state import State
from treadle.tune.failures import MeasureErrorNo
from treadle.tune.guided import Generation

_RULE = 70
_TITLE_RULE = 30
_TRIAL_RULE = 50
_EVERY = 5
"""Generations that are printed: every so many, and the last."""

_OF_BUILDING = {
    MeasureErrorNo.INSTANTIATION_ERROR,
    MeasureErrorNo.COMPILE_HOST,
    MeasureErrorNo.COMPILE_DEVICE,
    MeasureErrorNo.BUILD_TIMEOUT,
    MeasureErrorNo.UNKNOWN_ERROR,
}
_TIMEOUTS = {MeasureErrorNo.BUILD_TIMEOUT, MeasureErrorNo.RUN_TIMEOUT}


class Screen:
    """Prints as much as `verbose` says: 0 nothing, 1 how it goes, 2 every candidate as well."""

    def __init__(self, verbose: int) -> None:
        self.verbose = verbose
        self._waiting: list[int] = []
        self._together = 1
        self._count = 0
        self._has_sampled = False

    def say(self, text: str = "", end: str = "\n") -> None:
        """Print a text, at once."""
        if self.verbose >= 1:
            print(text, end=end, flush=True)

    def title(self, text: str) -> None:
        """Print what begins, in a box of lines."""
        self.say(title_text(text))

    # -- search

    def searching(self) -> None:
        """Print that a search begins."""
        self.title("Search")
        self._has_sampled = False

    def sketches(self, count: int) -> None:
        """Print how many sketches a task has."""
        self.say(f"Generate Sketches\t\t#s: {count}")

    def sampled(self, count: int, failed: int, seconds: float) -> None:
        """Print how many candidates were drawn, and how many could not be, once in a search."""
        if self._has_sampled:
            return
        self._has_sampled = True
        self.say(
            f"Sample Initial Population\t#s: {count}\tfail_ct: {failed}\t"
            f"Time elapsed: {seconds:.2f}"
        )

    def generation(self, found: Generation) -> None:
        """Print what an evolution has come to."""
        if found.number % _EVERY and not found.is_last:
            return
        scores = "\tMax score: N/A\tMin score: N/A"
        if found.scores:
            scores = f"\tMax score: {found.scores[0]:.4f}\tMin score: {found.scores[-1]:.4f}"
        self.say(
            f"GA Iter: {found.number}{scores}\t#Pop: {len(found.scores)}\t"
            f"#M+: {found.changed}\t#M-: {found.unchanged}"
        )
        if found.is_last:
            self.say(
                f"EvolutionarySearch\t\t#s: {len(found.scores)}\tTime elapsed: {found.seconds:.2f}"
            )

    # -- measuring

    def measuring(self, count: int, together: int) -> None:
        """Print how many candidates are measured, `together` of which share a line."""
        self.title("Measure")
        self.say(f"Get {count} programs to measure:")
        self._together = together

    def measured(self, error_no: int, *, is_last: bool) -> None:
        """Print a dot for each build and a star for each run, with what went wrong.

        "." built, "*" run, "E" an error, "T" too slow: ".E" a build that failed, "*T" a run that
        took too long.
        """
        self._waiting.append(error_no)
        if len(self._waiting) < self._together and not is_last:
            return
        builds = [(e, MeasureErrorNo(e) in _OF_BUILDING) for e in self._waiting]
        self.say("".join("." + _mark(e) * failed for e, failed in builds))
        self.say("".join("*" + _mark(e) for e, failed in builds if not failed), end="")
        self._waiting.clear()

    def trial(self, gflops: float, best: float, result: MeasureResult, state: State) -> None:
        """Print a candidate in full."""
        self._count += 1
        if self.verbose < 2:
            return
        rule = "=" * _TRIAL_RULE
        self.say(
            f"{rule}\nNo: {self._count}\tGFLOPS: {gflops:.2f} / {best:.2f}\tresults: {result}\n"
            f"{rule}\n{state}\n"
        )

    def elapsed(self, what: str, since: float) -> None:
        """Print how long something took that began at `since` (time.monotonic)."""
        self.say(f"Time elapsed for {what}: {time.monotonic() - since:.2f} s")


def title_text(title: str) -> str:
    """Return a title in its box of lines."""
    return f"{'-' * _RULE}\n{'-' * _TITLE_RULE}  [ {title} ]\n{'-' * _RULE}"


def _mark(error_no: int) -> str:
    if error_no == MeasureErrorNo.NO_ERROR:
        return ""
    return "T" if error_no in _TIMEOUTS else "E"


def table_text(
    latencies: Sequence[float],
    speeds: Sequence[float],
    trials: Sequence[int],
    footer: tuple[str, int, float, int],
) -> str:
    """Return the table of all tasks: seconds (inf: none), operations per second, trials.

    `footer` are the total latency in ms as text, trials, seconds since the start, the next task.
    """
    rule = "-" * 49
    rows = ["|  ID  | Latency (ms) | Speed (GFLOPS) | Trials |", rule]
    for number, (latency, speed, count) in enumerate(zip(latencies, speeds, trials, strict=True)):
        has_time = latency < float("inf")
        shown = (f"{1e3 * latency:.3f}", f"{speed / 1e9:.2f}") if has_time else ("-", "-")
        rows.append(f"| {number:>4} | {shown[0]:>12} | {shown[1]:>14} | {count:>6} |")
    total, measured, seconds, following = footer
    tail = (
        f"Estimated total latency: {total} ms\tTrials: {measured}\tUsed time : {seconds:.0f} s\t"
        f"Next ID: {following}\t"
    )
    return "\n".join([*rows, rule, tail])
