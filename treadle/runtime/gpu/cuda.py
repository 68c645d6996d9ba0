# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's GPUs through the CUDA driver's own library: no toolkit, no third-party package.

A device is used in its primary context, which other libraries of the process share, on a stream of
its own. A sequence of launches becomes a CUDA graph: one call starts all of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
)
from functools import cache
from threading import RLock

from treadle.errors import DeviceError
from treadle.runtime.gpu.driver import Argument, DeviceFacts, GpuModule, Process
from treadle.runtime.gpu.libraries import Function, Types, opened, typed

_LIBRARIES = ("libcuda.so.1", "libcuda.so")
_OUT = POINTER(c_void_p)
_SIGNATURES: Mapping[str, Types] = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [POINTER(c_int)],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDeviceTotalMem_v2": [POINTER(c_size_t), c_int],
    "cuDevicePrimaryCtxRetain": [_OUT, c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuMemGetInfo_v2": [POINTER(c_size_t), POINTER(c_size_t)],
    "cuStreamCreate": [_OUT, c_uint],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamBeginCapture_v2": [c_void_p, c_int],
    "cuStreamEndCapture": [c_void_p, _OUT],
    "cuGraphInstantiateWithFlags": [_OUT, c_void_p, c_uint64],
    "cuGraphLaunch": [c_void_p, c_void_p],
    "cuGraphExecDestroy": [c_void_p],
    "cuGraphDestroy": [c_void_p],
    "cuModuleLoadData": [_OUT, c_void_p],
    "cuModuleUnload": [c_void_p],
    "cuModuleGetFunction": [_OUT, c_void_p, c_char_p],
    "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, _OUT, _OUT],
    "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuMemcpyDtoDAsync_v2": [c_uint64, c_uint64, c_size_t, c_void_p],
    "cuEventCreate": [_OUT, c_uint],
    "cuEventDestroy_v2": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
}  # fmt: skip

_ATTRIBUTES = {
    "max_threads": 1, "warp": 10, "registers": 12, "clock": 13, "units": 16, "memory_clock": 36,
    "bus_bits": 37, "l2_bytes": 38, "major": 75, "minor": 76, "shared_bytes": 8,
}  # fmt: skip
"""The numbers of CUdevice_attribute."""

_NO_DEVICE, _NOT_FOUND, _OUT_OF_MEMORY = 100, 500, 2
_RELAXED = 2  # mode of capture: memory of what nobody needs may be freed meanwhile
_FATAL = frozenset({700, 702, 714, 715, 716, 717, 718, 719})
"""Errors of a kernel after which the context can do nothing more."""

_DRIVER_HINT = 'install NVIDIA\'s driver, or compile for the CPU with the target "llvm"'


class _Api:
    """The driver's functions; a call that fails raises DeviceError."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.functions = typed(library, _SIGNATURES)
        self.process = Process("CUDA")

    def __call__(self, name: str, *arguments: object) -> None:
        function = self.functions.get(name)
        if function is None:
            raise DeviceError(
                f"NVIDIA's driver has no function {name}", hint="install a driver of CUDA 12 on"
            )
        if status := function(*arguments):
            self.fail(name, status)

    def fail(self, name: str, status: int) -> None:
        """Raise the error of a call."""
        hint = ""
        if status in _FATAL:
            hint = "nothing runs on this device any more in this process: start another one"
        elif status == _OUT_OF_MEMORY:
            hint = "run smaller inputs, or stop what else uses the GPU (nvidia-smi lists it)"
        raise DeviceError(f"{name} fails: {self.words(status)}", hint=hint)

    def words(self, status: int) -> str:
        """Return the driver's words for an error."""
        text = c_char_p()
        named = self.functions["cuGetErrorString"](status, byref(text))
        words = (
            text.value.decode(errors="replace") if named == 0 and text.value else "unknown error"
        )
        return f"{words} (code {status})"


def _api() -> _Api:
    """Return the initialised driver.

    Raises: DeviceError when there is none, or no device, or in a forked process.
    """
    api = _started()
    api.process.check()
    return api


@cache
def _started() -> _Api:
    library = opened(_LIBRARIES)
    if library is None:
        raise DeviceError(
            "NVIDIA's driver (libcuda.so.1) is not found on this machine", hint=_DRIVER_HINT
        )
    api = _Api(library)
    status = api.functions["cuInit"](0)
    if status == _NO_DEVICE:
        raise DeviceError("NVIDIA's driver finds no GPU in this machine", hint=_DRIVER_HINT)
    if status:
        raise DeviceError(
            f"NVIDIA's driver does not start: {api.words(status)}",
            hint="look at what nvidia-smi says of it",
        )
    return api


