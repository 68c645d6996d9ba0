# SPDX-License-Identifier: Apache-2.0
"""Tuning into a database goes on like tuning into a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import treadle
from tests.tune.tasks import network
from tests.tune.test_tuner import QUICK
from treadle.build.records import Records
from treadle.tune.model import tune_model


def test_a_model_is_tuned_into_a_database(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="extra fleet")
    url = f"sqlite:///{tmp_path / 'records.db'}"
    first = tune_model(network(), url, options=replace(QUICK, trials=4)).tuner
    second = tune_model(network(), url, options=replace(QUICK, trials=6)).tuner
    assert (first.new_trials, second.states[0].resumed, second.new_trials) == (4, 4, 2)
    choices = [str(r.choice.to_json()) for r in Records.read(url) if r.is_trial]
    assert len(choices) == len(set(choices)) == 6
    compiled = treadle.compile(network(), records=url)
    assert str(compiled.coverage) == "1 of 1 kernels are in the records"
