# SPDX-License-Identifier: Apache-2.0
"""Runs are told apart by where the cores are, and those during which they move are left out."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from benchmarks import apart
from treadle.runtime import native_build


class _Cores:
    """Cores whose places are told in turns."""

    def __init__(self, places: Iterable[str]) -> None:
        self._places = itertools.cycle(places)

    def place(self) -> str:
        return next(self._places)


def counts(places: Iterable[str], most: int = 3, seconds: float = 5) -> dict[str, int]:
    """Return how many runs of each kind count; the first look at a round's begin is one, too."""
    cores = cast("apart.Cores", _Cores(places))
    times = apart.timed({"now": lambda: None}, cores, seconds, most)
    return {place: len(of["now"]) for place, of in times.items()}


def test_each_kind_has_its_runs() -> None:
    assert counts(["near"] * 3 + ["far"] * 3) == {"near": 3, "far": 3}


def test_a_run_during_which_cores_move_counts_for_neither() -> None:
    assert counts(["near", "near", "far"], seconds=0.05) == {"near": 0, "far": 0}


def test_what_cannot_be_told_does_not_count() -> None:
    assert counts([""], seconds=0.05) == {"near": 0, "far": 0}


def test_a_complete_kind_waits_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_PAUSE", 0)
    assert counts(["near"], seconds=0.1) == {"near": 3, "far": 0}


def test_cores_of_this_machine_are_somewhere(tmp_path: Path) -> None:
    if not native_build.find_compilers() or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a C compiler and two CPUs are needed")
    cores = apart.Cores(tmp_path)
    assert cores.place() in ("near", "far", "")
    assert cores.rewriting() > 0
