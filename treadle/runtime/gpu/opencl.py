# SPDX-License-Identifier: Apache-2.0
"""Devices of OpenCL 2.0 and later that share virtual memory: memory is addresses, as on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from threading import RLock
from typing import NoReturn

from treadle.errors import DeviceError
from treadle.runtime.gpu.driver import ALIGNMENT, Argument, DeviceFacts, GpuModule, Process
from treadle.runtime.gpu.opencl_library import functions, text_of

_GPU, _ALL = 4, 0xFFFFFFFF
_DEVICE_TYPE, _UNITS, _MAX_THREADS, _CLOCK = 0x1000, 0x1002, 0x1004, 0x100C
_GLOBAL_CACHE, _GLOBAL_MEMORY, _LOCAL_MEMORY = 0x101E, 0x101F, 0x1023
_NAME, _DRIVER_VERSION, _DEVICE_VERSION, _SVM = 0x102B, 0x102D, 0x102F, 0x1053
_BUILD_LOG, _QUEUE_PROPERTIES, _PROFILED, _READ_WRITE = 0x1183, 0x1093, 2, 1
_EVENT_END = 0x1283

_UNKNOWN_CPU = "unknown target CPU"
_OTHER_DRIVER = (
    "the driver is older than this CPU: install a newer one, "
    "such as Intel's for all x86-64 CPUs: pip install intel-opencl-rt intel-cmplr-lib-rt"
)

_ERRORS = {
    -4: "memory of the device is exhausted", -5: "the device is out of resources",
    -6: "memory of the host is exhausted", -11: "the program does not compile",
    -46: "the program has no kernel of that name", -54: "the block has too many threads",
    -52: "an argument of the kernel is missing", -51: "an argument has another size",
}  # fmt: skip


def _fail(name: str, status: int) -> NoReturn:
    raise DeviceError(f"{name} fails: {_ERRORS.get(status, 'OpenCL error')} (code {status})")


def _call(name: str, *arguments: object) -> None:
    if status := functions()[name](*arguments):
        _fail(name, status)


def _made(name: str, *arguments: object) -> int:
    """Return the handle of what a function makes."""
    status = c_int()
    handle = functions()[name](*arguments, byref(status))
    if status.value or not handle:
        _fail(name, status.value)
    return int(handle)


def _handles(name: str, *arguments: object) -> list[int]:
    """Return what a function of the form (…, room, handles, count) lists; nothing for an error."""
    count = c_uint()
    if functions()[name](*arguments, 0, None, byref(count)) or not count.value:
        return []
    room = (c_void_p * count.value)()
    return [h for h in room if h] if functions()[name](*arguments, count, room, None) == 0 else []


def _number(device: int, what: int) -> int:
    return int.from_bytes(text_of(functions()["clGetDeviceInfo"], device, what)[:8], "little")


def _words(device: int, what: int) -> str:
    found = text_of(functions()["clGetDeviceInfo"], device, what)
    return found.rstrip(b"\0").decode(errors="replace").strip()


@cache
def _devices() -> tuple[int, ...]:
    """Return all devices, GPUs first. Raises: DeviceError when there is no driver."""
    platforms = _handles("clGetPlatformIDs")
    found = [d for p in platforms for d in _handles("clGetDeviceIDs", p, _ALL)]
    return tuple(sorted(found, key=lambda d: not _number(d, _DEVICE_TYPE) & _GPU))


def device_count() -> int:
    """Return how many devices there are. Raises: DeviceError when there is no driver."""
    return len(_devices())


def facts_of(index: int) -> DeviceFacts:
    """Return what a device is, without opening it. Raises: DeviceError."""
    count = device_count()
    if not 0 <= index < count:
        raise DeviceError(
            f"there is no opencl({index}): OpenCL finds {count} devices on this machine",
            hint=f"devices are opencl(0) to opencl({count - 1})"
            if count
            else 'pip install "treadle[opencl]" brings one for the CPU',
        )
    device = _devices()[index]
    return DeviceFacts(
        kind="opencl",
        index=index,
        name=_words(device, _NAME),
        architecture="",
        driver=f"{_words(device, _DEVICE_VERSION)}, driver {_words(device, _DRIVER_VERSION)}",
        units=_number(device, _UNITS),
        max_threads=_number(device, _MAX_THREADS),
        warp=0,
        shared_bytes=_number(device, _LOCAL_MEMORY),
        registers=0,
        clock_mhz=_number(device, _CLOCK),
        memory_bytes=_number(device, _GLOBAL_MEMORY),
        l2_bytes=_number(device, _GLOBAL_CACHE),
        bandwidth=0,
    )


def refusal(device: str, log: str) -> DeviceError:
    """Return the error of a kernel that a device's compiler refuses, with what that wrote."""
    hint = _OTHER_DRIVER if _UNKNOWN_CPU in log else ""
    return DeviceError(f"{device} refuses the text of a kernel: {log}", hint=hint)


