# SPDX-License-Identifier: Apache-2.0
"""Tuning with a device that measures: wrong and deadly candidates cost themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from math import inf
from pathlib import Path

import numpy as np
import pytest

from tests.processes import PATIENCE, wait_until
from tests.rpc.services import Service, candidate, device_of, service, states, tracker_of
from treadle.build.compile import fused_model
from treadle.build.kernel import ObjectCode
from treadle.cli.main import main
from treadle.errors import UsageError
from treadle.te.knobs import DEFAULTS
from treadle.tune.boards import BoardWorkers
from treadle.tune.executor import LocalWorkers, Outcome, WorkOptions
from treadle.tune.rpc_executor import DeviceRunner, RpcExecutor, rpc_executor
from treadle.tune.runner import Baseline, Measured, MeasureOptions
from treadle.tune.task import Task, extract_tasks

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
QUICK = MeasureOptions(repeat=2, min_repeat_ms=0.1, timeout=PATIENCE)


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("tune")
    with service(folder, "tracker") as found, device_of(folder, found, "board"):
        yield found


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return extract_tasks(fused_model(DIGITS)).tasks


def test_candidates_are_checked_and_timed(tracker: Service, tasks: list[Task]) -> None:
    runner = DeviceRunner(tracker_of(tracker), "board", 1, tasks, QUICK)
    first, second = (task.built(DEFAULTS) for task in tasks[:2])
    good = runner.measure(0, first, inf)
    assert not good.error
    assert len(good.seconds) == 2
    assert all(0 < seconds < 1 for seconds in good.seconds)
    other = runner.measure(1, second, inf)
    baseline = Baseline(first, 1e3)
    for _ in range(2):  # the second time it is on the device
        control = runner.measure(0, first, inf, baseline)
        assert 1e2 < np.median(control.seconds) < 1e4
    assert not other.error
    rows = runner.race(0, [first, first], 3)
    assert [(len(row.seconds), row.error) for row in rows] == [(3, ""), (3, "")]
    runner.close()
    wait_until(lambda: states(tracker_of(tracker)) == ["free"], "the device given back")


def test_weights_can_come_from_memory(tracker: Service, tasks: list[Task]) -> None:
    options = MeasureOptions(repeat=2, min_repeat_ms=0.1, cold_weights=True)
    place = next(k for k, task in enumerate(tasks) if task.constants)
    runner = DeviceRunner(tracker_of(tracker), "board", 1, tasks, options)
    assert not runner.measure(place, tasks[place].built(DEFAULTS), inf).error
    runner.close()


def test_what_is_wrong_or_deadly_costs_itself(tracker: Service, tasks: list[Task]) -> None:
    """Kernels named as the task's, of the library that crashes and spins."""
    task = tasks[0]
    runner = DeviceRunner(tracker_of(tracker), "board", 1, tasks, QUICK)
    good = task.built(DEFAULTS)
    wrong = tasks[1].built(DEFAULTS)
    assert "no" in runner.measure(0, wrong, inf).error  # the library has no kernel of that name
    crash = ObjectCode(candidate(task.name, "crash"), good.workspace)
    assert "Segmentation fault" in runner.measure(0, crash, inf).error
    measured = runner.measure(0, ObjectCode(candidate(task.name, "nothing"), good.workspace), inf)
    assert "the result is wrong" in measured.error
    assert not runner.measure(0, good, inf).error
    runner.close()


def test_what_never_ends_is_ended(tracker: Service, tasks: list[Task]) -> None:
    runner = DeviceRunner(tracker_of(tracker), "board", 1, tasks, MeasureOptions(timeout=1.0))
    spin = ObjectCode(candidate(tasks[0].name, "spin"), tasks[0].built(DEFAULTS).workspace)
    assert "time limit" in runner.measure(0, spin, inf).error
    runner.close()


