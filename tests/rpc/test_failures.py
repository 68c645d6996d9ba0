# SPDX-License-Identifier: Apache-2.0
"""Errors travel as texts: the other side raises one of the same kind that says where it was."""

from __future__ import annotations

import pytest

from treadle import errors
from treadle.errors import RpcError, TreadleError
from treadle.rpc.failures import error_of, error_values, refusal
from treadle.rpc.wire import Status

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize("kind", [errors.InputError, errors.ArtifactError, errors.UsageError])
def test_an_error_of_ours_stays_what_it_is(kind: type[TreadleError]) -> None:
    sent = kind("wrong size", at="input x", hint="make it 4")
    found = error_of(error_values(sent), "device a:1")
    assert type(found) is kind
    assert (found.problem, found.hint) == ("wrong size", "make it 4")
    assert found.at == "device a:1, input x"


@pytest.mark.parametrize(
    ("error", "text"),
    [(MemoryError("2 GB"), "not enough memory: 2 GB"), (OSError(28, "No space"), "No space"),
     (ZeroDivisionError("by 0"), "ZeroDivisionError: by 0"),
     (errors.ScheduleError("a step"), "a step")],
)  # fmt: skip
def test_any_other_is_one_of_the_device(error: Exception, text: str) -> None:
    found = error_of(error_values(error), "device a:1")
    assert type(found) is RpcError
    assert text in found.problem


def test_a_long_text_is_cut_before_it_is_sent() -> None:
    assert max(map(len, map(str, error_values(ValueError("x" * 100_000))))) <= 2000


def test_every_refusal_has_a_next_step() -> None:
    refused = [s for s in Status if refusal(s, "a:1", 1).hint]
    assert len(refused) >= 6
    assert refusal(99, "a:1", 1).problem
