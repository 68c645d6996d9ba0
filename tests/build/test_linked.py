# SPDX-License-Identifier: Apache-2.0
"""Weights linked into an object: the same bytes each time, and a limit."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import treadle
from treadle.build.c_source import MOST_WEIGHT_BYTES, write_source
from treadle.build.linked import LinkedModel, linked_model, linked_object
from treadle.errors import ToolchainError, UsageError
from treadle.runtime.elf.combine import write_relocatable
from treadle.runtime.elf.link import link_files, link_objects

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def digits() -> treadle.Executable:
    return treadle.compile(DIGITS)


def test_the_same_model_makes_the_same_bytes(digits: treadle.Executable) -> None:
    def written() -> tuple[bytes, bytes]:
        file = linked_object(digits, linked_model(digits, "m", digits.plan))
        out = io.BytesIO()
        write_relocatable(out, file)
        return out.getvalue(), link_files([file])

    assert written() == written()
    made, linked = written()
    assert link_objects([made]) == linked  # what was written is what was meant


def test_too_many_weights_for_one_object(digits: treadle.Executable) -> None:
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2 << 30,), (0,))
    model = LinkedModel("m", b"{}", (), {"w": huge}, 0)
    with pytest.raises(ToolchainError, match="too many for one object file"):
        linked_object(digits, model)
    model = LinkedModel("m", b"{}", (), {"w": huge[: MOST_WEIGHT_BYTES + 1]}, 0)
    with pytest.raises(UsageError, match="too many for C source"):
        write_source(io.BytesIO(), model, [], None)
