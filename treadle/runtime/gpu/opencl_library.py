# SPDX-License-Identifier: Apache-2.0
"""OpenCL's functions: of the loader that a system has, or straight out of a package's driver.

A driver shows its functions as a table, in the order of Khronos's cl_icd.h; a loader calls those
of the driver that an object belongs to. Where one driver is all there is, its table does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import (
    CFUNCTYPE,
    POINTER,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
    cast,
)
from functools import cache
from typing import Any

from treadle.errors import DeviceError
from treadle.runtime.gpu.libraries import distribution_files, opened, package_files

_INSTALL = 'install the vendor\'s driver, or PoCL for the CPU: pip install "treadle[opencl]"'
_LOADERS = ("libOpenCL.so.1", "libOpenCL.so")
_SIZES, _EVENTS = POINTER(c_size_t), POINTER(c_void_p)
_STATUS = POINTER(c_int)

_Row = tuple[int, Any, list[Any]]  # Any: ctypes has no public name for its simple types

_TABLE: Mapping[str, _Row] = {
    "clGetPlatformIDs": (0, c_int, [c_uint, _EVENTS, POINTER(c_uint)]),
    "clGetPlatformInfo": (1, c_int, [c_void_p, c_uint, c_size_t, c_void_p, _SIZES]),
    "clGetDeviceIDs": (2, c_int, [c_void_p, c_uint64, c_uint, _EVENTS, POINTER(c_uint)]),
    "clGetDeviceInfo": (3, c_int, [c_void_p, c_uint, c_size_t, c_void_p, _SIZES]),
    "clCreateContext": (4, c_void_p, [c_void_p, c_uint, _EVENTS, c_void_p, c_void_p, _STATUS]),
    "clCreateProgramWithSource": (
        26, c_void_p, [c_void_p, c_uint, POINTER(c_char_p), _SIZES, _STATUS]
    ),
    "clReleaseProgram": (29, c_int, [c_void_p]),
    "clBuildProgram": (30, c_int, [c_void_p, c_uint, _EVENTS, c_char_p, c_void_p, c_void_p]),
    "clGetProgramBuildInfo": (
        33, c_int, [c_void_p, c_void_p, c_uint, c_size_t, c_void_p, _SIZES]
    ),
    "clCreateKernel": (34, c_void_p, [c_void_p, c_char_p, _STATUS]),
    "clReleaseKernel": (37, c_int, [c_void_p]),
    "clSetKernelArg": (38, c_int, [c_void_p, c_uint, c_size_t, c_void_p]),
    "clReleaseEvent": (44, c_int, [c_void_p]),
    "clGetEventProfilingInfo": (45, c_int, [c_void_p, c_uint, c_size_t, c_void_p, _SIZES]),
    "clFinish": (47, c_int, [c_void_p]),
    "clEnqueueNDRangeKernel": (
        59, c_int, [c_void_p, c_void_p, c_uint, _SIZES, _SIZES, _SIZES, c_uint, _EVENTS, _EVENTS]
    ),
    "clEnqueueMarkerWithWaitList": (105, c_int, [c_void_p, c_uint, _EVENTS, _EVENTS]),
    "clCreateCommandQueueWithProperties": (
        123, c_void_p, [c_void_p, c_void_p, POINTER(c_uint64), _STATUS]
    ),
    "clSVMAlloc": (126, c_void_p, [c_void_p, c_uint64, c_size_t, c_uint]),
    "clSVMFree": (127, None, [c_void_p, c_void_p]),
    "clEnqueueSVMMemcpy": (
        129, c_int, [c_void_p, c_uint, c_void_p, c_void_p, c_size_t, c_uint, _EVENTS, _EVENTS]
    ),
    "clSetKernelArgSVMPointer": (134, c_int, [c_void_p, c_uint, c_void_p]),
}  # fmt: skip
"""The place of each function in the table, what it returns and what it takes."""

Functions = Mapping[str, Callable[..., Any]]  # Any: a status, or a handle


def _from_loader() -> Functions | None:
    library = opened(_LOADERS)
    if library is None:
        return None
    found: dict[str, Callable[..., Any]] = {}
    for name, (_, result, types) in _TABLE.items():
        function = getattr(library, name, None)
        if function is None:
            return None  # older than OpenCL 2.0
        function.restype, function.argtypes = result, types
        found[name] = function
    count = c_uint()
    return found if found["clGetPlatformIDs"](0, None, byref(count)) == 0 else None


def _from_package() -> Functions | None:
    """Return the functions of a driver for CPUs: Intel's, which nobody has who did not ask for it,
    or PoCL's.
    """
    library = opened(
        [
            *distribution_files("intel-opencl-rt", "libintelocl.so"),
            *package_files("pyopencl", ".libs/libpocl*.so"),
        ]
    )
    if library is None:
        return None
    find = library.clGetExtensionFunctionAddress
    find.restype, find.argtypes = c_void_p, [c_char_p]
    types = CFUNCTYPE(c_int, c_uint, _EVENTS, POINTER(c_uint))
    address = find(b"clIcdGetPlatformIDsKHR")
    platform = c_void_p()
    if not address or types(address)(1, byref(platform), None) or not platform.value:
        return None
    table = cast(cast(platform, POINTER(c_void_p))[0], POINTER(c_void_p))
    found: dict[str, Callable[..., Any]] = {}
    for name, (place, result, taken) in _TABLE.items():
        found[name] = CFUNCTYPE(result, *taken)(table[place])
    found["clGetPlatformIDs"] = types(address)
    return found


@cache
def functions() -> Functions:
    """Return OpenCL's functions by name. Raises: DeviceError when there is no driver of it."""
    found = _from_loader() or _from_package()
    if found is None:
        raise DeviceError("no OpenCL driver is found on this machine", hint=_INSTALL)
    return found


def text_of(function: Callable[..., int], *arguments: object) -> bytes:
    """Return what a function of the form (…, bytes, memory, bytes needed) tells."""
    size = c_size_t()
    if function(*arguments, 0, None, byref(size)):
        return b""
    data = ctypes.create_string_buffer(max(1, size.value))
    return data.raw[: size.value] if function(*arguments, size, data, None) == 0 else b""
