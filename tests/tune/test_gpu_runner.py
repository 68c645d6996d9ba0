# SPDX-License-Identifier: Apache-2.0
"""Candidates for a GPU: checked and timed on the device by a process of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.devices import small_network
from tests.processes import PATIENCE
from treadle.build.compile import fused_model
from treadle.build.kernel import ObjectCode
from treadle.build.records import Records
from treadle.errors import UsageError
from treadle.runtime.gpu.code import GpuCode
from treadle.te.knobs import DEFAULTS
from treadle.tune.gpu_runner import GpuRunner
from treadle.tune.model import tune_model
from treadle.tune.options import TuneOptions
from treadle.tune.runner import Baseline, MeasureOptions
from treadle.tune.task import Task, extract_tasks

QUICK = MeasureOptions(repeat=3, min_repeat_ms=0.2, timeout=PATIENCE)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return list(extract_tasks(fused_model(small_network(), target="opencl"), {}).tasks)


@pytest.fixture(scope="module")
def runner(tasks: list[Task]) -> Iterator[GpuRunner]:
    made = GpuRunner(tasks, QUICK)
    yield made
    made.close()


def edited(made: ObjectCode, old: str, new: str) -> ObjectCode:
    """Return code of which a piece of the text is another, to be compiled by the driver."""
    code = GpuCode.from_bytes(made.code)
    assert old in code.text
    text = code.text.replace(old, new)
    return replace(made, code=replace(code, text=text, binary=b"").to_bytes())


@pytest.mark.opencl
def test_right_candidates_have_times(runner: GpuRunner, tasks: list[Task]) -> None:
    for number, task in enumerate(tasks):
        made = task.built(DEFAULTS)
        measured = runner.measure(number, made, float("inf"))
        assert measured.error == ""
        assert all(0 < s < 10 for s in measured.seconds)
        control = runner.measure(number, made, float("inf"), Baseline(made, 1e4))
        assert 1e2 < np.median(control.seconds) < 1e6


@pytest.mark.opencl
def test_wrong_results_have_none(runner: GpuRunner, tasks: list[Task]) -> None:
    made = tasks[0].built(DEFAULTS)
    wrong = edited(made, "if (", "if (0 && ")
    assert "differ" in runner.measure(0, wrong, 1.0).error or "max|" in (
        runner.measure(0, wrong, 1.0).error
    )
    right, other = runner.race(0, [made, wrong], rounds=2)
    assert (len(right.seconds), right.error) == (2, "")
    assert other.seconds == ()


@pytest.mark.opencl
def test_what_does_not_compile_costs_a_trial(runner: GpuRunner, tasks: list[Task]) -> None:
    made = tasks[0].built(DEFAULTS)
    assert runner.measure(0, edited(made, "if (", "no such word ("), 1.0).error
    assert runner.measure(0, made, 1.0).error == ""  # the next one is measured anew


@pytest.mark.opencl
def test_a_process_that_died_costs_a_trial(runner: GpuRunner, tasks: list[Task]) -> None:
    made = tasks[0].built(DEFAULTS)
    assert runner.measure(0, made, 1.0).error == ""
    assert runner._child is not None
    os.kill(runner._child.pid, 9)
    assert "crashed" in runner.measure(0, made, 1.0).error
    assert runner.measure(0, made, 1.0).error == ""


@pytest.mark.opencl
def test_a_model_is_tuned_and_compiled_with_its_records(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    options = TuneOptions(trials=6, measure=QUICK)
    result = tune_model(small_network(), path, options=options, target="opencl")
    assert result.trials == 6
    assert all(r.target.startswith("opencl") for r in Records.read(path))
    tuned = treadle.compile(small_network(), target="opencl", records=path)
    plain = treadle.compile(small_network(), target="opencl")
    x = np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype("float32")
    np.testing.assert_allclose(np.asarray(tuned(x)[0]), np.asarray(plain(x)[0]), 1e-5, 1e-6)


@pytest.mark.opencl
def test_sketches_are_for_cpus(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no sketches for opencl"):
        tune_model(
            small_network(),
            tmp_path / "records.jsonl",
            options=TuneOptions(trials=4, space="sketch"),
            target="opencl",
        )
