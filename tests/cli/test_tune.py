# SPDX-License-Identifier: Apache-2.0
"""`treadle tune` and `treadle records`."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.processes import PATIENCE, heed_interrupts, wait_until
from tests.tune.conv_model import conv_model
from treadle.build.records import Records
from treadle.cli.main import main
from treadle.cli.tune_view import time_text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution with an activation, and a pool."""
    path = tmp_path_factory.mktemp("tune") / "net.onnx"
    onnx.save(conv_model(), path)
    return path


def test_tasks_are_listed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(model), "--tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["kernel", "first", "node", "uses"]
    assert any("conv" in line and "relu" in line for line in lines[1:])
    assert all(line.endswith("%") for line in lines[1:])


def test_tuning_writes_records_that_compile_takes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records, report = tmp_path / "r.jsonl", tmp_path / "r.html"
    command = ["tune", str(model), "-o", str(records), "--trials", "12", "--threads", "1"]
    assert main([*command, "--html", str(report)]) == 0
    out = capsys.readouterr().out
    assert "12 in " in out
    assert f"treadle compile {model} --tuning-records {records}" in out
    text = report.read_text()
    assert "<svg" in text
    assert "<th>roofline %</th>" in text
    kept = Records.read(records)
    assert sum(r.is_trial for r in kept) == 12
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"] == 12  # nothing is tried again
    assert [t["uses"] for t in found["tasks"]] == [1] * len(found["tasks"])
    assert sum(t["share"] for t in found["tasks"]) == pytest.approx(1.0)
    assert all(t["of_roofline"] > 0 for t in found["tasks"])
    assert found["machine"]["gflops"] > 0
    target = ["--target", next(iter(kept)).target]
    output = ["-o", str(tmp_path / "net.tar")]
    assert main(["compile", str(model), "--tuning-records", str(records), *output, *target]) == 0
    total = len(found["tasks"])
    assert f"tuned    {total} of {total} kernels are in the records" in capsys.readouterr().out


def test_records_of_another_machine_are_not_applied(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records, output = tmp_path / "r.jsonl", tmp_path / "net.tar"
    command = ["tune", str(model), "-o", str(records), "--trials", "3", "--threads", "1"]
    assert main(command) == 0
    own = next(iter(Records.read(records))).target
    other = ["--target", re.sub("-num-cores=[0-9]+", "-num-cores=7", own)]
    capsys.readouterr()
    assert (
        main(["compile", str(model), "-o", str(output), "--tuning-records", str(records), *other])
        == 0
    )
    out = capsys.readouterr().out
    assert "tuned    0 of " in out
    assert "the same kernel for -num-cores=" in out


def test_what_tuning_says_to_use_is_a_command_that_applies_the_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, records = tmp_path / "my net.onnx", tmp_path / "my records"
    onnx.save(conv_model(), model)
    command = ["tune", str(model), "-o", str(records), "--trials", "2", "--threads", "1"]
    assert main([*command, "--no-winograd", "--target", "llvm -mcpu=x86-64-v3"]) == 0
    (line,) = [o for o in capsys.readouterr().out.splitlines() if o.startswith("  use ")]
    words = shlex.split(line.removeprefix("  use "))
    assert main([*words[1:], "-o", str(tmp_path / "net.tar")]) == 0
    assert re.search(r"tuned    [1-9]\d* of ", capsys.readouterr().out)


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no file for the records"),
        (["-o", "a", "--tuning-records", "b"], "--tuning-records is for compiling"),
        (["-o", "a", "--html", "no/such/report.html"], "no/such is not a folder"),
        (["-o", "a", "--html", "/"], "/ cannot be written: it is a folder"),
        (["-o", "a", "--html", "./a"], "the report would take the place of a"),
        (["-o", "a", "--seed", "-1"], "seed of tuning is -1"),
        (["-o", "no/such/records"], "the records no/such/records cannot be written"),
    ],
)
def test_what_is_wrong_is_said(
    model: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", str(model), *words]) == 2
    assert said in capsys.readouterr().err


def test_an_interrupted_run_says_how_to_go_on(model: Path, tmp_path: Path) -> None:
    records = tmp_path / "r.jsonl"
    words = ["tune", str(model), "-o", str(records), "--minutes", "5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "treadle", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    wait_until(lambda: records.exists() and records.stat().st_size > 0, "a record")
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert f"go on    treadle tune {model} -o {records} --minutes 5" in out
    assert "Traceback" not in err
    assert len(Records.read(records)) >= 1


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--minutes", "0"], "'0' is not a number of minutes above 0"),
        (["--sizes", "batch"], "'batch' is no NAME=N"),
    ],
)
def test_numbers_that_are_none_are_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "model.onnx", "-o", "records", *words])
    assert said in capsys.readouterr().err


