# SPDX-License-Identifier: Apache-2.0
"""`treadle records import` and `export`: the lines of other projects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.build.records import Record, Records
from treadle.cli.main import main
from treadle.target.parse import parse_target
from treadle.te.knobs import Config

KERNEL = "dense_relu_0123456789ab"
CPU = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver3"


def line(task: str = KERNEL, entity: object = None, costs: object = None, **more: object) -> str:
    rows = [["tile", "ot", [1, 14, 4]], ["fast", "ot", True]] if entity is None else entity
    data: dict[str, Any] = {
        "input": [CPU, task, [["TENSOR", [4, 8], "float32"]], {}],
        "config": {"index": 3, "code_hash": None, "entity": rows},
        "result": [[1e-4, 2e-4] if costs is None else costs, 0, 1.5, 1e9],
        "version": 0.2,
        "tvm_version": "0.8.0",
    }
    return json.dumps(data | more) + "\n"


def test_lines_of_kernels_become_records_and_lines_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, records, back = (tmp_path / n for n in ("a.log", "b.jsonl", "c.log"))
    foreign = line("conv2d_NCHWc.x86", [["tile_ic", "sp", [-1, 3]]])
    source.write_text(line() + "\n" + foreign + line(costs=[1e9]))
    assert main(["records", "import", str(source), "-o", str(records)]) == 0
    printed = capsys.readouterr().out
    assert "1 line" in printed
    assert "no template is named 'conv2d_NCHWc.x86'" in printed
    assert f"{source}, line 3" in printed
    found = [r for r in Records.read(records) if isinstance(r, Record)]
    assert [r.choice for r in found] == [Config.of({"tile": [1, 14, 4], "fast": True})] * 2
    assert [r.target for r in found] == [str(parse_target(CPU))] * 2
    assert (found[0].seconds, bool(found[1].error)) == ((1e-4, 2e-4), True)
    command = ["records", "export", str(records), "-o", str(back), "--format", "autotvm"]
    assert main(command) == 0
    rows = [json.loads(text) for text in back.read_text().splitlines()]
    assert rows[0]["config"]["entity"] == [["tile", "ot", [1, 14, 4]], ["fast", "ot", True]]
    assert rows[1]["result"][0] == [1e9]
    again = tmp_path / "d.jsonl"
    assert main(["records", "import", str(back), "-o", str(again)]) == 0
    repeated = [r for r in Records.read(again) if isinstance(r, Record)]
    assert [(r.choice, r.seconds) for r in repeated] == [(r.choice, r.seconds) for r in found]


REFUSED = [
    ("no value of kind 'sp'", line(entity=[["tile", "sp", "__import__('os').getcwd()"]])),
    ("of no known kind", line(entity=[["tile", "py", "print(1)"]])),
    ("no value of knob", line(entity=[["tile", "ot", {"__reduce__": "os.system"}]])),
    ("keyword", line(input=[CPU, KERNEL, [], {"cmd": "x"}])),
    ("target and the task", line(input=[7, KERNEL, [], {}])),
    ("something else than times", line(costs=["exec('1')"])),
    ("something else than times", line(costs=[10**400])),
    ("NaN is no number", line().replace("1.5", "NaN")),
    ("of version '0.1'", line(version=0.1)),
    ("not one of AutoTVM", '{"code": "import os"}\n'),
    ("not a line of JSON", "gASVKAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOU\tx\n"),
    ("stands twice", line()[:-2] + ', "version": 0.2}\n'),
]


@pytest.mark.parametrize(("text", "bad"), REFUSED)
def test_a_line_that_is_none_is_refused_with_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, bad: str
) -> None:
    source, records = tmp_path / "a.log", tmp_path / "b.jsonl"
    source.write_text(line() + bad)
    assert main(["records", "import", str(source), "-o", str(records)]) == 2
    said = capsys.readouterr().err
    assert text in said
    assert "line 2" in said
    assert not records.exists()


def test_where_nothing_has_a_meaning_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, records = tmp_path / "a.log", tmp_path / "b.jsonl"
    source.write_text(line("dense_nopack.x86"))
    assert main(["records", "import", str(source), "-o", str(records)]) == 2
    assert "no line has a meaning here" in capsys.readouterr().err
    assert not records.exists()
