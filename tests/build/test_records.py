# SPDX-License-Identifier: Apache-2.0
"""Records: configurations kept for kernels, in files that may hold anything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from tests.optimize.cases import function, inputs_of, var
from treadle.build.compile import Report
from treadle.build.kernel import Kernel
from treadle.build.kernel_cache import kernel_key
from treadle.build.records import Record, Records
from treadle.errors import ConfigError, UsageError
from treadle.graph.nodes import Call, Function, Module
from treadle.graph.operator import Group
from treadle.ops import elementwise as ew
from treadle.ops.matmul import matmul
from treadle.target.parse import parse_target
from treadle.te.choice import Script
from treadle.te.knobs import Config, Knobs
from treadle.te.steps import Step

TARGET = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -num-cores=2")
CONFIG = Config.of({"tile": (1, 14, 4), "band": 7, "unroll": False})


def schedule(group: Group, _target: object, knobs: Knobs) -> None:
    """Rows in strips, of which the model likes those of 4 best."""
    result: Any = group.schedule[group.outputs[0]]
    rows = knobs.pick("rows", (1, 2, 4, 8), cost=lambda r: abs(r - 4))
    result.split(result.op.axis[0], factor=rows)
    if knobs.flag("vectorize", False):
        result.vectorize(result.op.axis[1])


def network() -> Module:
    """A product whose schedule is of its user."""
    params = [var("x", 16, 8), var("y", 8, 8)]
    product = matmul(*params)
    assert isinstance(product, Call)
    own = replace(matmul, name="own_product", schedule={"cpu": schedule})  # type: ignore[type-var]
    return Module(function(replace(product, op=own), params=params))


def kernel_with(config: dict[str, object]) -> Kernel:
    (kernel,) = treadle.compile(network()).kernels
    kernel.configure(Config.of(config))
    return kernel


def test_a_configuration_changes_the_schedule_of_a_kernel() -> None:
    kernel = kernel_with({})
    default = kernel.loop_text()
    assert [(k.name, k.value) for k in kernel.knobs] == [("rows", 4), ("vectorize", False)]
    assert (kernel.space.size, len(list(kernel.space))) == (8, 8)
    kernel.configure(Config.of({"rows": 8}))
    assert "factor=8" in kernel.schedule
    assert kernel.loop_text() != default
    kernel.configure(Config.of({"rows": 4, "vectorize": False}))
    assert kernel.loop_text() == default
    assert Kernel(kernel.function, kernel.target, kernel.choice).loop_text() == default


def test_a_configuration_that_does_not_fit_names_the_kernel() -> None:
    for config, said in (
        ({"rows": 3}, "3 is no candidate of knob rows\n  at    kernel {}\n  hint  there is 1, 2,"),
        ({"row": 4}, "there is no knob row\n  at    kernel {}\n  hint  did you mean rows?"),
    ):
        kernel = kernel_with(config)
        for ask in (kernel.loop_text, lambda k=kernel: k.knobs):
            with pytest.raises(ConfigError) as caught:
                ask()
            assert str(caught.value).startswith(said.format(kernel.name))


def test_the_schedules_of_a_kernel_become_kernels_of_their_own() -> None:
    kernel = kernel_with({"rows": 8})
    (made,) = kernel.scheduled
    fresh = made.schedule.fresh().replay(made.schedule.steps)
    again = Kernel(replace(made, schedule=fresh), kernel.target)
    assert again.loop_text() == kernel.loop_text()
    with pytest.raises(UsageError, match="has no schedule"):
        _ = Kernel(kernel.lowered, kernel.target).scheduled


def test_a_schedule_without_knobs_is_refused() -> None:
    old = replace(matmul, name="old", schedule={"cpu": lambda group, target: None})  # type: ignore[type-var, arg-type, misc]
    params = [var("x", 4, 4), var("y", 4, 4)]
    call = matmul(*params)
    assert isinstance(call, Call)
    with pytest.raises(treadle.ScheduleError) as caught:
        treadle.compile(Module(function(replace(call, op=old), params=params)))
    assert caught.value.problem == (
        "the schedule <lambda> of operator old does not take three arguments"
    )
    assert caught.value.hint == "a schedule is a function f(group, target, knobs)"


def test_keys_of_kernels_hold_the_configuration() -> None:
    x = var("x", 4)
    relu = Function((x,), ew.relu(x), "f")
    configs = (Config(), CONFIG, CONFIG.changed("band", 8))
    keys = [kernel_key("k", "text", relu, TARGET, c) for c in configs]
    assert None not in keys
    assert len(set(keys)) == 3
    assert keys[0] == kernel_key("k", "text", relu, TARGET)
    turned = Config(tuple(reversed(CONFIG.values)))
    assert keys[1] == kernel_key("k", "text", relu, TARGET, turned)


def test_compilation_takes_the_configurations_of_records(tmp_path: Path) -> None:
    module, path = network(), tmp_path / "records.jsonl"
    (kernel,) = treadle.compile(module).kernels
    records = Records()
    records.put(kernel.name, kernel.target, Config.of({"rows": 8}))
    records.put("nobody_0123456789ab", kernel.target, CONFIG)
    records.put(kernel.name, TARGET, Config.of({"rows": 2}))
    records.write(path)
    report = Report()
    compiled = treadle.compile(module, records=path, report=report)
    assert compiled.kernels[0].choice == Config.of({"rows": 8})
    assert "factor=8" in compiled.kernels[0].schedule
    assert report.notes == []
    inputs = inputs_of(module.main)
    (got,), (want,) = compiled.run(inputs), treadle.compile(module).run(inputs)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)


def test_a_record_that_does_not_fit_any_more_is_said_once() -> None:
    module, report, records = network(), Report(), Records()
    (kernel,) = treadle.compile(module).kernels
    records.put(kernel.name, kernel.target, Config.of({"rows": 3}))
    compiled = treadle.compile(module, records=records, report=report)
    assert compiled.kernels[0].choice == Config()
    assert report.notes == [
        f"the record of kernel {kernel.name} does not fit it, which runs by default: "
        "3 is no candidate of knob rows"
    ]
    assert tuple(report.notes) == compiled.notes
    assert compiled.coverage is not None
    assert str(compiled.coverage) == "0 of 1 kernels are in the records"
    (missing,) = compiled.coverage.missing
    assert (missing.kernel, missing.nearest) == (
        kernel.name, "a record of its own that does not fit it",
    )  # fmt: skip


@pytest.mark.tiny
def test_records_come_back_from_a_file(tmp_path: Path) -> None:
    path, records = tmp_path / "records.jsonl", Records()
    records.put("k", TARGET, Config())
    records.put("k", TARGET, CONFIG)
    records.add(Record("ü", "llvm", Config()))
    records.write(path)
    assert path.read_text(encoding="utf-8").splitlines()[0] == json.dumps(
        {
            "version": 1,
            "kernel": "k",
            "target": str(TARGET),
            "config": {"tile": [1, 14, 4], "band": 7, "unroll": False},
        }
    )
    again = Records.read(path)
    assert list(again) == list(records)
    assert len(again) == 2
    assert again.get("k", TARGET) == CONFIG
    lesser = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2 -num-cores=2")
    assert again.get("k", lesser) is None


@pytest.mark.tiny
def test_of_two_lines_for_one_kernel_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    lines = [json.dumps(Record("k", "t", Config.of({"a": n})).to_json()) for n in (1, 2)]
    path.write_text(f"\n{lines[0]}\n\n{lines[1]}")
    assert [r.choice for r in Records.read(path)] == [Config.of({"a": 2})]


@pytest.mark.tiny
def test_a_decision_counts_and_else_the_fastest_trial_of_the_target() -> None:
    records = Records()
    for rows, seconds in ((1, (3e-3, 1e-3, 2e-3)), (2, (1.5e-3,)), (4, ())):
        error = "" if seconds else "the result is wrong"
        records.add(Record("k", "t", Config.of({"rows": rows}), seconds, error))
    best = records.best("k", "t")
    assert best is not None
    assert (best.choice, best.time) == (Config.of({"rows": 2}), 1.5e-3)
    assert records.best("k", "other") is None
    records.add(Record("k", "t", Config.of({"rows": 1}), (2e-3,), is_chosen=True))
    decided = records.best("k", "t")
    assert decided is not None
    assert decided.choice == Config.of({"rows": 1})
    assert len(records.trials("k", "t")) == 3


@pytest.mark.tiny
def test_trials_and_steps_come_back_from_a_file(tmp_path: Path) -> None:
    path, records = tmp_path / "records.jsonl", Records()
    steps = Script((Step(1, "split", (0, 8)), Step(1, "vectorize", (2,))))
    trial = Record("k", "t", steps, (1e-3, 2e-3), "", False, "sketch", [1, [2, 3]], "ab", "1x2")
    failed = Record("k", "t", CONFIG, error="endless", space="template")
    for record in (trial, failed):
        records.add(record)
    records.write(path)
    again = list(Records.read(path))
    assert again == [trial, failed]
    assert [r.at for r in again] == [f"{path}, line 1", f"{path}, line 2"]


@pytest.mark.tiny
def test_a_line_that_breaks_off_at_the_end_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(f"{GOOD}\n{GOOD[:30]}")
    assert len(Records.read(path)) == 1
    path.write_text(f"{GOOD}\n{GOOD}")
    assert len(Records.read(path)) == 1  # a whole line, without its end
    path.write_text(f"{GOOD[:30]}\n{GOOD}")
    with pytest.raises(ConfigError, match="is not a line of JSON"):
        Records.read(path)


def test_a_kernel_is_made_by_the_steps_of_a_record() -> None:
    module, report, records = network(), Report(), Records()
    (kernel,) = treadle.compile(module).kernels
    steps = Script((Step(2, "split", (0, 2)), Step(2, "vectorize", (1,))))
    records.put(kernel.name, kernel.target, steps)
    compiled = treadle.compile(module, records=records, report=report)
    assert report.notes == []
    assert compiled.kernels[0].choice == steps
    assert "factor=2" in compiled.kernels[0].schedule
    assert compiled.kernels[0].knobs == ()
    inputs = inputs_of(module.main)
    (got,), (want,) = compiled.run(inputs), treadle.compile(module).run(inputs)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)
    records.put(kernel.name, kernel.target, Script((Step(2, "split", (9, 2)),)))
    treadle.compile(module, records=records, report=report)
    assert report.notes[0].startswith(f"the record of kernel {kernel.name} does not fit it")


GOOD = '{"version": 1, "kernel": "k", "target": "t", "config": {"a": 1}}'


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "a record is not a line of JSON: Expecting property name"),
        (b"\xff", "a record is not a line of JSON: it is not UTF-8"),
        (b"[" * 100_000, "a record is not a line of JSON: it is nested too deeply"),
        (b" " * 2_000_000 + b"x", "a record is longer than 1048576 bytes"),
        (b"9" * 5_000, "a record is not a line of JSON: Exceeds the limit"),
        (b"[1]", "a record is an object"),
        (b"{}", "a record has no version"),
        (b'{"version": 2}', "a record is of version '2'"),
        (b'{"version": true}', "a record is of version 'True'"),
        (b'{"version": 1, "kernel": "k"}', "a record has no target"),
        (GOOD.replace('"t"', "3").encode(), "the target of a record is no text"),
        (GOOD.replace('"k"', '""').encode(), "the kernel of a record is no text"),
        (GOOD.replace("}}", '}, "time": 1}').encode(), "a record has a field 'time'"),
        (GOOD.replace("}}", '}, "steps": 1}').encode(), "a record has both config and steps"),
        (GOOD.replace('"config"', '"steps"').encode(), 'steps in JSON are an object {"version"'),
        (GOOD.replace("}}", '}, "seconds": [0]}').encode(), "the seconds of a record are no list"),
        (GOOD.replace("}}", '}, "seconds": 1}').encode(), "the seconds of a record are no list"),
        (GOOD.replace("}}", '}, "chosen": 1}').encode(), "chosen in a record is true or false"),
        (GOOD.replace("}}", '}, "error": 1}').encode(), "the error of a record is no text"),
        (GOOD.replace('"a": 1', '"a": 1, "a": 2').encode(), "'a' stands twice in an object"),
        (GOOD.replace('{"a": 1}', "[]").encode(), "a configuration is an object of knobs and"),
        (GOOD.replace("1}}", "NaN}}").encode(), "a record is not a line of JSON: NaN is no number"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(GOOD.encode() + b"\n" + line + b"\n")
    with pytest.raises(ConfigError) as caught:
        Records.read(path)
    assert caught.value.problem.startswith(said)
    assert caught.value.at == f"{path}, line 2"


@pytest.mark.tiny
@pytest.mark.parametrize("content", [b"PK\x03\x04", b'{"name": "package"}', b"[1, 2"])
def test_a_file_of_one_line_that_is_no_record_is_not_taken_for_a_torn_one(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        Records.read(path)
    assert caught.value.at == f"{path}, line 1"


@pytest.mark.tiny
def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        treadle.compile(network(), records=tmp_path / "no")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        Records.read(tmp_path)
    with pytest.raises(UsageError, match="no"):
        Records().write(tmp_path / "no" / "records.jsonl")
    path = tmp_path / "records.jsonl"
    path.write_text("before")
    records = Records()
    records.add(Record("\ud800", "t", Config()))
    with pytest.raises(UnicodeEncodeError):
        records.write(path)
    assert [p.name for p in tmp_path.iterdir()] == ["records.jsonl"]  # nothing is left half done
    assert path.read_text() == "before"
