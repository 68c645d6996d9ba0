# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: what is read, and what is damaged or leads elsewhere."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.frontend.tensorflow.models import checkpoint_files, chunk, integer, table_file
from treadle.errors import ModelError
from treadle.frontend.tensorflow.checkpoint import open_checkpoint

pytestmark = pytest.mark.tiny

TENSORS = {
    "layer/kernel": np.arange(6, dtype="float32").reshape(2, 3),
    "layer/kernel/step": np.array(7, "int64"),
    "other": np.array([1.5, -2], "float16"),
    "empty": np.zeros((0, 4), "float32"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    checkpoint_files(tmp_path / "variables", TENSORS)
    return tmp_path / "variables"


def test_tensors_are_views_of_the_file(folder: Path) -> None:
    found = open_checkpoint(folder, "variables")
    assert set(found.entries) == set(TENSORS)
    for key, value in TENSORS.items():
        made = found.tensor(key)
        assert made.dtype == value.dtype
        np.testing.assert_array_equal(made, value)
    assert not found.tensor("layer/kernel").flags.owndata


def test_no_checkpoint_and_no_such_variable(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ModelError, match="'gone' is read, but the model has no value of it"):
        open_checkpoint(folder, "variables").tensor("gone")
    assert open_checkpoint(tmp_path / "nowhere", "variables").entries == {}


def entry(*fields: bytes) -> bytes:
    return integer(1, 1) + chunk(2, chunk(2, integer(1, 2))) + b"".join(fields)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (entry(integer(4, 60), integer(5, 8)), "its 8 bytes at 60 are not inside"),
        (entry(integer(4, -8), integer(5, 8)), "not inside"),
        (entry(integer(5, 12)), "12 bytes are stored for float32"),
        (entry(integer(3, 1), integer(5, 8)), "it is in file 1 of 1"),
        (entry(integer(5, 8), chunk(7, b"")), "stored in slices"),
        (integer(1, 7) + integer(5, 8), "has elements of string"),
    ],
)
def test_entries_that_lie(value: bytes, problem: str, folder: Path) -> None:
    data = table_file({"": integer(1, 1), "v": value})
    (folder / "variables.index").write_bytes(data)
    with pytest.raises(ModelError, match=problem):
        open_checkpoint(folder, "variables").tensor("v")


def test_files_are_not_followed_out_of_the_model(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside"
    outside.write_bytes(b"\0" * 64)
    data = folder / "variables.data-00000-of-00001"
    data.unlink()
    data.symlink_to(outside)
    with pytest.raises(ModelError, match="is a link that leads out of its folder"):
        open_checkpoint(folder, "variables").tensor("other")


def test_a_changed_byte_fails_a_checksum(folder: Path) -> None:
    path = folder / "variables.index"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match="a checksum does not fit"):
        open_checkpoint(folder, "variables")


def test_damaged_tables_end_in_errors_of_ours(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("treadle.frontend.tensorflow.checkpoint._check_sum", lambda block: None)
    path = folder / "variables.index"
    data = path.read_bytes()
    for seed in range(400):
        chance = random.Random(seed)
        changed = bytearray(data)
        changed[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(changed[chance.choice([0, 0, chance.randrange(len(data) - 1)]) :])
        try:
            found = open_checkpoint(folder, "variables")
            for key in found.entries:
                found.tensor(key)
        except ModelError:
            continue
