# SPDX-License-Identifier: Apache-2.0
"""The rows of RISC-V; see treadle.target.machine_rows."""

from __future__ import annotations

from dataclasses import replace

from treadle.target.machine import Cache, K, M, Machine
from treadle.target.machine_family import Family, Sources, two_levels

_RATES = "estimated: a narrow memory and a slow clock"

_U74 = Machine(
    fma_units=1,
    fma_bits=128,
    fma_latency=5,
    loads_per_cycle=1,
    load_bits=128,
    stores_per_cycle=1,
    store_bits=128,
    iteration_cycles=1.0,
    line_bytes=64,
    page_bytes=4 * K,
    caches=two_levels(Cache(32 * K, 8.0), Cache(2 * M, 4.0, 4)),
    memory_bytes_per_cycle=2.0,
    memory_latency=200,
    remote_bytes_per_cycle=2.0,
    remote_latency=100,
    fork_cycles=3072,
)

RISCV = (
    Family(
        "SpacemiT X60",
        ("spacemit-x60",),
        replace(
            _U74,
            fma_bits=256,
            load_bits=256,
            store_bits=256,
            caches=two_levels(Cache(32 * K, 32.0), Cache(512 * K, 8.0, 4)),
        ),
        Sources(
            "estimated: one unit as wide as a vector of 256 bits, results after 5 cycles",
            "SpacemiT K1 Datasheet: 512 KB for a cluster of four cores",
            _RATES,
        ),
    ),
    Family(
        "SiFive X280",
        ("sifive-x280",),
        replace(
            _U74,
            fma_bits=256,
            load_bits=256,
            store_bits=256,
            caches=(Cache(32 * K, 32.0), Cache(256 * K, 16.0), Cache(1 * M, 8.0, 4)),
        ),
        Sources(
            "SiFive Intelligence X280 product brief: vectors of 512 bits in halves; results after "
            "5 cycles estimated",
            "SiFive Intelligence X280 product brief; its caches can be chosen",
            _RATES,
        ),
    ),
)

GENERIC_RISCV = Family(
    "generic RISC-V",
    (),
    _U74,
    Sources(
        "SiFive U74-MC Core Complex Manual: one multiply-add a cycle; any vectors are counted as "
        "of 128 bits",
        "SiFive U74-MC Core Complex Manual; sizes of the JH7110",
        _RATES,
    ),
)
