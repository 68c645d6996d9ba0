# SPDX-License-Identifier: Apache-2.0
"""Contexts that apply what was measured: to templates, to models, nested, in one thread."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.autotvm.templates import matmul_task, product
from tests.tune.tasks import network
from treadle import autotvm
from treadle.autotvm.task import Task
from treadle.build.records import Record, Records
from treadle.errors import ConfigError, UsageError
from treadle.te.knobs import Config

pytestmark = pytest.mark.tiny


def log_of(path: Path, task: Task, **seconds: float) -> Path:
    """Write a line for each configuration, by its number, and what it took; 1e9 failed."""
    with open(path, "a") as file:
        for number, time in seconds.items():
            entity = task.config_space.get(int(number[1:]))
            failed = time >= 1e9
            result = autotvm.MeasureResult((time,), 4 if failed else 0, 1.0, 2.0)
            inp = autotvm.MeasureInput(task.target, task, entity)
            file.write(autotvm.record.encode(inp, result) + "\n")
    return path


def factors() -> list[str]:
    """The splits of the template when it is called by hand."""
    schedule, _ = product(16, 16, 16, "float32")
    return [line for line in schedule.as_python().splitlines() if "split" in line]


def splits_of(number: int) -> list[str]:
    schedule, _ = matmul_task().instantiate(matmul_task().config_space.get(number))
    return [line for line in schedule.as_python().splitlines() if "split" in line]


def test_a_template_takes_the_fastest_of_its_arguments_and_target(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", matmul_task(), n13=3.0, n7=1.0, n9=2.0, n1=1e9)
    log_of(log, matmul_task(8), n2=0.5)
    default = factors()
    with autotvm.apply_history_best(log):
        assert factors() == splits_of(7) != default
        with treadle.parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"):
            assert factors() == default
        with treadle.parse_target("llvm"):
            assert factors() == splits_of(7)
    assert factors() == default


def test_the_best_of_a_log_is_printed_as_v08s_tutorials_do(tmp_path: Path) -> None:
    task = matmul_task()
    log = log_of(tmp_path / "log", task, n13=3.0, n7=1.0)
    found = autotvm.apply_history_best(log)
    assert found.query(task.target, task.workload) == task.config_space.get(7)
    assert found.query("llvm", task.workload) == task.config_space.get(7)
    default = task.config_space.get(0)
    assert found.query("llvm", matmul_task(8).workload) == matmul_task(8).config_space.get(0)
    assert autotvm.FallbackContext().query(task.target, task.workload) == default
    with found, autotvm.ApplyHistoryBest(None) as inner:
        assert inner.query(task.target, task.workload) == task.config_space.get(7)


def test_the_best_of_a_kernel_of_a_model_is_found_by_its_workload(tmp_path: Path) -> None:
    task = autotvm.task.extract_from_program(network(), target="llvm")[0]
    log = log_of(tmp_path / "log", task, n0=2.0, n1=1.0)
    found = autotvm.apply_history_best(log).query(task.target, task.workload)
    assert task.config_space.config(found) == task.config_space.config(task.config_space.get(1))
    assert found.index == 1
    records = Records()
    records.add(Record(task.name, str(task.target), task.config_space.config(found), (1.0,)))
    read = autotvm.ApplyHistoryBest(records).query(task.target, task.workload)
    assert task.config_space.config(read) == task.config_space.config(found)
    nothing = autotvm.ApplyHistoryBest(None).query(task.target, task.workload)
    assert nothing.entities == ()


def test_contexts_nest_and_a_fallback_hides_all(tmp_path: Path) -> None:
    outer = log_of(tmp_path / "outer", matmul_task(), n13=1.0)
    other = log_of(tmp_path / "other", matmul_task(8), n2=1.0)
    inner = log_of(tmp_path / "inner", matmul_task(), n7=5.0)
    default = factors()
    with autotvm.ApplyHistoryBest(str(outer)):
        with autotvm.ApplyHistoryBest(other):
            assert factors() == splits_of(13)
        with autotvm.ApplyHistoryBest([other, inner]):
            assert factors() == splits_of(7)
            with autotvm.FallbackContext():
                assert factors() == default
                with autotvm.apply_history_best(autotvm.record.load_from_file(outer)):
                    assert factors() == splits_of(13)
        assert factors() == splits_of(13)
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(factors()))
        thread.start()
        thread.join()
        assert seen == [default]


def test_a_compilation_in_the_block_reads_the_lines_of_its_kernels(tmp_path: Path) -> None:
    (task,) = autotvm.task.extract_from_program(network())
    log = log_of(tmp_path / "log", task, n3=1.0, n6=2.0)
    log_of(log, matmul_task(), n7=1.0)
    with autotvm.apply_history_best(log):
        tuned = treadle.compile(network())
        with autotvm.FallbackContext():
            plain = treadle.compile(network())
    assert tuned.kernels[0].choice == Config.of({"rows": 8, "lanes": False, "broken": False})
    assert str(tuned.coverage) == "1 of 1 kernels are in the records"
    assert plain.kernels[0].choice == Config()


def test_records_of_treadle_are_read_too(tmp_path: Path) -> None:
    (task,) = autotvm.task.extract_from_program(network())
    records = Records()
    records.put(task.kernel_name, task.target, Config.of({"rows": 2}))
    records.put(matmul_task().kernel_name, task.target, Config.of({"tile_x": [2, 8]}))
    file = tmp_path / "records.jsonl"
    records.write(file)
    for source in (file, records):
        with autotvm.apply_history_best(source):
            (kernel,) = treadle.compile(network()).kernels
            assert kernel.choice == Config.of({"rows": 2})
            assert factors()[-1] == splits_of(5 * 3)[-1]


def test_a_line_for_other_choices_is_told_of(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", matmul_task(), n7=1.0)
    log.write_text(log.read_text().replace("[-1, 2]", "[-1, 5]"))
    with (
        autotvm.apply_history_best(log),
        pytest.raises(ConfigError, match="does not offer this 'tile_x'"),
    ):
        factors()


def test_a_file_that_is_none_names_its_line(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", matmul_task(), n7=1.0)
    row = json.loads(log.read_text())
    row["config"]["entity"][0][2] = "os.system('x')"
    log.write_text(log.read_text() + json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match="no value of kind 'sp'") as caught:
        autotvm.apply_history_best(log)
    assert caught.value.at.endswith("log, line 2")
    with pytest.raises(UsageError, match="cannot be read"):
        autotvm.apply_history_best(tmp_path / "none")