class OpenclDriver:
    """A device of OpenCL, open: see `GpuDriver`."""

    def __init__(self, index: int) -> None:
        self.facts = facts_of(index)
        self.lock = RLock()
        self._process = Process(f"opencl({index})")
        self._device = _devices()[index]
        if not _number(self._device, _SVM) & 1:
            raise DeviceError(
                f"opencl({index}), {self.facts.name}, does not share virtual memory",
                hint='use a driver of OpenCL 2.0 or later, or the target "llvm"',
            )
        devices = (c_void_p * 1)(self._device)
        self._context = _made("clCreateContext", None, 1, devices, None, None)
        properties = (c_uint64 * 3)(_QUEUE_PROPERTIES, _PROFILED, 0)
        self._queue = _made(
            "clCreateCommandQueueWithProperties", self._context, self._device, properties
        )

    # ---- code ------------------------------------------------------------------------------------

    def load(self, code: bytes) -> _Program:
        """See `GpuDriver.load`; the code is OpenCL C."""
        with self.lock:
            self._process.check()
            texts, sizes = (c_char_p * 1)(code), (c_size_t * 1)(len(code))
            program = _made("clCreateProgramWithSource", self._context, 1, texts, sizes)
            devices = (c_void_p * 1)(self._device)
            status = functions()["clBuildProgram"](program, 1, devices, _options(code), None, None)
            if status:
                tell = functions()["clGetProgramBuildInfo"]
                log = text_of(tell, program, self._device, _BUILD_LOG)
                _call("clReleaseProgram", program)
                words = log.rstrip(b"\0").decode(errors="replace").strip()
                raise refusal(self.facts.name, words)
            return _Program(self, program)

    def prepared(
        self,
        module: GpuModule,
        symbol: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Argument],
    ) -> Callable[[], None]:
        """See `GpuDriver.prepared`."""
        assert isinstance(module, _Program)
        with self.lock:
            self._process.check()
            kernel = module.kernel(symbol)
            for place, argument in enumerate(arguments):
                if isinstance(argument, tuple):
                    _call("clSetKernelArg", kernel.handle, place, 8, byref(c_int64(argument[0])))
                else:
                    _call("clSetKernelArgSVMPointer", kernel.handle, place, argument)
        threads = (c_size_t * 3)(*(g * b for g, b in zip(grid, block, strict=True)))
        group = (c_size_t * 3)(*block)
        enqueue, queue = functions()["clEnqueueNDRangeKernel"], self._queue

        def start() -> None:
            with self.lock:
                self._process.check()
                if status := enqueue(queue, kernel.handle, 3, None, threads, group, 0, None, None):
                    _fail(f"the launch of {symbol}", status)

        return start

    def prepared_copy(self, target: int, source: int, nbytes: int) -> Callable[[], None]:
        """See `GpuDriver.prepared_copy`."""
        return lambda: self._copy(target, source, nbytes, 0)

    def sequence(self, starts: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """See `GpuDriver.sequence`: they are started one by one."""

        def start() -> None:
            for each in starts:
                each()

        return start

    # ---- memory ----------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """See `GpuDriver.allocate`."""
        with self.lock:
            self._process.check()
            allocate = functions()["clSVMAlloc"]
            address = allocate(self._context, _READ_WRITE, max(nbytes, 1), ALIGNMENT)
            address = address or allocate(self._context, _READ_WRITE, max(nbytes, 1), 0)
            if not address:
                raise DeviceError(f"{self.facts.name} has no {nbytes:,} bytes of memory left")
            return int(address)

    def free(self, address: int) -> None:
        """See `GpuDriver.free`."""
        if self._process.is_here:
            with self.lock:
                _call("clFinish", self._queue)
                functions()["clSVMFree"](self._context, address)

    def _copy(self, target: int, source: int, nbytes: int, waits: int) -> None:
        with self.lock:
            self._process.check()
            if nbytes:
                _call(
                    "clEnqueueSVMMemcpy", self._queue, waits, target, source, nbytes,
                    0, None, None,
                )  # fmt: skip

    def copy_in(self, target: int, source: int, nbytes: int, *, wait: bool = True) -> None:
        """See `GpuDriver.copy_in`."""
        self._copy(target, source, nbytes, int(wait))

    def copy_out(self, target: int, source: int, nbytes: int, *, wait: bool = True) -> None:
        """See `GpuDriver.copy_out`."""
        self._copy(target, source, nbytes, int(wait))

    def memory_info(self) -> tuple[int, int]:
        """See `GpuDriver.memory_info`: OpenCL tells all, not what is free."""
        return 0, self.facts.memory_bytes

    # ---- time ------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """See `GpuDriver.synchronize`."""
        with self.lock:
            self._process.check()
            _call("clFinish", self._queue)

    def seconds(self, start: Callable[[], None], number: int) -> float:
        """See `GpuDriver.seconds`."""
        with self.lock:
            self.synchronize()
            begin = self._marker()
            for _ in range(number):
                start()
            end = self._marker()
            _call("clFinish", self._queue)
            return (self._time_of(end) - self._time_of(begin)) / 1e9

    def _marker(self) -> c_void_p:
        event = c_void_p()
        _call("clEnqueueMarkerWithWaitList", self._queue, 0, None, byref(event))
        return event

    def _time_of(self, event: c_void_p) -> int:
        """Return when an event ended, in nanoseconds, and release it."""
        moment = c_uint64()
        _call("clGetEventProfilingInfo", event, _EVENT_END, 8, byref(moment), None)
        _call("clReleaseEvent", event)
        return moment.value


_OPTION = b"//!option "


def _options(text: bytes) -> bytes:
    """Return the options that the first lines of a text name."""
    lines = (line for line in text.splitlines()[:64] if line.startswith(_OPTION))
    return b" ".join([line[len(_OPTION) :].strip() for line in lines])


class _Program:
    """A program, built for a device."""

    def __init__(self, driver: OpenclDriver, handle: int) -> None:
        self._driver = driver
        self._handle: int | None = handle

    def kernel(self, symbol: str) -> _Kernel:
        """Return a kernel with arguments of its own."""
        return _Kernel(self, _made("clCreateKernel", self._handle, symbol.encode()))

    def has(self, symbol: str) -> bool:
        """See `GpuModule.has`."""
        with self._driver.lock:
            status = c_int()
            found = functions()["clCreateKernel"](self._handle, symbol.encode(), byref(status))
            if found:
                _call("clReleaseKernel", found)
            return bool(found)

    @property
    def is_here(self) -> bool:
        """True in the process that built it."""
        return self._driver._process.is_here

    def close(self) -> None:
        """See `GpuModule.close`."""
        handle, self._handle = self._handle, None
        if handle is not None and self.is_here:
            with self._driver.lock:
                _call("clReleaseProgram", handle)


class _Kernel:
    """A kernel object: a function with arguments set."""

    def __init__(self, program: _Program, handle: int) -> None:
        self._program = program
        self.handle = handle

    def __del__(self) -> None:
        if self._program.is_here:
            functions()["clReleaseKernel"](self.handle)
