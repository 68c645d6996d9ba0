# SPDX-License-Identifier: Apache-2.0
"""Workers live on between compilations, and are started in advance."""

from __future__ import annotations

from tests.target.test_workers import returns
from treadle.target.worker_pool import pool
from treadle.target.workers import compile_many, prepare, shut_down


def test_workers_live_on_between_compilations() -> None:
    compile_many([returns("a", 1)])
    started = set(pool().all)
    compile_many([returns("b", 2)])
    assert pool().all == started


def test_prepare_starts_the_workers_in_advance() -> None:
    shut_down()
    prepare()
    assert len(pool().idle) == 2
    shut_down()
    assert not pool().all
