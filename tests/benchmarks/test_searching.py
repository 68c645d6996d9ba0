# SPDX-License-Identifier: Apache-2.0
"""The benchmark of searching counts candidates of every call of a space."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import searching


def test_every_call_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(searching, "_COUNT", 50)
    monkeypatch.setattr(searching, "_ROUNDS", 2)
    out = tmp_path / "times.json"
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"
    searching.main(["--repeat", "1", "--target", target, "--json", str(out)])
    assert "features" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert set(found["per_second"]) == {"sample", "mutate", "cross", "features", "estimate"}
    assert all(rate > 0 for rate in found["per_second"].values())
    assert found["seconds"]["propose, evolutionary"] > 0
