# SPDX-License-Identifier: Apache-2.0
"""How tuning is shown while it goes on: a live table on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from treadle.cli.roofline import Layer, Limits
from treadle.cli.table import table_lines
from treadle.cli.text import console, count_text
from treadle.tune.state import TaskState
from treadle.tune.tuner import Tuner

_LINE_SECONDS = 5.0
_FRAME_SECONDS = 0.25
_ROWS = 16
_HEADINGS = (
    "kernel", "uses", "share", "before", "best", "gain", "roofline %", "trials", "failed", "state",
)  # fmt: skip
_SPARE = ("uses", "before", "failed", "share")
"""What a narrow terminal does without, the first one first."""
_MARGIN = "  "


def time_text(seconds: float) -> str:
    """Return a kernel's or a model's time for people: "12.30 ms", "8.1 us", "46 ns"."""
    if seconds == inf:
        return "-"
    if seconds < 1e-6:
        return f"{seconds * 1e9:.0f} ns"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms"


def best_text(tuner: Tuner) -> str:
    """Return what the kernels of a run take that were measured, by default and now."""
    ran = sum(s.best is not None for s in tuner.states)
    which = (
        "all kernels" if ran in (0, len(tuner.states)) else f"{ran} of {len(tuner.states)} kernels"
    )
    if not ran:
        return f"{which} -"
    gain = tuner.before / tuner.now if tuner.now else 1.0
    return f"{which} {time_text(tuner.before)} -> {time_text(tuner.now)} ({gain:.2f}x)"


def share_of(state: TaskState, total: float) -> float | None:
    """Return the share of all kernels' best time that a task's calls take; None if not known."""
    return None if total in (0, inf) else state.task.uses * state.seconds / total


def of_roofline(state: TaskState, limits: Limits | None) -> float | None:
    """Return the least time of a call, by the machine's limits, over the best time measured.

    None where nothing was measured; above 1 only where a method multiplies less than its flops say.
    """
    task = state.task
    if limits is None or state.seconds == inf or not (task.flops or task.bytes):
        return None
    layer = Layer("", task.name, task.flops, task.bytes, state.seconds, task.saves)
    return layer.roofline(limits)


def percent_text(share: float | None) -> str:
    """Return a share for people: "12.3%"; nothing where it is not known."""
    return "" if share is None else f"{share:.1%}"


class View:
    """Shows a run; `tuner` is the one that was shown last, `earlier` the trials of those before it.

    `limits` are the machine's, which the table holds the best times against.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits
        self.tuner: Tuner | None = None
        self.now = "tune"
        self.earlier = 0
        self._shown = 0.0

    def stage(self, name: str) -> None:
        """Take note of what begins."""
        if self.now == "methods" and self.tuner is not None:
            self.earlier = self.tuner.trials
            self.tuner = None
        self.now = name
        self._shown = 0.0
        if self.tuner is not None:
            self.show(self.tuner)

    def show(self, tuner: Tuner) -> None:
        """Show where the run stands, unless it was shown a moment ago."""
        self.tuner = tuner
        if time.monotonic() - self._shown >= self.interval:
            self._shown = time.monotonic()
            self.draw(tuner)

    interval = _LINE_SECONDS

    def draw(self, tuner: Tuner) -> None:
        """Print one line on stderr."""
        print(f"  {self.headline(tuner)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was."""

    def headline(self, tuner: Tuner) -> str:
        """Return in a line how far it is."""
        words = [self._stage_text(tuner), best_text(tuner)]
        elapsed = tuner.elapsed
        if self.now == "tune" and elapsed > 0:
            words.append(f"{tuner.new_trials / elapsed:.1f} trials/s")
        failed = sum(sum(s.failures.values()) for s in tuner.states)
        words += [f"{failed} failed"] if failed else []
        left = self._left(tuner)
        words += [f"{int(left) // 60}:{int(left) % 60:02} left"] if left is not None else []
        return " · ".join(words)

    def _stage_text(self, tuner: Tuner) -> str:
        if self.now == "methods":
            done = sum(s.progress.is_done for s in tuner.states)
            trials = count_text(tuner.trials, "trial")
            return f"methods of {done} of {count_text(len(tuner.states), 'call')}, {trials}"
        if self.now == "decide":
            done = sum(s.decided is not None for s in tuner.states)
            return f"deciding {done} of {len(tuner.states)}"
        if self.now == "compare":
            return "running the model before and after in turns"
        most = tuner.options.trials
        total = "" if most is None else f" of {most + self.earlier}"
        return f"{tuner.trials + self.earlier}{total} trials"

    def _left(self, tuner: Tuner) -> float | None:
        """Return the seconds until the budget is spent, as far as one can say."""
        if self.now != "tune":
            return None
        options = tuner.options
        if options.minutes is not None:
            return max(0.0, 60 * options.minutes - tuner.elapsed)
        if options.trials is None or not tuner.new_trials:
            return None
        rate = tuner.new_trials / tuner.elapsed
        return max(0, options.trials - tuner.trials) / rate


class _LiveView(View):
    """A table that is drawn again and again in its place."""

    interval = _FRAME_SECONDS

    def __init__(self, limits: Limits | None, live: Any) -> None:
        super().__init__(limits)
        self._live = live

    def draw(self, tuner: Tuner) -> None:
        """Draw the table."""
        from rich.console import Group
        from rich.text import Text

        heading, *rows = _table_lines(tuner, self.limits, self._live.console.width)
        self._live.update(
            Group(
                Text(heading, "bold"),
                *map(Text, rows),
                Text(f"  {self.headline(tuner)}", "bold", no_wrap=False, overflow="fold"),
            )
        )
        self._live.refresh()

    def close(self) -> None:
        """Leave the last table on the screen."""
        self._live.stop()


def _table_lines(tuner: Tuner, limits: Limits | None, width: int) -> list[str]:
    """Return the lines of the table, none of them wider than a terminal that is not too narrow."""
    total = tuner.now
    order = sorted(tuner.states, key=_place)
    rows = [_cells(state, total, limits) for state in order[:_ROWS]]
    lines = table_lines(_HEADINGS, rows, spare=_SPARE, width=width - len(_MARGIN))
    if len(order) > _ROWS:
        lines.append(f"… {len(order) - _ROWS} more")
    return [_MARGIN + line for line in lines]


def _place(state: TaskState) -> float:
    """Return the place of a task in the table: what takes longest first, then what has no time."""
    return 0.0 if state.seconds == inf else -state.task.uses * state.seconds


def _cells(state: TaskState, total: float, limits: Limits | None) -> tuple[str, ...]:
    before = inf if state.default is None else state.default
    has_gain = before < inf and state.seconds < inf
    failed = sum(state.failures.values())
    return (
        state.task.name,
        str(state.task.uses),
        percent_text(share_of(state, total)),
        time_text(before),
        time_text(state.seconds),
        f"{before / state.seconds:.2f}x" if has_gain else "",
        percent_text(of_roofline(state, limits)),
        str(len(state.trials)),
        str(failed) if failed else "",
        state.status,
    )


@contextmanager
def live_view(limits: Limits | None = None) -> Iterator[View]:
    """Give a view: a live table where stderr is a terminal, else lines."""
    if not sys.stderr.isatty():
        yield View(limits)
        return
    from rich.live import Live

    with Live(console=console(stderr=True), auto_refresh=False, transient=True) as live:
        yield _LiveView(limits, live)