@pytest.mark.tiny
def test_times_are_for_people() -> None:
    texts = [time_text(s) for s in (4.6e-8, 8.13e-6, 1.23e-2, float("inf"))]
    assert texts == ["46 ns", "8.1 us", "12.30 ms", "-"]


LINES = (
    '{"version": 1, "kernel": "k_1", "target": "t", "config": {"a": 1}, "seconds": [0.002]}',
    '{"version": 1, "kernel": "k_1", "target": "t", "config": {"a": 2}, "seconds": [0.001]}',
    '{"version": 1, "kernel": "k_1", "target": "t", "config": {"a": 3}, "error": "no"}',
    '{"version": 1, "kernel": "k_2", "target": "t", "config": {}, "chosen": true}',
)


@pytest.mark.tiny
def test_files_of_records_are_listed_joined_and_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, both = (tmp_path / name for name in ("a", "b", "c"))
    first.write_text("\n".join(LINES[:3]) + "\n")
    second.write_text("\n".join(LINES[1:]) + "\n")
    assert main(["records", "merge", str(first), str(second), "-o", str(both)]) == 0
    assert f"{both} (4 records)" in capsys.readouterr().out
    assert main(["records", "list", str(both)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1] == ["k_1", "3", "1", "1.00", "ms", "t"]
    assert rows[2] == ["k_2", "0", "-", "yes", "t"]
    assert main(["records", "best", str(both)]) == 0
    assert "a = 2" in capsys.readouterr().out
    assert main(["records", "prune", str(both), "--keep", "1"]) == 0
    assert "dropped  2 records" in capsys.readouterr().out
    assert [r.choice.to_json() for r in Records.read(both)] == [{"a": 2}, {}]


@pytest.mark.tiny
def test_a_decision_without_a_time_has_that_of_its_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.jsonl"
    decision = LINES[0].replace(', "seconds": [0.002]', ', "chosen": true')
    path.write_text("\n".join((*LINES[:2], decision)) + "\n")
    for verb in ("list", "best"):
        assert main(["records", verb, str(path)]) == 0
        assert "2.00 ms" in capsys.readouterr().out


@pytest.mark.tiny
def test_what_holds_no_records_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "records.jsonl"
    path.touch()
    for verb in ("list", "best"):
        assert main(["records", verb, str(path)]) == 0
        assert capsys.readouterr().out == f"  records  none in {path}" + (
            "\n" if verb == "list" else " that has run or is decided\n"
        )
    command = ["records", "export", str(path), "--format", "autotvm", "-o", str(tmp_path / "o")]
    assert main(command) == 2
    assert f"there are no records in {path}" in capsys.readouterr().err


@pytest.mark.tiny
def test_a_place_that_cannot_be_written_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["records", "merge", "no records", "-o", str(tmp_path)]) == 2
    assert f"{tmp_path} cannot be written: it is a folder" in capsys.readouterr().err


@pytest.mark.tiny
def test_of_joined_decisions_the_last_counts(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a", "b", "c")]
    for place, value in zip(places, (1, 2, 1), strict=True):
        place.write_text(LINES[3].replace("{}", f'{{"a": {value}}}') + "\n")
    joined = tmp_path / "joined"
    assert main(["records", "merge", *map(str, places), "-o", str(joined)]) == 0
    (decided,) = Records.read(joined)
    assert decided.to_json()["config"] == {"a": 1}


@pytest.mark.tiny
def test_a_line_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(LINES[0] + "\n" + LINES[1].replace("0.001", '"__import__"') + "\n")
    assert main(["records", "list", str(path)]) == 2
    assert f"{path}, line 2" in capsys.readouterr().err
