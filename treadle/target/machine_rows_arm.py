# SPDX-License-Identifier: Apache-2.0
"""The rows of AArch64; see treadle.target.machine_rows."""

from __future__ import annotations

from dataclasses import replace

from treadle.target.machine import Cache, DotRate, K, M, Machine
from treadle.target.machine_family import Family, Sources, two_levels

_GUIDE = "Software Optimization Guide"
_MANUAL = "Technical Reference Manual"
_RATES = "estimated: as measured on Zen 5"

_SDOT: tuple[DotRate, ...] = (("int8", "int8", 4), ("uint8", "uint8", 4))
_I8MM_BF16: tuple[DotRate, ...] = (*_SDOT, ("uint8", "int8", 4), ("bfloat16", "bfloat16", 2))

_A76 = Machine(
    fma_units=2,
    fma_bits=128,
    fma_latency=4,
    loads_per_cycle=2,
    load_bits=128,
    stores_per_cycle=1,
    store_bits=128,
    iteration_cycles=1.0,
    line_bytes=64,
    page_bytes=4 * K,
    caches=(Cache(64 * K, 32.0), Cache(512 * K, 22.0), Cache(2 * M, 16.0, 4)),
    memory_bytes_per_cycle=8.0,
    memory_latency=500,
    remote_bytes_per_cycle=6.0,
    remote_latency=300,
    fork_cycles=3072,
    dot_rates=_SDOT,
)

_A53 = replace(
    _A76,
    fma_bits=64,
    fma_latency=8,
    loads_per_cycle=1,
    load_bits=64,
    store_bits=64,
    caches=two_levels(Cache(32 * K, 8.0), Cache(512 * K, 4.0, 4)),
    memory_bytes_per_cycle=2.0,
    memory_latency=200,
    remote_bytes_per_cycle=2.0,
    remote_latency=100,
    dot_rates=(),
)

_A72 = replace(
    _A76,
    fma_bits=64,
    fma_latency=7,
    loads_per_cycle=1,
    caches=two_levels(Cache(32 * K, 16.0), Cache(1 * M, 8.0, 4)),
    memory_bytes_per_cycle=4.0,
    memory_latency=250,
    remote_bytes_per_cycle=4.0,
    remote_latency=100,
    dot_rates=(),
)

_X1 = replace(
    _A76,
    fma_units=4,
    loads_per_cycle=3,
    stores_per_cycle=2,
    caches=(Cache(64 * K, 48.0), Cache(1 * M, 22.0), Cache(4 * M, 16.0, 8)),
)

_N1 = replace(_A76, caches=(Cache(64 * K, 32.0), Cache(1 * M, 22.0), Cache(32 * M, 16.0, 64)))

_V1 = replace(
    _X1,
    caches=(Cache(64 * K, 48.0), Cache(1 * M, 22.0), Cache(32 * M, 16.0, 64)),
    dot_rates=_I8MM_BF16,
)

ARM = (
    Family(
        "Cortex-A53",
        ("cortex-a53",),
        _A53,
        Sources(
            "estimated: two units of 64 bits, results after 8 cycles, one load of 64 bits",
            f"Arm Cortex-A53 {_MANUAL} (DDI 0500); sizes of the BCM2837",
            "estimated: a narrow memory and a slow clock",
        ),
    ),
    Family(
        "Cortex-A55",
        ("cortex-a55",),
        replace(
            _A53,
            fma_latency=4,
            caches=(Cache(32 * K, 8.0), Cache(128 * K, 8.0), Cache(3 * M, 4.0, 8)),
            dot_rates=_SDOT,
        ),
        Sources(
            f"Arm Cortex-A55 {_GUIDE} (EPM128372): two units of 64 bits, a load of 64 bits",
            f"Arm Cortex-A55 {_MANUAL} (100442); sizes of the RK3588",
            "estimated: a narrow memory and a slow clock",
        ),
    ),
    Family(
        "Cortex-A72",
        ("cortex-a72",),
        _A72,
        Sources(
            f"Arm Cortex-A72 {_GUIDE} (UAN 0016); eight float32 operations a cycle",
            f"Arm Cortex-A72 {_MANUAL} (100095); sizes of the BCM2711",
            "estimated: a narrow memory and a slow clock",
        ),
    ),
    Family(
        "Cortex-A76",
        ("cortex-a76",),
        _A76,
        Sources(
            f"Arm Cortex-A76 {_GUIDE} (PJDOC-466751330-7215)",
            f"Arm Cortex-A76 {_MANUAL} (100798); sizes of the BCM2712",
            _RATES,
        ),
    ),
    Family(
        "Cortex-X1",
        ("cortex-x1",),
        _X1,
        Sources(
            f"Arm Cortex-X1 {_GUIDE}",
            f"Arm Cortex-X1 {_MANUAL} (101433); sizes of the Snapdragon 888",
            _RATES,
        ),
    ),
    Family(
        "Neoverse N1",
        ("neoverse-n1",),
        _N1,
        Sources(
            f"Arm Neoverse N1 {_GUIDE} (PJDOC-466751330-9707)",
            f"Arm Neoverse N1 {_MANUAL} (100616); sizes of the AWS Graviton2",
            _RATES,
        ),
    ),
    Family(
        "Neoverse V1",
        ("neoverse-v1",),
        _V1,
        Sources(
            f"Arm Neoverse V1 {_GUIDE} (PJDOC-466751330-9685): four units of 128 bits",
            f"Arm Neoverse V1 {_MANUAL} (101427); sizes of the AWS Graviton3",
            _RATES,
        ),
    ),
    Family(
        "Neoverse V2",
        ("neoverse-v2",),
        replace(_V1, caches=(Cache(64 * K, 48.0), Cache(2 * M, 22.0), Cache(36 * M, 16.0, 96))),
        Sources(
            f"Arm Neoverse V2 {_GUIDE} (PJDOC-466751330-593177): four units of 128 bits",
            f"Arm Neoverse V2 {_MANUAL} (102375); sizes of the AWS Graviton4",
            _RATES,
        ),
    ),
    Family(
        "Apple M1",
        ("apple-m1",),
        replace(
            _X1,
            line_bytes=128,
            fetch_bytes=128,
            page_bytes=16 * K,
            caches=two_levels(Cache(128 * K, 48.0), Cache(12 * M, 22.0, 4)),
            memory_bytes_per_cycle=16.0,
        ),
        Sources(
            "estimated: four units of 128 bits and results after 4 cycles, as published "
            "measurements of its performance cores say",
            "hw.perflevel0.l1dcachesize, l2cachesize, hw.cachelinesize and hw.pagesize of sysctl: "
            "its performance cores",
            "estimated: as measured on Zen 5, more from memory",
        ),
    ),
)

GENERIC_ARM = Family(
    "generic AArch64",
    (),
    replace(
        _A76,
        caches=(Cache(32 * K, 32.0), Cache(512 * K, 22.0), Cache(8 * M, 16.0, 4)),
    ),
    Sources(
        "chosen: as the Cortex-A76",
        "chosen: between the Cortex and the Neoverse cores",
        _RATES,
    ),
)
