# SPDX-License-Identifier: Apache-2.0
"""What importers share: inputs of an operator, mapped files, shapes that a user gives."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from treadle.errors import InputError, ModelError
from treadle.frontend.builders.dynamic_operands import MeasuredSizes
from treadle.frontend.inputs import ImportedOperator, given_sizes, mapped_file
from treadle.graph.nodes import Constant


def test_inputs_may_be_left_out() -> None:
    value = Constant.of(np.zeros((2, 3), np.float32))
    use = ImportedOperator("Clip", 13, "c", (value, None), measured=MeasuredSizes("c"))
    assert use.input(0) is value
    assert use.shape(0) == (2, 3)
    assert use.optional(1) is None
    assert use.optional(7) is None
    assert [use.has_input(k) for k in range(3)] == [True, False, False]
    with pytest.raises(ModelError, match="Clip lacks its input 1"):
        use.all_inputs()
    with pytest.raises(ModelError, match="Clip lacks its input 0"):
        ImportedOperator("Clip", 13, "c", (), measured=MeasuredSizes("c")).all_inputs()


def test_a_file_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"abc")
    assert bytes(mapped_file(path, "a model")) == b"abc"


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("missing", "cannot be read: No such file"),
        ("folder", "this is a folder, not a model"),
        ("empty", "the file is empty"),
        ("pipe", "not a regular file"),
        ("zero", "not a file name"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str, problem: str) -> None:
    path = tmp_path / ("a\0b" if kind == "zero" else kind)
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(ModelError, match=problem):
        mapped_file(path, "a model")


def test_shapes_are_whole_numbers() -> None:
    assert given_sizes("x", [np.int64(2), 3], (1, 3)) == (2, 3)
    for shape in ("1,3", b"13", 5, (1.5, 2), None):
        with pytest.raises(InputError, match=r"input 'x' is .* no sequence") as caught:
            given_sizes("x", shape, (1, 3))
        assert caught.value.hint == "such as shapes={'x': (1, 3)}"
