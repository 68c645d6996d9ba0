# SPDX-License-Identifier: Apache-2.0
"""Kernels on a device, called with arrays of the host and of the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import treadle
from tests.devices import BLOCK, add_one
from treadle.errors import DeviceError, InputError
from treadle.runtime.gpu.devices import opened
from treadle.runtime.gpu.kernel import DeviceKernel
from treadle.runtime.launches import Launch
from treadle.runtime.module import Module
from treadle.runtime.signature import Signature

pytestmark = pytest.mark.opencl


@pytest.fixture
def kernel() -> DeviceKernel:
    return DeviceKernel(*add_one())


@pytest.mark.parametrize("count", [0, 1, BLOCK, 1001])
def test_arrays_of_the_host(kernel: DeviceKernel, count: int) -> None:
    a, b = np.arange(count, dtype="float32"), np.zeros(count, "float32")
    kernel(a, b)
    np.testing.assert_array_equal(b, a + 1)


def test_arrays_of_the_device_stay_there(kernel: DeviceKernel) -> None:
    device = treadle.opencl()
    a = treadle.array(np.arange(100, dtype="float32"), device=device)
    b, c = treadle.empty((100,), device=device), np.zeros(100, "float32")
    kernel(a, b)
    kernel(b, c)  # one of each
    np.testing.assert_array_equal(c, a.numpy() + 2)


def test_arguments_are_checked(kernel: DeviceKernel) -> None:
    a = treadle.empty((100,), device=treadle.opencl())
    with pytest.raises(InputError, match="must be n = 100"):
        kernel(a, np.zeros(99, "float32"))
    with pytest.raises(InputError, match="float64"):
        kernel(a, np.zeros(100))
    with pytest.raises(InputError, match="takes 2 arguments"):
        kernel(a)


def test_scratch_memory_is_lent() -> None:
    text = """
    __kernel void first(__global const float* a, __global float* scratch, long n) {
      for (long i = get_global_id(0); i < n; i += get_global_size(0)) scratch[i] = a[i] * 2.0f;
    }
    __kernel void second(__global float* b, __global const float* scratch, long n) {
      for (long i = get_global_id(0); i < n; i += get_global_size(0)) b[i] = scratch[i] + 1.0f;
    }"""
    signature, code = add_one()
    launches = (
        Launch("first", (2, 1, 1), (BLOCK, 1, 1), (0, "workspace", "size:0")),
        Launch("second", (2, 1, 1), (BLOCK, 1, 1), (1, "workspace", "size:0")),
    )
    lent = Signature(signature.name, signature.params, 4096, signature.symbols)
    kernel = DeviceKernel(lent, replace(code, text=text, launches=launches))
    a, b = np.arange(500, dtype="float32"), np.zeros(500, "float32")
    kernel(a, b)
    np.testing.assert_array_equal(b, 2 * a + 1)


def test_time_is_the_device_s(kernel: DeviceKernel) -> None:
    a, b = kernel.random_arguments(sizes={"n": 100})
    module = Module({"add_one": kernel})
    result = module.time_evaluator("add_one", treadle.opencl(), number=2, repeat=3)(a, b)
    assert len(result.results) == 3
    assert result.min > 0
    assert kernel.time_evaluator(flush=True)(a, b).mean > 0
    with pytest.raises(treadle.UsageError, match=r"runs on opencl, not on cpu\(0\)"):
        module.time_evaluator("add_one", treadle.cpu())


def test_code_of_another_device_is_refused() -> None:
    signature, code = add_one()
    other = replace(code, kind="cuda", architecture="sm_1", binary=b"\x7fELF")
    with pytest.raises(DeviceError, match="cuda"):
        DeviceKernel(signature, other)(np.zeros(1, "float32"), np.zeros(1, "float32"))


def test_memory_of_calls_is_used_again(kernel: DeviceKernel) -> None:
    a, b = np.zeros(3000, "float32"), np.zeros(3000, "float32")
    kernel(a, b)
    pool = opened("opencl").pool
    used = pool.in_use + pool.kept
    for _ in range(5):
        kernel(a, b)
    assert pool.in_use + pool.kept == used
