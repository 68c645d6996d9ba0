# SPDX-License-Identifier: Apache-2.0
"""What a GPU does for the rest of the runtime: one protocol, and the records it speaks in.

A driver hands out plain numbers: addresses in device memory, which arithmetic may move inside of
an allocation. Everything it starts goes on in one order, that of the calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Protocol

from treadle.errors import DeviceError

ALIGNMENT = 256
"""Every allocation in device memory starts at a multiple of this many bytes."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device is; a number is 0 where its driver does not tell it.

    `architecture` is what code is compiled for ("sm_90"), `units` its multiprocessors,
    `shared_bytes` the memory that threads of a block share, at most, `clock_mhz` the highest
    clock, `bandwidth` that of its memory in bytes per second.
    """

    kind: str
    index: int
    name: str
    architecture: str
    driver: str
    units: int
    max_threads: int
    warp: int
    shared_bytes: int
    registers: int
    clock_mhz: int
    memory_bytes: int
    l2_bytes: int
    bandwidth: int

    def text(self) -> str:
        """Return it in words, on one line."""
        words = [self.name, self.architecture, f"{self.units} units"]
        words += [f"{self.memory_bytes / (1 << 30):.1f} GiB"]
        words += [f"{self.bandwidth / 1e9:.0f} GB/s"] if self.bandwidth else []
        words += [f"{self.clock_mhz} MHz"] if self.clock_mhz else []
        return " · ".join(word for word in (*words, self.driver) if word)


class GpuModule(Protocol):
    """Compiled code on a device."""

    def has(self, symbol: str) -> bool:
        """True when it holds a function of that name."""

    def close(self) -> None:
        """Unload the code."""


Argument = int | tuple[int]
"""A number is an address in device memory, a number in a tuple is passed as it is: int64."""


class GpuDriver(Protocol):
    """One device, open. Its methods may be called by any thread, one at a time.

    All raise DeviceError, which names the function of the driver that fails.
    """

    facts: DeviceFacts
    lock: RLock

    def load(self, code: bytes) -> GpuModule:
        """Return code, as its compiler made it, loaded onto the device."""

    def prepared(
        self,
        module: GpuModule,
        symbol: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Argument],
    ) -> Callable[[], None]:
        """Return what starts a function of a module with these arguments."""

    def sequence(self, starts: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """Return what starts all of these in their order, as one piece where the driver can.

        They are functions of this driver's `prepared` and `prepared_copy`.
        """

    def allocate(self, nbytes: int) -> int:
        """Return the address of new device memory, its bytes undefined."""

    def free(self, address: int) -> None:
        """Give memory back to the driver."""

    def copy_in(self, target: int, source: int, nbytes: int, *, wait: bool = True) -> None:
        """Copy from host memory, after all that was started before.

        The source may change when this returns; without `wait`, after `synchronize`.
        """

    def copy_out(self, target: int, source: int, nbytes: int, *, wait: bool = True) -> None:
        """Copy to host memory; it is there when this returns or, without `wait`, later."""

    def prepared_copy(self, target: int, source: int, nbytes: int) -> Callable[[], None]:
        """Return what copies from device memory to device memory."""

    def synchronize(self) -> None:
        """Wait for all that was started."""

    def seconds(self, start: Callable[[], None], number: int) -> float:
        """Return the device's time from before to after calling `start` so many times."""

    def memory_info(self) -> tuple[int, int]:
        """Return the bytes of device memory that are free, and all; 0, 0 where it is not told."""


class Process:
    """Refuses the use of a device in a process forked from the one that opened it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """True in the process that opened the device."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise DeviceError in a forked process: drivers keep nothing across a fork."""
        if not self.is_here:
            raise DeviceError(
                f"{self._what} was opened before this process was forked, and cannot be used in it",
                hint="start workers by multiprocessing's 'spawn', or use the GPU in them alone",
            )
