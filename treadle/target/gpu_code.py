# SPDX-License-Identifier: Apache-2.0
"""Object code for GPUs: what the back ends "cuda" and "opencl" compile their texts to.

CUDA C++ is compiled here, by NVRTC, to the machine code of one architecture. OpenCL C stays text,
which the driver of a device compiles when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treadle.errors import DeviceError, InternalError
from treadle.runtime.gpu import nvrtc
from treadle.runtime.gpu.code import options_of
from treadle.runtime.gpu.devices import facts_of, opened
from treadle.target.backend import CompileError, LoadedCode, OnDone
from treadle.target.base import Target
from treadle.target.text_compiler import compile_texts

# ---- CUDA ----------------------------------------------------------------------------------------


def cuda_version(target: Target) -> str:
    """Return what decides the machine code of a text. Raises: DeviceError without NVRTC."""
    return " ".join(["NVRTC", nvrtc.nvrtc_version(), target.cpu, *nvrtc.FLAGS])


def describe_cuda() -> str:
    """Return the compiler's name and version. Raises: DeviceError without NVRTC."""
    return f"NVRTC {nvrtc.nvrtc_version()}"


def check_cuda(text: str, target: Target) -> None:
    """Raise CompileError where a text does not compile."""
    _compiled(text, target)


def _compiled(text: str, target: Target) -> bytes:
    try:
        return nvrtc.compiled(text, target.cpu, options_of(text))
    except nvrtc.CompilerRefusal as error:
        raise CompileError(str(error)) from None


def compile_cuda(
    jobs: Iterable[tuple[str, str]], target: Target, on_done: OnDone | None
) -> dict[str, bytes]:
    """Compile kernels for an architecture; see `Backend.compile`."""
    version = cuda_version(target)
    return compile_texts(jobs, version, lambda text: _compiled(text, target), "CUDA", on_done)


def ptx(texts: Mapping[str, str], target: Target) -> dict[str, str]:
    """Return the PTX of each text by name."""
    return {
        name: nvrtc.compiled(text, target.cpu, options_of(text), "PTX").decode()
        for name, text in texts.items()
    }


# ---- OpenCL --------------------------------------------------------------------------------------


def opencl_version(target: Target) -> str:
    """Return what decides the object code besides the text: nothing, it is the text."""
    del target
    return "text"


def describe_opencl() -> str:
    """Return the first device's driver, which compiles. Raises: DeviceError without one."""
    return facts_of("opencl").driver


def check_opencl(text: str, target: Target) -> None:
    """Raise CompileError where the first device's driver refuses a text."""
    del target
    try:
        opened("opencl").driver.load(text.encode()).close()
    except DeviceError as error:
        raise CompileError(error.problem) from None


def compile_opencl(
    jobs: Iterable[tuple[str, str]], target: Target, on_done: OnDone | None
) -> dict[str, bytes]:
    """Return the texts as object code; see `Backend.compile`."""
    del target
    done: dict[str, bytes] = {}
    for name, text in jobs:
        done[name] = text.encode()
        if on_done is not None:
            on_done(name, False)
    return done


def same_texts(texts: Mapping[str, str], target: Target) -> dict[str, str]:
    """Return the texts: only a driver makes assembly of them."""
    del target
    return dict(texts)


# ---- both ----------------------------------------------------------------------------------------


def not_addresses(objects: Iterable[bytes]) -> LoadedCode:
    """Refuse to load code for GPUs as functions of this process."""
    del objects
    raise InternalError("code of a GPU has no address in this process")
