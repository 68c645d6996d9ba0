# SPDX-License-Identifier: Apache-2.0
"""The benchmark of lowering times every stage of fresh kernels."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import lowering


def test_every_stage_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "times.json"
    words = ["lowering", "--only", "few_rows", "--repeat", "2", "--json", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    lowering.main()
    assert "few_rows" in capsys.readouterr().out
    (row,) = json.loads(out.read_text())["nests"].values()
    assert set(row) == {*lowering.STAGES, "least"}
    assert all(row[stage] > 0 for stage in ("lower", "emit", "llvm"))
    assert row["least"] <= row["lower"]
