# SPDX-License-Identifier: Apache-2.0
"""Ansor's lines: imported, exported, refused; by Python and by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.auto_scheduler.test_steps import TUTORIAL
from tests.auto_scheduler.workloads import TARGET, matmul_add, options, task_of
from treadle import auto_scheduler
from treadle.auto_scheduler.log import read_log
from treadle.auto_scheduler.record_format import ANSOR
from treadle.build.records import Record, Records
from treadle.cli.main import main
from treadle.errors import UsageError
from treadle.te.choice import Script
from treadle.tune.foreign_records import export_records, import_records, write_lines

KEY = '["matmul_add", 64, 64, 64]'
MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def line(key: str = KEY, rows: object = None, **more: object) -> str:
    hardware = [4, 64, 64, 0, 0, 0, 0, 0]
    task = [key, "llvm -keys=cpu -link-params=0", hardware, "", 2, []]
    data: dict[str, Any] = {
        "i": [task, [[], TUTORIAL if rows is None else rows]],
        "r": [[1e-4, 2e-4], 0, 1.5, 1647846117],
        "v": "v0.6",
    }
    return json.dumps(data | more) + "\n"


def short(length: int, version: str) -> str:
    """A line of an older version, which says less of the task."""
    data = json.loads(line())
    data["i"][0] = data["i"][0][:length]
    return json.dumps(data | {"v": version}) + "\n"


@pytest.mark.parametrize("text", [line(), short(4, "v0.5"), short(3, "v0.2"), short(2, "v0.5")])
def test_lines_of_all_versions_load(tmp_path: Path, text: str) -> None:
    task = task_of(matmul_add, 64, 64, 64)
    log = tmp_path / "ansor.json"
    log.write_text(text)
    schedule, _ = task.apply_best(log)
    assert any(s.primitive == "parallel" for s in schedule.steps)
    ((inputs, result),) = auto_scheduler.load_records(log)
    assert (inputs.task.workload_key, list(result.costs)) == (KEY, [1e-4, 2e-4])
    best = auto_scheduler.ApplyHistoryBest(log).query(TARGET, KEY)
    assert best is not None
    assert list(best.transform_steps) == schedule.steps


def test_failed_candidates_stay_failed(tmp_path: Path) -> None:
    log = tmp_path / "ansor.json"
    log.write_text(line(r=[[1e10], 6, 9.0, 1647846117]))
    task_of(matmul_add, 64, 64, 64)
    ((_, result),) = auto_scheduler.load_records(log)
    assert (result.error_no, list(result.costs)) == (6, [])
    assert [row["r"][1] for row in export_records(read_log(log).records, ANSOR).lines] == [6]  # type: ignore[index]


def test_what_was_tuned_goes_out_and_comes_back(tmp_path: Path) -> None:
    log, out, task = tmp_path / "a.jsonl", tmp_path / "b.json", task_of(matmul_add, 32, 24, 16)
    task.tune(options(log, 4))
    found = export_records(Records.read(log), ANSOR)
    assert not found.skipped
    write_lines(out, found.lines)
    assert all(json.loads(row)["v"] == "v0.6" for row in out.read_text().splitlines())
    back = import_records(out, [ANSOR])
    own = [r for r in Records.read(log) if isinstance(r, Record)]
    assert [(r.kernel, r.target, r.seconds) for r in back.records] == [
        (r.kernel, r.target, r.seconds) for r in own
    ]
    for first, second in zip(own, back.records, strict=True):
        texts = [auto_scheduler.State(task, r.choice).kernel() for r in (first, second)]
        assert texts[0].object_code().code == texts[1].object_code().code
    with pytest.raises(UsageError, match="holds records of Ansor"):
        auto_scheduler.RecordToFile(out)


def test_imported_lines_are_tried_first(tmp_path: Path) -> None:
    old, new, task = tmp_path / "old.json", tmp_path / "new.json", task_of(matmul_add, 64, 64, 64)
    old.write_text(line())
    policy = auto_scheduler.SketchPolicy(
        task, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(old)]
    )
    task.tune(options(new, 2), policy)
    first = next(r for r in Records.read(new) if isinstance(r, Record) and not r.space)
    (known,) = read_log(old).records
    assert first.choice == known.choice


HOSTILE = [
    ("no step", line(rows=["__import__('os').getcwd()"])),
    ("step 0", line(rows=[["SP", 2, 0, 64, [10**40], 1]])),
    ("the code is none", line(rows=[["EXEC", 0, "import os"]])),
    ("no list of 2 to 2", line(i=["gASVKAAAAAAAAACMBXBvc2l4"])),
    ("no text", line(key=7)),  # type: ignore[arg-type]
    ("no number", line(r=[["exec('1')"], 0, 1.5, 0])),
    ("no number", line(r=[[1e-4], 0, float("nan"), 0])),
    ("no time", line(r=[[-1e-4], 0, 1.5, 0])),
    ("is not read", line(v="v9.9")),
    ("and nothing else", line(code="import os")),
    ("not a line of JSON", '{"i": ' + "[" * 100_000 + "\n"),
    ("not a line of JSON", line()[:60] + "9" * 5000 + "\n"),
]


@pytest.mark.parametrize(("text", "bad"), HOSTILE)
def test_hostile_lines_are_refused_with_their_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, bad: str
) -> None:
    task_of(matmul_add, 64, 64, 64)
    source, records = tmp_path / "a.log", tmp_path / "b.jsonl"
    source.write_text(line() + bad + line())
    assert main(["records", "import", str(source), "-o", str(records)]) == 2
    said = capsys.readouterr().err
    assert text in said or "is no list" in said
    assert "line 2" in said
    assert not records.exists()


def test_lines_without_a_meaning_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task_of(matmul_add, 64, 64, 64)
    source, records = tmp_path / "a.log", tmp_path / "b.jsonl"
    strange = [
        line('["2d10de6646307f0e3e5cf4b31c20e69b", [1, 14, 14, 256]]'),
        line(rows=[["SA", 2, 0, 8, 8]]),
        line(i=[[KEY, "cuda -keys=cuda,gpu", [0] * 8, "", 0, []], [[], []]]),
    ]
    source.write_text(line() + "".join(strange))
    assert main(["records", "import", str(source), "-o", str(records)]) == 0
    out = capsys.readouterr().out
    assert "3 lines" in out
    for number, reason in ((2, "no workload is known"), (3, "storage_align"), (4, "cuda")):
        assert f"line {number}" in out
        assert reason in out
    assert len(Records.read(records)) == 1


def test_the_command_knows_the_kernels_of_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out, back = (tmp_path / n for n in ("a.jsonl", "b.json", "c.jsonl"))
    shapes = {"image": (1, 1, 8, 8)}
    tasks, _ = auto_scheduler.extract_tasks(MODEL, None, "llvm", shapes=shapes)
    dense = next(t for t in tasks if "dense" in t.name)
    dense.tune(options(log, 3))
    model = ["--model", str(MODEL), "--input-shapes", "image:[1,1,8,8]"]
    command = ["records", "export", str(log), "--format", "ansor", "-o", str(out)]
    assert main([*command, *model]) == 0
    assert main(["records", "import", str(out), "-o", str(back), *model]) == 0
    out_text = capsys.readouterr().out
    assert "left out" not in out_text
    assert "3 records" in out_text
    compiled = treadle.compile(MODEL, shapes=shapes, records=back)
    (kernel,) = (k for k in compiled.kernels if k.name == dense.name)
    assert isinstance(kernel.choice, Script)
    assert not compiled.notes
