# SPDX-License-Identifier: Apache-2.0
"""Tuning a whole model: what is written, refused and followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treadle
from tests.build.test_method_records import network as convolution
from tests.optimize.cases import inputs_of
from tests.tune.tasks import network
from tests.tune.test_tuner import QUICK
from treadle.build.records import Records
from treadle.errors import ConfigError, UsageError
from treadle.graph.nodes import Function, Module, Var
from treadle.graph.types import TensorType
from treadle.tune.model import tune_model
from treadle.tune.record_file import RecordFile


def test_a_decision_is_written_for_every_task(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    result = tune_model(network(), path, options=replace(QUICK, trials=9))
    (state,) = result.tuner.states
    decided = Records.read(path).best(state.task.name, state.task.target)
    assert decided is not None
    assert decided.is_chosen
    compiled = treadle.compile(network(), records=path)
    assert compiled.coverage is not None
    assert str(compiled.coverage) == "1 of 1 kernels are in the records"
    inputs = inputs_of(network().main)
    (got,), (want,) = compiled.run(inputs), treadle.compile(network()).run(inputs)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)


def test_what_cannot_be_tuned_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    with pytest.raises(UsageError, match="cannot be measured on this machine"):
        tune_model(network(), path, target="llvm -mtriple=aarch64-linux-gnu")
    path.write_text('{"version": 1, "kernel": "k"}\n')
    with pytest.raises(ConfigError, match="has no target") as caught:
        tune_model(network(), path, options=QUICK)
    assert caught.value.at == f"{path}, line 1"
    assert path.read_text() == '{"version": 1, "kernel": "k"}\n'


def test_a_model_without_kernels_is_refused_before_a_file_is_made(tmp_path: Path) -> None:
    x = Var("x", TensorType((2, 3), "float32"))
    with pytest.raises(UsageError, match="the model has no kernels"):
        tune_model(Module(Function((x,), x, "main")), tmp_path / "records.jsonl", options=QUICK)
    assert not [*tmp_path.iterdir()]


def test_the_methods_in_the_records_are_followed(tmp_path: Path) -> None:
    path, records = tmp_path / "records.jsonl", Records()
    module, call = convolution()
    default = tune_model(module, path, options=replace(QUICK, trials=1)).tuner
    other = "plain" if "plain" not in default.states[0].task.name else "direct"
    records.put_method(call, default.states[0].task.target, other)
    records.write(path)
    tuner = tune_model(module, path, options=replace(QUICK, trials=2)).tuner
    names = {s.task.name for s in tuner.states}
    assert names != {s.task.name for s in default.states}
    assert names == {k.name for k in treadle.compile(module, records=path).kernels}


def test_the_records_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "records.jsonl", Records.read
    first = tune_model(network(), path, options=replace(QUICK, trials=1)).tuner
    places: list[Path] = []
    monkeypatch.setattr(RecordFile, "read_new", lambda _: pytest.fail("read again"))
    monkeypatch.setattr(Records, "read", lambda place: places.append(place) or read(place))
    second = tune_model(network(), path, options=replace(QUICK, trials=1)).tuner
    assert (first.new_trials, second.states[0].resumed, second.new_trials) == (1, 1, 0)
    assert places == [path]
