# SPDX-License-Identifier: Apache-2.0
"""What is proposed follows from records and seed, whatever runs wrote the records."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tune.executors import Instantly
from tests.tune.tasks import product_task
from tests.tune.test_tuner import QUICK
from treadle.build.records import Records
from treadle.te.choice import Choice
from treadle.tune.record_file import RecordFile
from treadle.tune.tuner import Tuner


class ByText(Instantly):
    """Every choice takes a time that follows from its text."""

    count = 4

    def seconds(self, task: int, choice: Choice) -> float:
        return 1e-3 + 1e-9 * (zlib.crc32(str(choice.to_json()).encode()) % 1000)


def tried(path: Path, search: str, *trials: int, seed: int = 0) -> list[str]:
    """Runs one after another into one file, each up to so many trials; return all choices."""
    for number in trials:
        file = RecordFile(path)
        options = replace(QUICK, search=search, trials=number, seed=seed)
        Tuner([product_task()], file, options, executor=ByText()).run()
        file.close()
    return [str(r.choice.to_json()) for r in Records.read(path)]


@pytest.mark.parametrize("search", ["random", "genetic", "evolutionary", "annealing"])
def test_the_same_records_and_seed_give_the_same_proposals(search: str, tmp_path: Path) -> None:
    first = tried(tmp_path / "a", search, 6, 14)
    lines = (tmp_path / "a").read_bytes().splitlines(keepends=True)
    (tmp_path / "b").write_bytes(b"".join(lines[:6]))
    assert tried(tmp_path / "b", search, 14) == first
    assert len(set(first)) == 14


def test_a_run_interrupted_between_batches_is_the_uninterrupted_one(tmp_path: Path) -> None:
    # of a search that learns it is so up to what was being measured when it proposed
    whole = tried(tmp_path / "whole", "random", 13)
    assert tried(tmp_path / "parts", "random", 1, 9, 13) == whole
    assert tried(tmp_path / "other", "random", 13, seed=1) != whole
