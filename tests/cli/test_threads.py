# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while threads measure: none goes on after what it uses is gone, none waits for ever."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from treadle.cli import peak
from treadle.cli.threads import at_once

pytestmark = pytest.mark.tiny


def test_an_interrupted_round_ends_after_its_threads() -> None:
    """The other one may not have left the gate yet: then it does nothing."""
    main, ended, before = threading.main_thread().ident, list[int](), threading.active_count()
    assert main is not None

    def work(index: int) -> None:
        if index == 0:
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.1)
        ended.append(index)

    with pytest.raises(KeyboardInterrupt):
        peak.fastest_round(2, work)
    assert 0 in ended
    assert threading.active_count() == before


def test_who_waits_at_the_gate_leaves_where_the_block_fails() -> None:
    gate, before = threading.Barrier(3), threading.active_count()
    with pytest.raises(KeyboardInterrupt), at_once([gate.wait, gate.wait], gate):
        raise KeyboardInterrupt
    assert threading.active_count() == before
