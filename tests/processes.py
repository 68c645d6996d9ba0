# SPDX-License-Identifier: Apache-2.0
"""Processes that tests start, signal and wait for, on cores that other work may share.

Waits end by what is seen, not by the clock: `PATIENCE` only bounds a test that hangs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 240.0
"""Seconds until a wait is given up."""


def heed_interrupts() -> None:
    """Let Ctrl-C end the process that is about to start (`preexec_fn`).

    What runs the tests may ignore it, as in the background of a shell, and ignoring is inherited.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a program that Ctrl-C can end; at the end, it and all it has started are gone."""
    process = subprocess.Popen(
        command,
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed_interrupts,
        **options,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition; fail the test where it never holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            pytest.fail(f"after {PATIENCE:.0f} s: not {what}")
        time.sleep(0.02)


def children(parent: int) -> set[int]:
    """Return the processes that a process has started and that are not dead."""
    numbers = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return {n for n in numbers if (fields := _stat(n)) and int(fields[1]) == parent}


def is_alive(process: int) -> bool:
    """True for a process that runs or waits; one that is dead and not yet asked for is not."""
    return bool(_stat(process))


def is_waiting(process: int) -> bool:
    """True for a process that waits for something, and does not run."""
    return _stat(process)[:1] == ["S"]


def ticks(process: int) -> int:
    """Return how long a process has computed, in the system's clock ticks; 0 once it is gone."""
    fields = _stat(process)
    return int(fields[11]) + int(fields[12]) if fields else 0


def _stat(process: int) -> list[str]:
    """Return the fields of a process after its name; none where it is dead."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def resident_bytes(file: str, process: int | str = "self") -> int:
    """Return how much of a mapped file, named by the end of its path, a process has in memory.

    It reads what Linux tells of mappings.
    """
    found, is_file = 0, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if not line.split()[0].endswith(":"):
            is_file = line.endswith(file)
        elif is_file and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found
