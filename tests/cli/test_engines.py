# SPDX-License-Identifier: Apache-2.0
"""Streams of a benchmark share the time they take, and end."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tests.processes import PATIENCE
from treadle.cli.engines import RUNS_PER_ROUND, Engine, run_in_rounds
from treadle.errors import InputError


def test_streams_share_the_time_they_take() -> None:
    here, gate = threading.get_ident(), threading.Barrier(3)

    def work() -> list[np.ndarray]:
        if threading.get_ident() != here:  # not the untimed run
            gate.wait(timeout=PATIENCE)  # ends only where three streams run at once
        return []

    engine = Engine("meeting", [work, work, work], 0.0)
    run_in_rounds([engine], repeat=5, seconds=None)
    assert len(engine.times) == 15
    assert engine.busy_seconds <= sum(engine.times)
    assert engine.throughput == pytest.approx(15 / engine.busy_seconds)


def test_a_failure_in_a_stream_is_raised() -> None:
    here = threading.get_ident()

    def work() -> list[np.ndarray]:
        if threading.get_ident() != here:
            raise InputError("no more")
        return []

    with pytest.raises(InputError, match="no more"):
        run_in_rounds([Engine("failing", [work, work], 0.0)], repeat=1, seconds=None)


def test_a_time_limit_ends_the_runs() -> None:
    engine = Engine("slow", [lambda: time.sleep(0.05) or []], 0.0)
    run_in_rounds([engine], repeat=None, seconds=0.01)
    assert len(engine.times) == RUNS_PER_ROUND
    run_in_rounds([engine], repeat=10**6, seconds=0.01)
    assert len(engine.times) == 2 * RUNS_PER_ROUND
