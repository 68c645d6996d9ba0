# SPDX-License-Identifier: Apache-2.0
"""Candidates on the workers of a Dask cluster, two processes of this machine."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.processes import PATIENCE
from tests.tune.conv_model import conv_model
from treadle.build.compile import fused_model
from treadle.build.records import Records
from treadle.errors import UsageError
from treadle.te.knobs import DEFAULTS, Config
from treadle.tune.dask_executor import DaskExecutor, DaskWorkers
from treadle.tune.executor import Outcome, WorkOptions
from treadle.tune.model import tune_model
from treadle.tune.options import TuneOptions
from treadle.tune.runner import MeasureOptions
from treadle.tune.task import extract_tasks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("distributed") is None, reason="needs dask.distributed"
    ),
    pytest.mark.filterwarnings("default"),  # those of dask are its own
]
MEASURE = MeasureOptions(repeat=3, min_repeat_ms=0.2)


@pytest.fixture(scope="module")
def model() -> bytes:
    return conv_model().SerializeToString()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as made:
        yield made


@contextmanager
def workers_of(cluster: Any, model: bytes, target: str = "llvm") -> Iterator[DaskWorkers]:
    fused = fused_model(model, target=target)
    tasks = extract_tasks(fused).tasks
    executor = DaskExecutor(cluster.scheduler_address, model, fused.target, {})
    try:
        with executor.workers(tasks, WorkOptions(MEASURE)) as workers:
            yield workers
    finally:
        executor.close()


def outcomes(workers: DaskWorkers, count: int) -> dict[int, Outcome]:
    found: dict[int, Outcome] = {}
    end = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < end:
        found |= {o.ticket: o for o in workers.results(1.0, lambda _: float("inf"))}
    return found


def test_a_model_is_tuned_on_a_cluster(cluster: Any, model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    options = TuneOptions(trials=8, measure=MEASURE, executor=f"dask:{cluster.scheduler_address}")
    result = tune_model(model, path, options=options)
    trials = [r for r in Records.read(path) if r.is_trial]
    assert len(trials) == 8
    assert all(r.seconds for r in trials)  # built, right and measured
    assert {r.kernel for r in trials} == {s.task.name for s in result.tuner.states}
    again = tune_model(model, path, options=replace(options, executor="local"))
    assert again.tuner.new_trials == 0  # times of a cluster are times of this machine


def test_a_worker_that_dies_costs_one_trial(cluster: Any, model: bytes) -> None:
    with workers_of(cluster, model) as workers:
        before = set(workers.client.nthreads())
        for ticket in range(6):
            workers.add(ticket, 0, DEFAULTS if ticket else Config.of({"nothing": 1}))
        workers._feed(lambda _: float("inf"))
        victim = next(w for w in workers._workers.values() if w.job and w.job.ticket == 1)
        (pid,) = workers.client.run(_pid, workers=[victim.address]).values()
        workers.client.run_on_scheduler(_kill, pid)
        found = outcomes(workers, 6)
        assert len(found) == 6
        assert found[1].measured.error == "the worker died"
        assert "nothing" in found[0].measured.error
        assert [bool(found[k].measured.seconds) for k in range(2, 6)] == [True] * 4
        assert set(workers.client.nthreads()) - {victim.address} >= before - {victim.address}
        races = workers.race(0, [DEFAULTS, Config.of({"nothing": 1})], 3)
        assert [len(m.seconds) for m in races] == [3, 0]


def _pid() -> int:
    import os

    return os.getpid()


def _kill(pid: int) -> None:
    import os
    import signal

    os.kill(pid, signal.SIGKILL)


def test_only_workers_of_the_targets_cpu_measure(cluster: Any, model: bytes) -> None:
    refused = pytest.raises(UsageError, match=r"no worker of .* measures")
    with refused as caught, workers_of(cluster, model, "llvm -mcpu=x86-64-v2"):
        pass
    assert "its CPU is" in caught.value.problem


def test_a_scheduler_that_is_not_there_is_said(model: bytes, tmp_path: Path) -> None:
    options = TuneOptions(trials=1, executor="dask:tcp://127.0.0.1:1")
    with pytest.raises(UsageError, match="no scheduler of Dask answers"):
        tune_model(model, tmp_path / "records.jsonl", options=options)
