# SPDX-License-Identifier: Apache-2.0
"""NVRTC: CUDA C++ to machine code of one architecture, without a GPU and without a toolkit."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache

from treadle.errors import DeviceError
from treadle.runtime.gpu.libraries import Function, Types, opened, package_files, typed

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_TOOLKIT = "/usr/local/cuda/lib64/libnvrtc.so"
_INSTALL = 'pip install "treadle[cuda]", or install the CUDA toolkit'
_STRINGS = POINTER(c_char_p)

_SIGNATURES: Mapping[str, Types] = {
    "nvrtcVersion": [POINTER(c_int), POINTER(c_int)],
    "nvrtcCreateProgram": [POINTER(c_void_p), c_char_p, c_char_p, c_int, _STRINGS, _STRINGS],
    "nvrtcDestroyProgram": [POINTER(c_void_p)],
    "nvrtcCompileProgram": [c_void_p, c_int, _STRINGS],
    "nvrtcGetProgramLogSize": [c_void_p, POINTER(c_size_t)],
    "nvrtcGetProgramLog": [c_void_p, c_char_p],
    "nvrtcGetCUBINSize": [c_void_p, POINTER(c_size_t)],
    "nvrtcGetCUBIN": [c_void_p, c_char_p],
    "nvrtcGetPTXSize": [c_void_p, POINTER(c_size_t)],
    "nvrtcGetPTX": [c_void_p, c_char_p],
    "nvrtcGetNumSupportedArchs": [POINTER(c_int)],
    "nvrtcGetSupportedArchs": [POINTER(c_int)],
}
_OUT_OF_MEMORY, _BAD_OPTION = 1, 5

FLAGS = ("--std=c++17", "-default-device", "--fmad=false")
"""What every text is compiled with: floats are computed as written, multiply-adds are named."""


class CompilerRefusal(Exception):
    """NVRTC refuses a text; the message is its log."""


@cache
def _functions() -> dict[str, Function]:
    """Return NVRTC's functions. Raises: DeviceError when it is not installed."""
    wheels = package_files("nvidia", "*/lib/libnvrtc.so.*")
    library = opened([*wheels, *_NAMES, _TOOLKIT])
    if library is None:
        raise DeviceError("NVRTC, the compiler of CUDA, is not found", hint=_INSTALL)
    return typed(library, _SIGNATURES)


def _call(name: str, *arguments: object) -> None:
    status = _functions()[name](*arguments)
    if status:
        raise DeviceError(f"NVRTC's {name} fails with code {status}", hint=_INSTALL)


def nvrtc_version() -> str:
    """Return the version of NVRTC. Raises: DeviceError when it is not installed."""
    major, minor = c_int(), c_int()
    _call("nvrtcVersion", byref(major), byref(minor))
    return f"{major.value}.{minor.value}"


def architectures() -> tuple[str, ...]:
    """Return what NVRTC compiles for: "sm_75", "sm_80", ..."""
    count = c_int()
    _call("nvrtcGetNumSupportedArchs", byref(count))
    numbers = (c_int * count.value)()
    _call("nvrtcGetSupportedArchs", numbers)
    return tuple(f"sm_{number}" for number in numbers)


def compiled(
    text: str, architecture: str, options: Sequence[str] = (), form: str = "CUBIN"
) -> bytes:
    """Return the machine code of a text for an architecture such as "sm_90", or its "PTX".

    Raises: CompilerRefusal with the log, DeviceError when NVRTC is not installed.
    """
    words = [f"--gpu-architecture={architecture}", *FLAGS, *options]
    encoded = (c_char_p * len(words))(*(word.encode() for word in words))
    program = c_void_p()
    _call("nvrtcCreateProgram", byref(program), text.encode(), b"kernel.cu", 0, None, None)
    try:
        status = _functions()["nvrtcCompileProgram"](program, len(words), encoded)
        if status == _BAD_OPTION:
            names = ", ".join(architectures())
            raise DeviceError(
                f"NVRTC {nvrtc_version()} does not compile for {architecture}",
                hint=f"it compiles for {names}: install a newer one, or name one of these by -arch",
            )
        if status == _OUT_OF_MEMORY:
            raise DeviceError("NVRTC runs out of memory")
        if status:
            raise CompilerRefusal(_text(program, "ProgramLog").decode(errors="replace").strip())
        return _text(program, form)
    finally:
        _call("nvrtcDestroyProgram", byref(program))


def _text(program: c_void_p, what: str) -> bytes:
    size = c_size_t()
    _call(f"nvrtcGet{what}Size", program, byref(size))
    data = ctypes.create_string_buffer(max(size.value, 1))
    _call(f"nvrtcGet{what}", program, data)
    return data.raw[: size.value] if what == "CUBIN" else data.value
