# SPDX-License-Identifier: Apache-2.0
"""The knobs of a kernel are raced against its default."""

from __future__ import annotations

import pytest

from benchmarks.tuning_knobs import Raced, raced
from tests.tune.tasks import product_task
from treadle.te.knobs import DEFAULTS, Config


def test_candidates_of_a_kernel_run_in_turns_with_its_default() -> None:
    found = raced(product_task(), 3, cold=False)
    assert found is not None
    assert found.seconds > 0
    assert len(found.shares) >= 3
    assert {k for _, _, c in found.shares if isinstance(c, Config) for k, _ in c.values} >= {"rows"}
    assert all(excess >= 1 for _, excess, _ in found.shares)
    assert [row[0] for row in found.shares] == sorted(row[0] for row in found.shares)


def test_what_no_candidate_saves_is_nothing() -> None:
    task = product_task()
    faster = Raced(task, DEFAULTS, 2.0, [(0.75, 1.0, DEFAULTS)])
    assert faster.gain == pytest.approx(0.5 * task.uses)
    assert Raced(task, DEFAULTS, 2.0, [(1.5, 1.0, DEFAULTS)]).gain == 0