def device_count() -> int:
    """Return how many GPUs there are. Raises: DeviceError when there is no driver."""
    count = c_int()
    _api()("cuDeviceGetCount", byref(count))
    return count.value


def driver_version() -> str:
    """Return the version of CUDA that the driver supports, such as "13.0"."""
    number = c_int()
    _api()("cuDriverGetVersion", byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def facts_of(index: int) -> DeviceFacts:
    """Return what a GPU is, without opening it. Raises: DeviceError."""
    api, count = _api(), device_count()
    if not 0 <= index < count:
        raise DeviceError(
            f"there is no cuda({index}): this machine has {count} GPUs",
            hint=f"devices are cuda(0) to cuda({count - 1})" if count else _DRIVER_HINT,
        )
    device, name, memory = c_int(), ctypes.create_string_buffer(256), c_size_t()
    api("cuDeviceGet", byref(device), index)
    api("cuDeviceGetName", name, 256, device)
    api("cuDeviceTotalMem_v2", byref(memory), device)
    found: dict[str, int] = {}
    for attribute, number in _ATTRIBUTES.items():
        value = c_int()
        api("cuDeviceGetAttribute", byref(value), number, device)
        found[attribute] = value.value
    transfers = 2  # a clock: memory of GPUs has a double data rate
    return DeviceFacts(
        kind="cuda",
        index=index,
        name=name.value.decode(errors="replace"),
        architecture=f"sm_{found['major']}{found['minor']}",
        driver=f"CUDA {driver_version()}",
        units=found["units"],
        max_threads=found["max_threads"],
        warp=found["warp"],
        shared_bytes=found["shared_bytes"],
        registers=found["registers"],
        clock_mhz=found["clock"] // 1000,
        memory_bytes=memory.value,
        l2_bytes=found["l2_bytes"],
        bandwidth=transfers * found["memory_clock"] * 1000 * found["bus_bits"] // 8,
    )


class CudaDriver:
    """An NVIDIA GPU, open: see `GpuDriver`."""

    def __init__(self, index: int) -> None:
        self.facts = facts_of(index)
        self.lock = RLock()
        self._api = _api()
        self._process = Process(f"cuda({index})")
        device, context, stream = c_int(), c_void_p(), c_void_p()
        self._api("cuDeviceGet", byref(device), index)
        self._api("cuDevicePrimaryCtxRetain", byref(context), device)
        self._context = context
        self._enter()
        self._api("cuStreamCreate", byref(stream), 0)
        self._stream = stream

    def _enter(self) -> None:
        self._process.check()
        self._api("cuCtxSetCurrent", self._context)

    # ---- code ------------------------------------------------------------------------------------

    def load(self, code: bytes) -> _Module:
        """See `GpuDriver.load`."""
        with self.lock:
            self._enter()
            module = c_void_p()
            self._api("cuModuleLoadData", byref(module), code)
            return _Module(self, module)

    def prepared(
        self,
        module: GpuModule,
        symbol: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Argument],
    ) -> Callable[[], None]:
        """See `GpuDriver.prepared`."""
        assert isinstance(module, _Module)
        with self.lock:
            self._enter()
            function = module.function(symbol)
        cells = [c_int64(a[0]) if isinstance(a, tuple) else c_uint64(a) for a in arguments]
        places = (c_void_p * max(1, len(cells)))(*(ctypes.addressof(c) for c in cells))
        fixed = (function, *grid, *block, 0, self._stream, places, None)
        launch = self._api.functions["cuLaunchKernel"]

        def start() -> None:
            with self.lock:
                self._enter()
                if status := launch(*fixed):
                    self._api.fail(f"the launch of {symbol}", status)

        start.kept = (module, cells)  # type: ignore[attr-defined]  # lives as long as it
        return start

    def prepared_copy(self, target: int, source: int, nbytes: int) -> Callable[[], None]:
        """See `GpuDriver.prepared_copy`."""

        def start() -> None:
            with self.lock:
                self._enter()
                if nbytes:
                    self._api("cuMemcpyDtoDAsync_v2", target, source, nbytes, self._stream)

        return start

    def sequence(self, starts: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """See `GpuDriver.sequence`: a CUDA graph."""
        if len(starts) == 1:
            return starts[0]
        with self.lock:
            self._enter()
            return _Graph(self, starts) if starts else _nothing

    # ---- memory ----------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """See `GpuDriver.allocate`."""
        with self.lock:
            self._enter()
            address = c_uint64()
            self._api("cuMemAlloc_v2", byref(address), max(nbytes, 1))
            return address.value

    def free(self, address: int) -> None:
        """See `GpuDriver.free`."""
        if self._process.is_here:
            with self.lock:
                self._enter()
                self._api("cuMemFree_v2", address)

    def copy_in(self, target: int, source: int, nbytes: int, *, wait: bool = True) -> None:
        """See `GpuDriver.copy_in`."""
        with self.lock:
            self._enter()
            if not nbytes:
                return
            self._api("cuMemcpyHtoDAsync_v2", target, source, nbytes, self._stream)
            if wait:
                self._api("cuStreamSynchronize", self._stream)

    def copy_out(self, target: int, source: int, nbytes: int, *, wait: bool = True) -> None:
        """See `GpuDriver.copy_out`."""
        with self.lock:
            self._enter()
            if not nbytes:
                return
            self._api("cuMemcpyDtoHAsync_v2", target, source, nbytes, self._stream)
            if wait:
                self._api("cuStreamSynchronize", self._stream)

    def memory_info(self) -> tuple[int, int]:
        """See `GpuDriver.memory_info`."""
        with self.lock:
            self._enter()
            free, total = c_size_t(), c_size_t()
            self._api("cuMemGetInfo_v2", byref(free), byref(total))
            return free.value, total.value

    # ---- time ------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """See `GpuDriver.synchronize`."""
        with self.lock:
            self._enter()
            self._api("cuStreamSynchronize", self._stream)

    def seconds(self, start: Callable[[], None], number: int) -> float:
        """See `GpuDriver.seconds`."""
        with self.lock:
            self._enter()
            begin, end = c_void_p(), c_void_p()
            self._api("cuEventCreate", byref(begin), 0)
            self._api("cuEventCreate", byref(end), 0)
            try:
                self._api("cuEventRecord", begin, self._stream)
                for _ in range(number):
                    start()
                self._api("cuEventRecord", end, self._stream)
                self._api("cuEventSynchronize", end)
                milliseconds = c_float()
                self._api("cuEventElapsedTime", byref(milliseconds), begin, end)
                return milliseconds.value / 1e3
            finally:
                self._api("cuEventDestroy_v2", begin)
                self._api("cuEventDestroy_v2", end)


def _nothing() -> None:
    """Start nothing."""


class _Module:
    """A cubin on a device."""

    def __init__(self, driver: CudaDriver, handle: c_void_p) -> None:
        self._driver = driver
        self._handle: c_void_p | None = handle

    def function(self, symbol: str) -> c_void_p:
        """Return a function. Raises: DeviceError when there is none of that name."""
        function = c_void_p()
        self._driver._api("cuModuleGetFunction", byref(function), self._handle, symbol.encode())
        return function

    def has(self, symbol: str) -> bool:
        """See `GpuModule.has`."""
        with self._driver.lock:
            self._driver._enter()
            find: Function = self._driver._api.functions["cuModuleGetFunction"]
            return find(byref(c_void_p()), self._handle, symbol.encode()) != _NOT_FOUND

    def close(self) -> None:
        """See `GpuModule.close`."""
        handle, self._handle = self._handle, None
        if handle is not None and self._driver._process.is_here:
            with self._driver.lock:
                self._driver._enter()
                self._driver._api("cuModuleUnload", handle)


class _Graph:
    """A sequence of launches and copies that one call starts."""

    def __init__(self, driver: CudaDriver, starts: Sequence[Callable[[], None]]) -> None:
        self._driver = driver
        self._starts = starts  # what they keep alive is used by the graph
        self._graph: c_void_p | None = None
        api, graph, executable = driver._api, c_void_p(), c_void_p()
        api("cuStreamBeginCapture_v2", driver._stream, _RELAXED)
        try:
            for start in starts:
                start()
        finally:
            api("cuStreamEndCapture", driver._stream, byref(graph))
        try:
            api("cuGraphInstantiateWithFlags", byref(executable), graph, 0)
        finally:
            api("cuGraphDestroy", graph)
        self._graph = executable

    def __call__(self) -> None:
        driver = self._driver
        with driver.lock:
            driver._enter()
            driver._api("cuGraphLaunch", self._graph, driver._stream)

    def __del__(self) -> None:
        graph, self._graph = self._graph, None
        if graph is not None and self._driver._process.is_here:
            with self._driver.lock:
                self._driver._enter()
                self._driver._api("cuGraphExecDestroy", graph)
