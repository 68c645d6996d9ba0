# SPDX-License-Identifier: Apache-2.0
"""Decisions tried in the model."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import treadle
from tests.optimize.cases import inputs_of
from tests.tune.tasks import network
from treadle.runtime.array import array
from treadle.tune import settle
from treadle.tune.settle import Comparison, Evidence, compared


def test_two_compilations_run_in_turns() -> None:
    module = network()
    pair = [treadle.compile(module) for _ in range(2)]
    inputs = {name: array(np.asarray(a)) for name, a in inputs_of(module.main).items()}
    names = [pair[0].kernels[0].name, "none"]
    found = compared(pair[0], pair[1], inputs, names, seconds=0.1)
    assert set(found.ratios) == {names[0]}  # what does not run is not compared
    assert 0 < found.before < 1
    assert 0.1 < found.share < 10


@pytest.mark.tiny
def test_kernels_that_take_longer_are_named() -> None:
    evidence = Evidence()
    evidence.add(Comparison(1.0, 0.9, 0.9, {"a": [0.8], "b": [1.02], "c": [1.0]}))
    assert evidence.slower(["a", "b", "c", "none"]) == ["b"]


@pytest.mark.tiny
def test_rounds_of_earlier_comparisons_count_for_a_kernel() -> None:
    evidence = Evidence()
    evidence.add(Comparison(1.0, 0.9, 0.9, {"a": [0.9, 0.92, 0.9, 0.91, 0.9]}))
    evidence.add(Comparison(1.0, 1.1, 1.1, {"a": [1.02, 1.01, 0.9]}))  # alone it would go back
    assert evidence.slower(["a"]) == []


@pytest.mark.tiny
def test_a_model_that_is_ahead_by_chance_is_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not compare_of(monkeypatch, lambda side, number: 1.0).is_faster
    one_ahead = compare_of(monkeypatch, lambda side, number: 1.0 - 0.1 * (side == number % 2))
    assert one_ahead.share == pytest.approx(1.0, abs=0.12)
    assert not one_ahead.is_sure
    ahead = compare_of(monkeypatch, lambda side, number: 1.0 - 0.001 * side)
    assert ahead.is_faster
    behind = compare_of(monkeypatch, lambda side, number: 1.0 + 0.001 * side)
    assert behind.is_sure
    assert not behind.is_faster


@pytest.mark.tiny
def test_kernels_decide_where_whole_runs_leave_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_ahead(side: int, number: int) -> float:
        return 1.0 - 0.1 * (side == number % 2)

    found = compare_of(monkeypatch, one_ahead, kernel=lambda side: 0.02 - 0.001 * side)
    assert (found.whole, found.kernels) == (0, -1)
    slower = compare_of(monkeypatch, one_ahead, kernel=lambda side: 0.02 + 0.001 * side)
    assert (slower.whole, slower.kernels) == (0, 1)
    equal = compare_of(monkeypatch, one_ahead, kernel=lambda side: 0.02)
    assert (equal.whole, equal.kernels) == (0, 0)


@pytest.mark.tiny
def test_changes_count_by_their_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 9 of 20 rounds the tuned model takes a little longer, in 11 of them a tenth less."""
    random = np.random.default_rng(0)
    noise = 1 + 0.001 * random.random(1000)

    def seconds(side: int, number: int) -> float:
        gains = 0.1 if number % 20 < 11 else -0.01
        return float(noise[number]) - gains * side

    assert compare_of(monkeypatch, seconds).whole == -1
    assert compare_of(monkeypatch, lambda side, number: seconds(1 - side, number)).whole == 1


@pytest.mark.tiny
def test_long_tuning_is_compared_for_longer() -> None:
    assert [settle.seconds_for(t) for t in (1, 400, 9000)] == [4.0, 10.0, 15.0]


@pytest.mark.tiny
@pytest.mark.parametrize(
    ("share", "whole", "kernels", "is_faster"),
    [
        (0.99, 0, -1, True),
        (1.01, 0, -1, False),  # whole runs take longer: its neighbours pay
        (0.99, 0, 0, False),
        (0.99, 0, 1, False),
        (0.99, -1, 0, True),
        (1.01, 1, -1, False),
    ],
)
def test_a_model_is_faster_by_whole_runs_or_else_by_its_kernels(
    share: float, whole: int, kernels: int, *, is_faster: bool
) -> None:
    assert Comparison(1.0, share, share, {}, whole, kernels).is_faster is is_faster


def compare_of(
    monkeypatch: pytest.MonkeyPatch,
    seconds: Callable[[int, int], float],
    kernel: Callable[[int], float] | None = None,
) -> Comparison:
    """Compare two models whose runs take so many seconds, by side and number of the run.

    `kernel` gives the seconds of the one kernel that is compared, by side.
    """

    class Model:
        def __init__(self, side: int) -> None:
            self.side, self.count = side, 0

        def run(self, _: object) -> None:
            """Do nothing."""

        def profile(self, *_: object) -> list[object]:
            return [] if kernel is None else [SimpleNamespace(kernel="a", mean=kernel(self.side))]

    def run(model: Model, _: object) -> float:
        model.count += 1
        return seconds(model.side, model.count)

    monkeypatch.setattr(settle, "_run", run)
    before: Any = Model(0)
    after: Any = Model(1)
    return compared(before, after, {}, [] if kernel is None else ["a"], seconds=0.001)
