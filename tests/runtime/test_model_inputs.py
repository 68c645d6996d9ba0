# SPDX-License-Identifier: Apache-2.0
"""What a run is given: by name or in order, kept inputs below it, and mistakes in each."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.errors import InputError
from treadle.runtime.model_inputs import ModelInputs
from treadle.runtime.native_executor import TensorInfo

pytestmark = pytest.mark.tiny

X = np.arange(8, dtype=np.float32).reshape(2, 4)
N = np.array([3], np.int64)


def inputs() -> ModelInputs:
    return ModelInputs((TensorInfo("x", "float32", (-1, 4), -1), TensorInfo("n", "int64", (1,), 8)))


def test_arrays_that_fit_are_taken_as_they_are() -> None:
    for given in ([X, N], {"n": N, "x": X}, (X, N)):
        found = inputs().gather(given)
        assert found[0] is X
        assert found[1] is N


def test_a_kept_input_stands_in_where_a_run_gives_none() -> None:
    model = inputs()
    model.keep("n", N)
    model.keep(0, X)
    assert [a.shape for a in model.gather(None)] == [(2, 4), (1,)]
    given = model.gather({"x": X[:1]})
    assert given[0].shape == (1, 4)
    assert given[1] is N or np.array_equal(given[1], N)
    assert model.gather([X[:1]])[0].shape == (1, 4)
    assert model.gather(None)[0].shape == (2, 4)


def test_what_is_not_contiguous_is_copied() -> None:
    strided = np.arange(16, dtype=np.float32).reshape(2, 8)[:, ::2]
    found = inputs().gather([strided, N])[0]
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, strided)


@pytest.mark.parametrize(
    ("given", "problem", "hint"),
    [([X], "1 of 2 inputs are not given", "give n: int64[1]"),
     ([X, N, N], "the model has 2 inputs but is given 3", ""),
     ([X, N.astype("int32")], "input 'n' is int32[1] but int64[1] is expected", "astype('int64')"),
     ([X[:, :3], N], "input 'x' is float32[2, 3] but float32[?, 4] is expected", "? is a size"),
     ([X[0], N], "input 'x' has 1 dimensions (float32[4]) but float32[?, 4]", "? is a size"),
     ({"m": N, "x": X}, "the model has no input 'm'", "")],
)  # fmt: skip
def test_mistakes(given: list[np.ndarray], problem: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        inputs().gather(given)
    assert caught.value.problem.startswith(problem)
    assert hint in caught.value.hint
