# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this machine: finding them, opening each once, and memory that is used again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from treadle.errors import DeviceError
from treadle.runtime.gpu import cuda, opencl
from treadle.runtime.gpu.driver import ALIGNMENT, DeviceFacts, GpuDriver

KINDS = ("cuda", "opencl")
"""Kinds of devices, as targets name them."""

_FACTS: dict[str, Callable[[int], DeviceFacts]] = {
    "cuda": cuda.facts_of,
    "opencl": opencl.facts_of,
}
_COUNTS: dict[str, Callable[[], int]] = {
    "cuda": cuda.device_count,
    "opencl": opencl.device_count,
}


def facts_of(kind: str, index: int = 0) -> DeviceFacts:
    """Return what a device is, without opening it. Raises: DeviceError when there is none."""
    return _FACTS[kind](index)


def found_devices(kind: str) -> list[DeviceFacts]:
    """Return all devices of a kind. Raises: DeviceError when there is no driver of that kind."""
    return [_FACTS[kind](index) for index in range(_COUNTS[kind]())]


class Pool:
    """Device memory in blocks that are used again: nothing is allocated in a steady state.

    `in_use` are the bytes of blocks that somebody holds, `kept` those of blocks that nobody does.
    """

    def __init__(self, driver: GpuDriver) -> None:
        self._driver = driver
        self._free: dict[int, list[int]] = {}
        self.in_use = 0
        self.kept = 0

    def take(self, nbytes: int) -> Block:
        """Return a block of at least that many bytes. Raises: DeviceError when memory is out."""
        size = _granular(nbytes)
        with self._driver.lock:
            waiting = self._free.get(size)
            if waiting:
                address = waiting.pop()
                self.kept -= size
            else:
                address = self._fresh(size)
            self.in_use += size
        return Block(self, address, size)

    def _fresh(self, size: int) -> int:
        try:
            return self._driver.allocate(size)
        except DeviceError:
            if not self.kept:
                raise
            self.trim()
            return self._driver.allocate(size)

    def give_back(self, address: int, size: int) -> None:
        """Take a block back; it is kept for the next one of its size."""
        with self._driver.lock:
            self._free.setdefault(size, []).append(address)
            self.in_use -= size
            self.kept += size

    def trim(self) -> None:
        """Give what nobody holds back to the driver."""
        with self._driver.lock:
            kept, self._free, self.kept = self._free, {}, 0
            for addresses in kept.values():
                for address in addresses:
                    self._driver.free(address)


def _granular(nbytes: int) -> int:
    """Return a size rounded up to an eighth of its power of two, at least the alignment.

    Blocks of slightly different sizes then serve for each other.
    """
    step = max(ALIGNMENT, 1 << max(0, nbytes.bit_length() - 4))
    return max(1, -(-nbytes // step)) * step


class Block:
    """Memory of a device; given back by `release`, or with the object."""

    __slots__ = ("_pool", "nbytes", "pointer")

    def __init__(self, pool: Pool, pointer: int, nbytes: int) -> None:
        self._pool: Pool | None = pool
        self.pointer = pointer
        self.nbytes = nbytes

    def release(self) -> None:
        """Give the memory back; nothing may use it any more."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.give_back(self.pointer, self.nbytes)

    def __del__(self) -> None:
        self.release()


class GpuDevice:
    """An open device: its driver and the pool of its memory."""

    def __init__(self, driver: GpuDriver) -> None:
        self.driver = driver
        self.pool = Pool(driver)

    @property
    def facts(self) -> DeviceFacts:
        """What it is."""
        return self.driver.facts

    @property
    def name(self) -> str:
        """Its kind and number: "cuda(0)"."""
        return f"{self.facts.kind}({self.facts.index})"


@cache
def _opened(kind: str, index: int) -> GpuDevice:
    if kind == "cuda":
        return GpuDevice(cuda.CudaDriver(index))
    return GpuDevice(opencl.OpenclDriver(index))


def opened(kind: str, index: int = 0) -> GpuDevice:
    """Return a device, opened at its first use in this process. Raises: DeviceError."""
    if kind not in KINDS:
        raise DeviceError(f"{kind!r} is no kind of device", hint=f"kinds are {', '.join(KINDS)}")
    return _opened(kind, index)
