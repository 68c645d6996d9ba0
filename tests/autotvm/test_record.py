# SPDX-License-Identifier: Apache-2.0
"""Lines of records: what they hold, that they come back, and as records of Treadle's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.autotvm.templates import matmul_task
from treadle import autotvm
from treadle.autotvm.record import decode, encode, load_from_file, pick_best
from treadle.build.records import Record, Records
from treadle.cli.main import main
from treadle.errors import ConfigError, UsageError

pytestmark = pytest.mark.tiny

NUMBER = 3 + 5 * (2 + 5 * 4)


def pair(size: int = 16, number: int = NUMBER, *costs: float) -> tuple[Any, Any]:
    task = matmul_task(size)
    inp = autotvm.MeasureInput(task.target, task, task.config_space.get(number))
    return inp, autotvm.MeasureResult(costs or (0.25, 0.75), 0, 1.5, 100.0)


def test_a_line_is_that_of_v0_8() -> None:
    inp, result = pair()
    assert json.loads(encode(inp, result)) == {
        "input": [str(inp.target), "tests/matmul", [16, 16, 16, "float32"], {}],
        "config": {
            "index": NUMBER,
            "code_hash": None,
            "entity": [
                ["tile_y", "sp", [-1, 8]],
                ["tile_x", "sp", [-1, 4]],
                ["order", "re", [2, 0, 1]],
                ["inner", "an", ["none"]],
                ["unroll", "ot", 0],
            ],
        },
        "result": [[0.25, 0.75], 0, 1.5, 100.0],
        "version": 0.2,
        "tvm_version": "0.8.0",
    }


def test_a_line_comes_back_as_it_was() -> None:
    inp, result = pair()
    again, same = decode(encode(inp, result))
    assert (again.target, again.task.key, again.config.index) == (
        inp.target, inp.task.key, NUMBER,
    )  # fmt: skip
    assert same == result
    assert inp.task.config_space.config(again.config) == inp.task.config_space.config(inp.config)
    assert encode(again, same) == encode(inp, result)


def test_a_failure_has_the_cost_of_1e9() -> None:
    inp, _ = pair()
    line = encode(inp, autotvm.MeasureResult(("the result is wrong",), 5, 1.0, 2.0))
    assert json.loads(line)["result"][:2] == [[1e9], 5]
    assert decode(line)[1].error_no == 5


def test_the_best_of_each_task_is_picked(tmp_path: Path) -> None:
    log, best = tmp_path / "log", tmp_path / "best"
    found = [pair(16, 1, 3.0), pair(16, 2, 1.0), pair(8, 1, 9.0), pair(16, 3, 2.0)]
    log.write_text("".join(encode(*one) + "\n" for one in found))
    pick_best(log, best)
    assert [inp.config.index for inp, _ in load_from_file(best)] == [2, 1]


def test_only_json_is_read_and_written() -> None:
    with pytest.raises(UsageError, match="protocol 'pickle'"):
        encode(*pair(), protocol="pickle")
    with pytest.raises(UsageError, match="protocol 'pickle'"):
        decode("", protocol="pickle")
    with pytest.raises(ConfigError, match="not one of AutoTVM"):
        decode('{"version": 1}')


TEMPLATES = """
from tests.autotvm import templates
"""


def test_lines_of_a_template_become_records_and_the_same_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, records, back, code = (tmp_path / n for n in ("log", "r.jsonl", "back", "own.py"))
    code.write_text(TEMPLATES)
    lines = [encode(*pair(16, n, float(n))) for n in (1, NUMBER, 13)]
    other = lines[0].replace('"tile_y", "sp", [-1, 2]', '"tile_y", "sp", [-1, 3]')
    log.write_text("\n".join([*lines, other]) + "\n")
    own = ["--operators", str(code)]
    assert main(["records", "import", str(log), "-o", str(records), *own]) == 0
    printed = capsys.readouterr().out
    assert "it does not fit the template 'tests/matmul'" in printed
    assert f"{log}, line 4" in printed
    found = [r for r in Records.read(records) if isinstance(r, Record)]
    assert [r.kernel for r in found] == [matmul_task().kernel_name] * 3
    assert [r.seconds for r in found] == [(1.0,), (float(NUMBER),), (13.0,)]
    command = ["records", "export", str(records), "-o", str(back), "--format", "autotvm", *own]
    assert main(command) == 0
    for before, after in zip(lines, back.read_text().splitlines(), strict=True):
        old, new = json.loads(before), json.loads(after)
        assert (new["input"], new["config"]) == (old["input"], old["config"])
        assert new["result"][:2] == old["result"][:2]
    with autotvm.apply_history_best(records):
        pass


def test_a_workload_that_is_none_is_not_exported(tmp_path: Path) -> None:
    inp, _ = pair()
    config = inp.task.config_space.config(inp.config)
    records = Records()
    for workload in (["tests/other", []], "tests/matmul", ["tests/matmul", [{"a": 1}]]):
        records.add(Record("k", str(inp.target), config, seconds=(1.0,), workload=workload))
    file = tmp_path / "r.jsonl"
    records.write(file)
    out = str(tmp_path / "o")
    assert main(["records", "export", str(file), "-o", out, "--format", "autotvm"]) == 2
