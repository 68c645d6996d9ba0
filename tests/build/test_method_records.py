# SPDX-License-Identifier: Apache-2.0
"""Records of methods: how a call is computed, kept beside the records of kernels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.optimize.cases import constant, function, var
from treadle.build.compile import Report
from treadle.build.records import Records, read_lines
from treadle.cli.main import main
from treadle.errors import ConfigError
from treadle.graph.nodes import Call, Module
from treadle.graph.text import call_text
from treadle.ops.conv import conv
from treadle.passes import recorded_decisions
from treadle.target.parse import parse_target
from treadle.te.knobs import Config

HOST = parse_target("llvm")


def network() -> tuple[Module, str]:
    """A convolution, and its text."""
    made = conv(
        var("x", 1, 16, 9, 9), constant(16, 16, 3, 3), pads_before=(1, 1), pads_after=(1, 1),
        origin="c",
    )  # fmt: skip
    assert isinstance(made, Call)
    return Module(function(made, params=[made.args[0]])), call_text(made)  # type: ignore[list-item]


def kernels_with(records: Records | Path) -> tuple[list[str], Report]:
    report = Report()
    made = treadle.compile(network()[0], records=records, report=report)
    return [k.name for k in made.kernels], report


def test_compilation_takes_the_methods_of_a_file(tmp_path: Path) -> None:
    records, (module, call) = Records(), network()
    records.put_method(call, HOST, "direct")
    records.put("some_kernel", HOST, Config.of({"tile": 4}))
    records.write(tmp_path / "records.jsonl")
    with recorded_decisions() as decisions:
        names, report = kernels_with(tmp_path / "records.jsonl")
    (decision,) = (d for d in decisions if d.topic == "method")
    assert (decision.choice, decision.reason, decision.call) == ("direct", "from a record", call)
    assert report.notes == []
    assert any("conv2d_nchwc" in name for name in names)
    x = np.random.default_rng(0).normal(size=(1, 16, 9, 9)).astype(np.float32)
    made = treadle.compile(module, records=records)
    np.testing.assert_allclose(
        np.asarray(made.run([x])[0]), np.asarray(treadle.compile(module).run([x])[0]), atol=1e-3
    )


def test_a_method_for_another_target_or_call_says_nothing() -> None:
    records, (_, call) = Records(), network()
    records.put_method(call, parse_target("llvm -mcpu=haswell -num-cores=3"), "plain")
    records.put_method("conv(another)", HOST, "plain")
    assert kernels_with(records)[0] == kernels_with(Records())[0]
    assert list(records.methods(HOST)) == ["conv(another)"]


def test_what_the_user_asks_for_comes_before_a_record() -> None:
    records, (module, call) = Records(), network()
    records.put_method(call, HOST, "no_such_method")
    report = Report()
    made = treadle.compile(module, records=records, methods={call: "direct"}, report=report)
    assert any("conv2d_nchwc" in k.name for k in made.kernels)
    assert report.notes == []


@pytest.mark.parametrize(
    ("method", "problem"),
    [("direkt", "no method 'direkt' computes conv"), ("strassen", "it is for 1x1")],
)
def test_a_method_that_does_not_fit_any_more_is_a_note(
    tmp_path: Path, method: str, problem: str
) -> None:
    path, (_, call) = tmp_path / "old.jsonl", network()
    line = {"version": 1, "call": call, "method": method, "target": str(HOST)}
    path.write_text(json.dumps(line) + "\n")
    names, report = kernels_with(path)
    assert names == kernels_with(Records())[0]
    (note,) = report.notes
    assert note.startswith(f"the record ({path}, line 1) of a method does not fit, the estimates ")
    assert problem in note


def test_they_come_back_from_a_file(tmp_path: Path) -> None:
    records = Records()
    records.put_method("conv(α)", HOST, "direct")
    records.put_method("conv(α)", HOST, "plain")
    records.put_method("matmul(b)", HOST, "panels")
    records.put("some_kernel", HOST, Config.of({"tile": 4}))
    records.write(tmp_path / "a.jsonl")
    again = Records.read(tmp_path / "a.jsonl")
    assert again.methods(HOST) == records.methods(HOST)
    assert [r.method for r in again.methods(HOST).values()] == ["plain", "panels"]
    assert len(again) == len(records) == 3
    assert [r.kernel for r in read_lines(tmp_path / "a.jsonl")] == ["some_kernel"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"version": 1, "call": "c", "target": "t"}, "the record of a call has no method"),
        (
            {"version": 1, "call": "c", "target": "t", "method": "m", "config": {}},
            "the record of a call has a field 'config'",
        ),
        (
            {"version": 1, "call": 3, "target": "t", "method": "m"},
            "the call of a record is no text",
        ),
        ({"version": 1, "call": "c", "target": "t", "method": ""}, "the method of a record is no"),
        ({"version": 2, "call": "c", "target": "t", "method": "m"}, "a record is of version '2'"),
        (
            {"version": 1, "call": "c", "kernel": "k", "target": "t", "method": "m"},
            "a record has a field 'call'",
        ),
    ],
)
def test_a_line_that_is_no_record_is_named(
    tmp_path: Path, line: dict[str, object], said: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(ConfigError) as caught:
        Records.read(path)
    assert caught.value.problem.startswith(said)
    assert caught.value.at == f"{path}, line 1"


def test_joining_and_pruning_files_keeps_methods(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl", "both.jsonl")]
    for path, call in zip(files, ("conv(a)", "conv(b)"), strict=False):
        records = Records()
        records.put_method(call, HOST, "direct")
        records.write(path)
    assert main(["records", "merge", *files[:2], "-o", files[2]]) == 0
    assert main(["records", "prune", files[2]]) == 0
    assert list(Records.read(files[2]).methods(HOST)) == ["conv(a)", "conv(b)"]


def test_methods_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, records = tmp_path / "a.jsonl", Records()
    records.put_method("conv(a)", HOST, "direct")
    records.write(path)
    for verb, said in (("list", "yes"), ("best", "method direct")):
        assert main(["records", verb, str(path)]) == 0
        printed = capsys.readouterr().out
        assert "conv(a)" in printed
        assert said in printed