@pytest.mark.slow
def test_a_model_is_tuned_on_a_device(
    tracker: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "records.jsonl"
    address = f"127.0.0.1:{tracker.port}"
    words = ["tune", str(DIGITS), "-o", str(records), "--trials", "20", "--threads", "1", "--json"]
    assert main([*words, "--rpc-tracker", address, "--rpc-key", "board"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["trials"] >= 20
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert any(np.min(line.get("seconds") or [inf]) < 1 for line in lines)
    assert states(tracker_of(tracker)) == ["free"]


def test_only_one_place_measures(tracker: Service, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", str(DIGITS), "-o", "x.jsonl", "--executor", "dask:tcp://x:1"]
    words += ["--rpc-tracker", f"127.0.0.1:{tracker.port}", "--rpc-key", "board"]
    assert main(words) == 2
    assert "both say where to measure" in capsys.readouterr().err


def test_several_devices_measure_at_the_same_time(
    tracker: Service, tasks: list[Task], tmp_path: Path
) -> None:
    class Slow(DeviceRunner):
        def measure(
            self, task: int, made: ObjectCode, best: float, baseline: Baseline | None = None
        ) -> Measured:
            found = super().measure(task, made, best, baseline)
            wait_until(lambda: states(tracker_of(tracker)).count("busy") == 2, "both devices")
            return found

    make = partial(Slow, tracker_of(tracker), "board", 1)
    with device_of(tmp_path, tracker, "board"):
        wait_until(lambda: states(tracker_of(tracker)) == ["free"] * 2, "two devices")
        with BoardWorkers(tasks, WorkOptions(QUICK, builders=1), make, 2) as workers:
            assert workers.count == 2
            for ticket in range(4):
                workers.add(ticket, ticket % 2, DEFAULTS)
            found: dict[int, Outcome] = {}
            while workers.pending:
                found |= {o.ticket: o for o in workers.results(0.2, lambda _: inf)}
            assert sorted(found) == [*range(4)]
            assert not any(o.measured.error for o in found.values())
            rows = workers.race(0, [DEFAULTS, DEFAULTS], 3)
            assert [(len(row.seconds), row.error) for row in rows] == [(3, "")] * 2
        wait_until(lambda: states(tracker_of(tracker)) == ["free"] * 2, "both given back")


def test_a_device_that_dies_costs_what_it_measured(tracker: Service, tasks: list[Task]) -> None:
    class Deadly(DeviceRunner):
        def measure(
            self, task: int, made: ObjectCode, best: float, baseline: Baseline | None = None
        ) -> Measured:
            os._exit(3)

    make = partial(Deadly, tracker_of(tracker), "board", 1)
    with BoardWorkers(tasks, WorkOptions(QUICK, builders=1), make, 2) as workers:
        workers.add(7, 0, DEFAULTS)
        found: list[Outcome] = []
        while workers.pending:
            found += workers.results(0.2, lambda _: inf)
    (outcome,) = found
    assert outcome.measured.error == "the device: the process ended with exit code 3"


def test_devices_are_counted_and_this_machine_measures_alone(
    tracker: Service, tasks: list[Task]
) -> None:
    two = RpcExecutor(tracker_of(tracker), "board", count=2)
    assert isinstance(two.workers(tasks, WorkOptions(QUICK)), BoardWorkers)
    executor = rpc_executor(tracker_of(tracker), "board", count=4)
    assert isinstance(executor.workers(tasks, WorkOptions(QUICK)), LocalWorkers)  # it is here
    with pytest.raises(UsageError, match="has no device 'other'"):
        rpc_executor(tracker_of(tracker), "other")


def test_nothing_is_built_while_this_machine_measures(tasks: list[Task]) -> None:
    options = WorkOptions(QUICK)
    tracker = tracker_of  # never asked
    for is_here in (True, False):
        executor = RpcExecutor(tracker, "board", is_here=is_here)  # type: ignore[arg-type]
        workers = executor.workers(tasks, options)
        assert isinstance(workers, LocalWorkers)
        assert workers.is_quiet is is_here
