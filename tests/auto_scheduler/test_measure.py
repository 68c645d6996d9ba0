# SPDX-License-Identifier: Apache-2.0
"""Tuning in Ansor's words with a device that measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auto_scheduler.workloads import TARGET, matmul_add
from tests.rpc.services import device_of, service, states, tracker_of
from treadle import auto_scheduler
from treadle.errors import RpcError


def test_a_device_measures_and_is_given_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.json"
    task = auto_scheduler.SearchTask(func=matmul_add, args=(32, 32, 32), target=TARGET)
    with service(tmp_path, "tracker") as tracker, device_of(tmp_path, tracker, "board"):
        runner = auto_scheduler.RPCRunner(
            "board", "127.0.0.1", tracker.port, timeout=30, repeat=2, min_repeat_ms=1
        )
        assert capsys.readouterr().out == "Get devices for measurement successfully!\n"
        options = auto_scheduler.TuningOptions(
            6, runner=runner, verbose=0, measure_callbacks=[auto_scheduler.RecordToFile(str(log))]
        )
        task.tune(options)
        assert states(tracker_of(tracker)) == ["free"]
        with pytest.raises(RpcError):
            auto_scheduler.RPCRunner("other", "127.0.0.1", tracker.port, timeout=1)
    found = list(auto_scheduler.load_records(str(log)))
    assert len(found) >= 6
    assert any(result.error_no == 0 and result.mean < 1 for _, result in found)
