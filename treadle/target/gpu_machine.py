# SPDX-License-Identifier: Apache-2.0
"""What schedules count on of a GPU; `treadle.target.gpu_rows` has the rows, with sources."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The facts of a GPU; threads, blocks and registers are of one multiprocessor.

    `multiprocessors` (compute units) have `lanes` float32 multiply-adds a cycle each. `warp`
    threads run in step. A block has at most `block_threads` threads and `block_bytes` of shared
    memory that a kernel declares; a thread has at most `thread_registers` of 32 bits. The memory of
    the device gives `memory_bytes` a second, and its last cache holds `cache_bytes`. `clock` is in
    cycles a second, at full speed. A multiply-add whose factors its thread reads from memory takes
    `read_cycles` where many threads wait for theirs; `launch_time`, in seconds, passes until a
    launch reads what the one before it wrote. A read of 4 words by each thread of a warp takes the
    shared memory `shared_cycles`, and a warp that is alone waits `shared_wait_cycles` for it;
    threads of a block that wait for each other and for what they fetch lose `meeting_cycles`.
    """

    multiprocessors: int
    lanes: int
    warp: int
    threads: int
    blocks: int
    registers: int
    thread_registers: int
    shared_bytes: int
    block_threads: int
    block_bytes: int
    cache_bytes: int
    memory_bytes: float
    clock: float
    read_cycles: float = 100.0
    launch_time: float = 2e-6
    shared_cycles: float = 4.0
    shared_wait_cycles: float = 6.0
    meeting_cycles: float = 100.0

    @property
    def flops(self) -> float:
        """What it multiplies and adds in a second, in float32."""
        return 2 * self.multiprocessors * self.lanes * self.clock
