# SPDX-License-Identifier: Apache-2.0
"""Tuning in AutoTVM's words with devices that measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.autotvm.templates import option
from tests.rpc.services import device_of, service, states, tracker_of
from tests.tune.tasks import network
from treadle import autotvm
from treadle.autotvm.tuner import GridSearchTuner
from treadle.errors import RpcError, UsageError


def test_a_device_measures_and_is_given_back(tmp_path: Path) -> None:
    (task,) = autotvm.task.extract_from_program(network(), target="llvm")
    with service(tmp_path, "tracker") as tracker, device_of(tmp_path, tracker, "board"):
        runner = autotvm.RPCRunner("board", "127.0.0.1", tracker.port, timeout=30, repeat=2)
        tuner = GridSearchTuner(task)
        tuner.tune(2, measure_option=option(runner))
        assert states(tracker_of(tracker)) == ["free"]
        with pytest.raises(RpcError):
            autotvm.RPCRunner("other", "127.0.0.1", tracker.port, timeout=1)
    assert tuner.best_measure_pair is not None
    result = tuner.best_measure_pair[1]
    assert result.error_no == 0
    assert all(0 < cost < 1 for cost in result.costs)


def test_options_without_a_meaning_are_refused() -> None:
    with pytest.raises(UsageError, match="n_parallel is 0"):
        autotvm.RPCRunner("board", "127.0.0.1", 1, n_parallel=0)
    with pytest.raises(UsageError, match="module_loader"):
        autotvm.RPCRunner("board", "127.0.0.1", 1, module_loader=print)
