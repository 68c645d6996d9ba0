# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs are found by place or name, and dynamic sizes are shown as `?`."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.errors import InputError, UsageError
from treadle.runtime.array import NDArray
from treadle.runtime.native_executor import TensorInfo
from treadle.runtime.ports import (
    dynamic_hint,
    fits,
    input_name,
    inputs_by_name,
    output_of,
    type_text,
)

pytestmark = pytest.mark.tiny

INDEX = {"data": 0, "mask": 1}
A, B = (np.full(2, k, np.float32) for k in range(2))


def test_an_input_has_a_place_and_a_name() -> None:
    assert [input_name(key, INDEX) for key in (0, 1, "mask")] == ["data", "mask", "mask"]
    with pytest.raises(InputError, match="input 2 does not exist; the model has 2"):
        input_name(2, INDEX)
    with pytest.raises(InputError, match="no input 'dat'") as caught:
        input_name("dat", INDEX)
    assert caught.value.hint == "did you mean 'data'?"


def test_inputs_in_order_and_by_name_are_joined() -> None:
    assert inputs_by_name([A], {"mask": B}, INDEX) == {"data": A, "mask": B}
    with pytest.raises(InputError, match="input 'data' is given twice"):
        inputs_by_name([A], {"data": B}, INDEX)
    with pytest.raises(InputError, match="has 2 inputs but is given 3"):
        inputs_by_name([A, B, B], {}, INDEX)


def test_outputs_are_those_of_the_last_run() -> None:
    results = [NDArray(A), NDArray(B)]
    assert output_of(results, 1, INDEX) is results[1]
    assert output_of(results, "data", INDEX) is results[0]
    for key in ("other", 2, -1):
        with pytest.raises(UsageError, match="no output"):
            output_of(results, key, INDEX)
    with pytest.raises(UsageError, match="has not run yet"):
        output_of(None, 0, INDEX)


def test_dynamic_sizes_fit_any_number() -> None:
    info = TensorInfo("x", "float32", (-1, 4), -1)
    assert type_text(info) == "float32[?, 4]"
    assert dynamic_hint(info).startswith("? is a size")
    assert not dynamic_hint(TensorInfo("x", "float32", (2, 4), 32))
    assert fits((7, 4), info.shape)
    assert not fits((7, 5), info.shape)
    assert not fits((4,), info.shape)
