# SPDX-License-Identifier: Apache-2.0
"""The row of machines with 32 bits; see treadle.target.machine_rows."""

from __future__ import annotations

from treadle.target.machine import Cache, K, Machine
from treadle.target.machine_family import Family, Sources

GENERIC_32 = Family(
    "any of 32 bits",
    (),
    Machine(
        fma_units=1,
        fma_bits=64,
        fma_latency=3,
        loads_per_cycle=1,
        load_bits=64,
        stores_per_cycle=1,
        store_bits=64,
        iteration_cycles=2.0,
        line_bytes=32,
        fetch_bytes=32,
        page_bytes=4 * K,
        caches=(Cache(4 * K, 8.0), Cache(32 * K, 4.0), Cache(256 * K, 2.0)),
        memory_bytes_per_cycle=1.0,
        memory_latency=50,
        remote_bytes_per_cycle=1.0,
        remote_latency=50,
        fork_cycles=3072,
    ),
    Sources(
        "Cortex-M4 Technical Reference Manual: a multiply-add of floats takes 3 cycles",
        "estimated: most have no cache; tiles are kept in what is near, and small, as memory is",
        "estimated: a memory of one word a cycle at a slow clock",
    ),
)
