# SPDX-License-Identifier: Apache-2.0
"""Weights of artifacts are mapped, and damaged ones refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treadle.build.artifact import add_params
from treadle.errors import ArtifactError
from treadle.runtime.weights_file import MappedBytes, mapped_weights

WEIGHTS = {
    "p0": np.arange(6, dtype="float32").reshape(2, 3),
    "p1": np.zeros((0, 4), "int8"),
    "p2": np.array(True),
    "p3": np.arange(5000, dtype="int64"),
}
_HEAD = 512
"""Bytes of a tar before what it holds."""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    with path.open("wb") as file:
        add_params(file, WEIGHTS)
    return path


def test_weights_are_where_they_lie(written: Path) -> None:
    with written.open("rb") as file:
        memory = MappedBytes(file.fileno(), _HEAD, written.stat().st_size)
        found = mapped_weights(memory)
    for name, value in WEIGHTS.items():
        view = found[name].view(value.dtype).reshape(value.shape)
        np.testing.assert_array_equal(view, value)
        assert not value.size or view.ctypes.data % 64 == 0


@pytest.mark.parametrize("at", [0, 16, 24])
def test_damage_is_found(written: Path, at: int) -> None:
    data = bytearray(written.read_bytes())
    data[_HEAD + at : _HEAD + at + 8] = b"\xff" * 8
    written.write_bytes(data)
    with written.open("rb") as file, pytest.raises(ArtifactError, match="are damaged"):
        mapped_weights(MappedBytes(file.fileno(), _HEAD, len(data)))


def test_what_is_cut_off_is_refused(written: Path) -> None:
    with written.open("rb") as file, pytest.raises(ArtifactError, match="cut off"):
        mapped_weights(MappedBytes(file.fileno(), _HEAD, _HEAD + 600))
