# SPDX-License-Identifier: Apache-2.0
"""Texts for GPUs become object code, or are refused with the compiler's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.devices import ADD_ONE, has_nvrtc
from tests.runtime.gpu.test_nvrtc import TEXT
from treadle.errors import DeviceError, InternalError
from treadle.settings import use
from treadle.target import gpu_code, host
from treadle.target.backend import CompileError, backend_of
from treadle.target.host import why_not_here
from treadle.target.parse import parse_target

needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")


@pytest.mark.opencl
@needs_nvrtc
def test_cuda_is_compiled_and_kept(tmp_path: Path) -> None:
    target, told = parse_target("cuda -arch=sm_90"), list[tuple[str, bool]]()
    text = TEXT.replace("1.0f", "1.25f")

    def on_done(name: str, is_cached: bool) -> None:
        told.append((name, is_cached))

    with use(cache=tmp_path):
        first = gpu_code.compile_cuda([("add_one", text)], target, on_done)
        assert gpu_code.compile_cuda([("add_one", text)], target, on_done) == first
    assert first["add_one"].startswith(b"\x7fELF")
    assert told == [("add_one", False), ("add_one", True)]
    assert "NVRTC" in backend_of(target).describe()
    assert "sm_90" in backend_of(target).version(target)


@pytest.mark.opencl
@needs_nvrtc
def test_cuda_that_does_not_compile_is_refused() -> None:
    target = parse_target("cuda -arch=sm_90")
    with pytest.raises(CompileError, match='"missing" is undefined'):
        gpu_code.check_cuda(TEXT.replace("a[i]", "missing"), target)
    with pytest.raises(InternalError, match=r'kernel bad: .*"missing" is undefined'):
        gpu_code.compile_cuda([("bad", TEXT.replace("a[i]", "missing"))], target, None)


@pytest.mark.opencl
def test_opencl_stays_text_that_the_driver_checks() -> None:
    target = parse_target("opencl")
    assert gpu_code.compile_opencl([("add_one", ADD_ONE)], target, None) == {
        "add_one": ADD_ONE.encode()
    }
    gpu_code.check_opencl(ADD_ONE, target)
    with pytest.raises(CompileError, match="missing"):
        gpu_code.check_opencl(ADD_ONE.replace("a[i]", "missing"), target)
    assert "OpenCL" in backend_of(target).describe()


def test_code_of_a_gpu_has_no_address_here() -> None:
    with pytest.raises(InternalError, match="no address"):
        gpu_code.not_addresses([])


def test_a_machine_without_a_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(kind: str) -> None:
        raise DeviceError(f"there is no driver of {kind}", hint="install one")

    monkeypatch.setattr(host, "facts_of", none)
    error = why_not_here(parse_target("cuda -arch=sm_90"))
    assert isinstance(error, DeviceError)
    assert error.hint == "install one"
