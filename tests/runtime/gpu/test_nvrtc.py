# SPDX-License-Identifier: Apache-2.0
"""CUDA C is compiled without a GPU."""

from __future__ import annotations

import pytest

from tests.devices import has_nvrtc
from treadle.errors import DeviceError
from treadle.runtime.gpu import nvrtc

pytestmark = [
    pytest.mark.opencl,
    pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed"),
]

TEXT = """
extern "C" __global__ void add_one(const float* a, float* b, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i] + 1.0f;
}
"""


def test_a_text_becomes_machine_code() -> None:
    assert "sm_90" in nvrtc.architectures()
    assert nvrtc.compiled(TEXT, "sm_90").startswith(b"\x7fELF")
    assert b".target sm_90" in nvrtc.compiled(TEXT, "sm_90", form="PTX")


def test_options_are_passed_on() -> None:
    text = TEXT.replace("1.0f", "ADDED")
    assert nvrtc.compiled(text, "sm_90", ["-DADDED=2.0f"])
    with pytest.raises(nvrtc.CompilerRefusal, match='"ADDED" is undefined'):
        nvrtc.compiled(text, "sm_90")


def test_an_unknown_architecture_is_named_with_those_there_are() -> None:
    with pytest.raises(DeviceError, match="does not compile for sm_1") as caught:
        nvrtc.compiled(TEXT, "sm_1")
    assert "sm_90" in caught.value.hint


def test_products_and_sums_are_rounded_one_by_one() -> None:
    text = TEXT.replace("a[i] + 1.0f", "a[i] * a[i] + 1.0f")
    assert b"fma" not in nvrtc.compiled(text, "sm_90", form="PTX")
