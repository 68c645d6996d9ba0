# SPDX-License-Identifier: Apache-2.0
"""Instructions of a model on this machine, one by one; on a device: tests/rpc/test_server.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import treadle
from treadle.build.debug_executor import DebugExecutor
from treadle.errors import InputError, UsageError

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
IMAGE = np.random.default_rng(0).random((1, 1, 8, 8)).astype("float32")


@pytest.fixture(scope="module")
def debug() -> DebugExecutor:
    return DebugExecutor(treadle.compile(DIGITS))


def test_the_last_instruction_writes_the_output(debug: DebugExecutor) -> None:
    wanted = treadle.compile(DIGITS).run([IMAGE])[0].numpy()
    found = debug.debug_get_output(-1, inputs=[IMAGE])
    assert np.array_equal(found.numpy().reshape(wanted.shape), wanted)
    assert np.array_equal(debug.debug_get_output(debug.names()[-1]).numpy(), found.numpy())
    out = treadle.array(np.zeros_like(found.numpy()))
    assert debug.debug_get_output(-1, out) is out
    assert np.array_equal(out.numpy(), found.numpy())


def test_nodes_of_the_network_are_names_too(debug: DebugExecutor) -> None:
    """A node is the instruction that completes it: of several it is the last."""
    rows = treadle.compile(DIGITS).instructions()
    name = "relu2"
    index = max(k for k, row in enumerate(rows) if name in str(row["origin"]).split("+"))
    wanted = debug.debug_get_output(index, inputs=[IMAGE]).numpy()
    assert np.array_equal(debug.debug_get_output(name).numpy(), wanted)


def test_every_instruction_takes_some_time(debug: DebugExecutor) -> None:
    seconds = debug.run_individual([IMAGE], number=3, repeat=2)
    assert len(seconds) == len(debug.names())
    assert all(0 < second < 1 for second in seconds)


def test_short_runs_are_repeated_until_they_take_long_enough(
    debug: DebugExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    executor = debug._model.executor
    profile = executor.profile

    def counted(inputs: object = None, runs: int = 10) -> object:
        counts.append(runs)
        return profile(inputs, runs=runs)  # type: ignore[arg-type]

    monkeypatch.setattr(executor, "profile", counted)
    debug.run_individual([IMAGE], repeat=2, min_repeat_ms=5)
    assert counts[0] == 1
    assert counts[1] > 2
    assert counts[1] % 2 == 0


def test_what_is_not_there_is_said(debug: DebugExecutor) -> None:
    with pytest.raises(UsageError, match="there is no instruction 999"):
        debug.debug_get_output(999)
    with pytest.raises(UsageError, match="no instruction 'relu2x'") as caught:
        debug.debug_get_output("relu2x")
    assert caught.value.hint
    with pytest.raises(UsageError, match="1 or more"):
        debug.run_individual(number=0)
    with pytest.raises(InputError, match="the array for it"):
        debug.debug_get_output(-1, treadle.array(np.zeros(3, np.int8)), inputs=[IMAGE])
