# SPDX-License-Identifier: Apache-2.0
"""Arrays in device memory."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from treadle.errors import InputError
from treadle.runtime.gpu.array import DeviceArray
from treadle.runtime.gpu.devices import opened

pytestmark = pytest.mark.opencl

VALUES = np.arange(12, dtype="float32").reshape(3, 4)


def test_an_array_goes_to_the_device_and_back() -> None:
    there = treadle.array(VALUES, device=treadle.opencl())
    assert isinstance(there, DeviceArray)
    assert (there.shape, there.dtype, there.ndim, there.size) == ((3, 4), "float32", 2, 12)
    assert str(there.device) == "opencl(0)"
    np.testing.assert_array_equal(there.numpy(), VALUES)
    np.testing.assert_array_equal(there + 1, VALUES + 1)
    np.testing.assert_array_equal(there[1], VALUES[1])
    assert float(there.sum()) == VALUES.sum()
    copy = there.numpy()
    copy[:] = 0
    np.testing.assert_array_equal(there.numpy(), VALUES)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "bool", "uint8"])
def test_elements_of_every_width(dtype: str) -> None:
    values = treadle.array([0, 1, 1, 0, 1], dtype)
    there = treadle.array(values, device=treadle.opencl())
    assert there.dtype == dtype
    np.testing.assert_array_equal(there.numpy(), values.numpy())


def test_whole_arrays_are_copied() -> None:
    made = treadle.empty((3, 4), device=treadle.opencl())
    assert made.copyfrom(VALUES) is made
    other = treadle.empty((3, 4), device=treadle.opencl())
    made.copyto(other)
    back = treadle.empty((3, 4))
    other.copyto(back)
    np.testing.assert_array_equal(back.numpy(), VALUES)


def test_what_does_not_fit_is_refused() -> None:
    made = treadle.empty((3, 4), device=treadle.opencl())
    with pytest.raises(InputError, match=r"float32\[4\] cannot be copied to float32\[3, 4\]"):
        made.copyfrom(VALUES[0])
    with pytest.raises(InputError, match="cannot be written one by one"):
        made[0, 0] = 1.0


def test_memory_is_given_back() -> None:
    pool = opened("opencl").pool
    before = pool.in_use
    made = treadle.empty((1 << 20,), device=treadle.opencl())
    assert pool.in_use >= before + made.nbytes
    del made
    assert pool.in_use == before


def test_an_array_without_elements() -> None:
    there = treadle.array(np.zeros((0, 3), "int32"), device=treadle.opencl())
    assert there.numpy().shape == (0, 3)
