# SPDX-License-Identifier: Apache-2.0
"""What is shown and written while a task is tuned."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.autotvm.templates import matmul_task, option, ways_task
from treadle import autotvm
from treadle.autotvm.callback import format_si_prefix, log_to_file, progress_bar
from treadle.autotvm.tuner import GridSearchTuner
from treadle.errors import UsageError


def measured(cost: float, error: int = 0) -> tuple[Any, Any]:
    task = matmul_task()
    inp = autotvm.MeasureInput(task.target, task, task.config_space.get(0))
    costs = ("wrong",) if error else (cost,)
    return inp, autotvm.MeasureResult(costs, error, 1.0, 1.0)


def test_the_bar_is_that_of_v0_8(capsys: pytest.CaptureFixture[str]) -> None:
    bar = progress_bar(456, prefix="[Task  1/25] ")
    inp, result = measured(2 * 16**3 / 203.76e9)
    tuner: Any = SimpleNamespace(best_flops=218.31e9)
    bar(tuner, [inp] * 455, [result] * 455)
    bar(tuner, *([one] for one in measured(1.0, error=4)))
    bar.finish()
    bar.finish()
    shown = re.sub(r"\d+\.\d\d s", "640.50 s", capsys.readouterr().out)
    assert shown == (
        "\r[Task  1/25]  Current/Best:    0.00/   0.00 GFLOPS | Progress: (0/456) | 640.50 s"
        "\r[Task  1/25]  Current/Best:  203.76/ 218.31 GFLOPS | Progress: (455/456) | 640.50 s"
        "\r[Task  1/25]  Current/Best:    0.00/ 218.31 GFLOPS | Progress: (456/456) | 640.50 s"
        " Done.\n"
    )


def test_the_unit_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    inp, result = measured(2 * 16**3 / 5e6)
    tuner: Any = SimpleNamespace(best_flops=7e6)
    progress_bar(1, si_prefix="M")(tuner, [inp], [result])
    assert "   5.00/   7.00 MFLOPS" in capsys.readouterr().out
    assert format_si_prefix(3e3, "k") == 3
    with pytest.raises(UsageError, match="prefix 'x'"):
        progress_bar(1, si_prefix="x")


def test_where_the_log_says_everything_there_is_no_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("autotvm"), "level", logging.DEBUG)
    progress_bar(3).finish()
    assert capsys.readouterr().out == ""


def test_lines_go_to_a_file_or_an_open_one(tmp_path: Path) -> None:
    inp, result = measured(2.0)
    opened, path = io.StringIO(), tmp_path / "log"
    tuner: Any = None
    for target in (opened, path, str(path)):
        log_to_file(target)(tuner, [inp, inp], [result, result])
    rows = [json.loads(line) for line in (opened.getvalue() + path.read_text()).splitlines()]
    assert [row["result"][0] for row in rows] == [[2.0]] * 6
    with pytest.raises(UsageError, match="cannot be written"):
        log_to_file(tmp_path / "none" / "log")(tuner, [inp], [result])
    with pytest.raises(UsageError, match="protocol 'pickle'"):
        log_to_file(path, protocol="pickle")


def test_a_line_that_broke_off_is_cut_off(tmp_path: Path) -> None:
    inp, result = measured(2.0)
    path = tmp_path / "log"
    log = log_to_file(path)
    tuner: Any = None
    log(tuner, [inp], [result])
    path.write_bytes(path.read_bytes()[:-40])
    log(tuner, [inp], [result])
    assert [r.costs for _, r in autotvm.record.load_from_file(path)] == [(2.0,)]


def test_a_tuning_shows_every_trial_and_ends_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    tuner = GridSearchTuner(ways_task())
    tuner.tune(
        n_trial=3,
        measure_option=option(),
        callbacks=[progress_bar(3, prefix="[Task  1/ 1] "), log_to_file(log)],
    )
    shown = capsys.readouterr().out
    assert [f"({n}/3)" in shown for n in range(4)] == [True] * 4
    assert shown.endswith(" s Done.\n")
    found = list(autotvm.record.load_from_file(log))
    assert [result.error_no for _, result in found] == [0, 0, 5]
