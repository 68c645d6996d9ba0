# SPDX-License-Identifier: Apache-2.0
"""The numbers of a machine that a search counts on, in Ansor's words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.errors import UsageError
from treadle.target.base import Target


@dataclass(frozen=True, slots=True)
class HardwareParams:
    """What candidates are made for, where it is not what the target says; None leaves it at that.

    `num_cores`, `vector_unit_bytes` and `cache_line_bytes` shape the candidates and what the
    analytic model thinks of them; the code is for the target all the same. The others are facts of
    GPUs, for which there is no code yet.

    Raises: UsageError where a number is none, or less than 1.
    """

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_cores", "vector_unit_bytes", "cache_line_bytes"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value <= 1 << 20):
                raise UsageError(f"{name} is {value!r:.40}", hint="it is a number from 1")

    @staticmethod
    def of(target: Target) -> HardwareParams:
        """Return the numbers of a target."""
        line = target.machine.line_bytes
        return HardwareParams(target.cores, target.vector_bytes, line, 0, 0, 0, 0, 0)

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers in the order in which they stand in records, 0 of what is not said."""
        return (
            self.num_cores or 0, self.vector_unit_bytes or 0, self.cache_line_bytes or 0,
            self.max_shared_memory_per_block or 0, self.max_local_memory_per_block or 0,
            self.max_threads_per_block or 0, self.max_vthread_extent or 0, self.warp_size or 0,
        )  # fmt: skip

    def applied(self, target: Target) -> Target:
        """Return a target with these numbers, to make candidates for."""
        machine = target.machine
        if self.cache_line_bytes is not None:
            machine = replace(machine, line_bytes=self.cache_line_bytes)
        bits = target.vector_bits
        if self.vector_unit_bytes is not None:
            bits = 8 * self.vector_unit_bytes
        cores = self.num_cores or target.cores
        return replace(target, cores=cores, vector_bits=bits, machine=machine)
