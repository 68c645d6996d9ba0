# SPDX-License-Identifier: Apache-2.0
"""The rows of x86-64; see treadle.target.machine_rows."""

from __future__ import annotations

from dataclasses import replace

from treadle.target.machine import FETCH_BYTES, FILL_BUFFERS, Cache, DotRate, K, M, Machine
from treadle.target.machine_family import Family, Sources

_INTEL = "Intel 64 and IA-32 Architectures Optimization Reference Manual (248966)"
_AMD = "AMD Software Optimization Guide for"
_TIMES = "instruction times as uops.info lists them"
_AS_ZEN5 = "estimated: as measured on Zen 5"

_PAIRS: tuple[DotRate, ...] = (("int16", "int16", 2),)
_VNNI: tuple[DotRate, ...] = (*_PAIRS, ("uint8", "int8", 4))
_VNNI_BF16: tuple[DotRate, ...] = (*_VNNI, ("bfloat16", "bfloat16", 2))

_PAIR_OF_LINES = 128
"""What Intel's spatial prefetcher completes in level 2."""

_ZEN5 = Machine(
    fma_units=2,
    fma_bits=512,
    fma_latency=4,
    loads_per_cycle=2,
    load_bits=512,
    stores_per_cycle=2,
    store_bits=256,
    iteration_cycles=1.0,
    line_bytes=64,
    page_bytes=4 * K,
    caches=(Cache(48 * K, 128.0), Cache(1 * M, 22.0), Cache(32 * M, 16.0, 8)),
    memory_bytes_per_cycle=8.0,
    memory_latency=500,
    remote_bytes_per_cycle=6.0,
    remote_latency=300,
    fork_cycles=3072,
    dot_rates=_VNNI_BF16,
    last_caches=2,
)

_ZEN4 = replace(
    _ZEN5,
    fma_bits=256,
    load_bits=256,
    stores_per_cycle=1,
    caches=(Cache(32 * K, 64.0), Cache(1 * M, 22.0), Cache(32 * M, 11.4, 8)),
)

_ZEN3 = replace(
    _ZEN4,
    caches=(Cache(32 * K, 64.0), Cache(512 * K, 12.0), Cache(32 * M, 12.0, 8)),
    dot_rates=_PAIRS,
)

_ZEN2 = replace(
    _ZEN3,
    fma_latency=5,
    caches=(Cache(32 * K, 64.0), Cache(512 * K, 12.0), Cache(16 * M, 12.0, 4)),
)

_ZEN = replace(
    _ZEN2,
    fma_bits=128,
    load_bits=128,
    store_bits=128,
    vector_issue=4,
    caches=(Cache(32 * K, 32.0), Cache(512 * K, 12.0), Cache(8 * M, 12.0, 4)),
)

_HASWELL = replace(
    _ZEN5,
    last_caches=1,
    fma_bits=256,
    load_bits=256,
    stores_per_cycle=1,
    fill_buffers=10,
    fetch_bytes=_PAIR_OF_LINES,
    caches=(Cache(32 * K, 64.0), Cache(256 * K, 22.0), Cache(8 * M, 16.0, 4)),
    dot_rates=_PAIRS,
)

_SKYLAKE_SP = replace(
    _ZEN5,
    last_caches=1,
    stores_per_cycle=1,
    store_bits=512,
    fill_buffers=12,
    fetch_bytes=_PAIR_OF_LINES,
    caches=(Cache(32 * K, 128.0), Cache(1 * M, 22.0), Cache(28160 * K, 9.0, 20)),
    memory_latency=320,
    dot_rates=_VNNI,
)

_ICE_LAKE = replace(
    _ZEN5,
    last_caches=1,
    fill_buffers=12,
    fetch_bytes=_PAIR_OF_LINES,
    caches=(Cache(48 * K, 128.0), Cache(1280 * K, 22.0), Cache(60 * M, 16.0, 40)),
    dot_rates=_VNNI,
)

_ICE_LAKE_CLIENT = replace(
    _ICE_LAKE,
    fma_bits=256,
    caches=(Cache(48 * K, 128.0), Cache(512 * K, 22.0), Cache(8 * M, 16.0, 4)),
)

X86 = (
    Family(
        "Haswell",
        ("haswell", "broadwell"),
        _HASWELL,
        Sources(
            f"{_INTEL}, Haswell, but results after 4 cycles until 5 is measured; {_TIMES}",
            f"{_INTEL}, cache parameters of Haswell; level 3 of the Core i7-4770",
            _AS_ZEN5,
        ),
    ),
    Family(
        "Skylake",
        ("skylake",),
        _HASWELL,
        Sources(
            f"{_INTEL}, Skylake client; {_TIMES}",
            f"{_INTEL}, cache parameters of Skylake; level 3 of the Core i7-6700",
            _AS_ZEN5,
        ),
    ),
    Family(
        "Skylake-SP",
        ("skylake-avx512", "skx", "cascadelake", "cooperlake", "x86-64-v4"),
        _SKYLAKE_SP,
        Sources(
            f"{_INTEL}, Skylake Server with two units of 512 bits; {_TIMES}; dot products from "
            "Cascade Lake on",
            f"{_INTEL}, cache parameters of Skylake Server: 1.375 MB of level 3 a core; the Xeon "
            "Gold 6148",
            "level 3, and the latency of memory: measured on two cores of a Cascade Lake server at "
            "2.33 GHz; the rest estimated: as measured on Zen 5",
        ),
    ),
    Family(
        "Ice Lake client",
        ("icelake-client",),
        _ICE_LAKE_CLIENT,
        Sources(
            f"{_INTEL}, Ice Lake Client: one unit of 512 bits; {_TIMES}",
            f"{_INTEL}, cache parameters of Ice Lake Client; level 3 of the Core i7-1065G7",
            _AS_ZEN5,
        ),
    ),
    Family(
        "Rocket Lake",
        ("rocketlake",),
        replace(
            _ICE_LAKE_CLIENT,
            caches=(Cache(48 * K, 128.0), Cache(512 * K, 22.0), Cache(16 * M, 16.0, 8)),
        ),
        Sources(
            f"{_INTEL}, as Ice Lake Client; {_TIMES}",
            "Intel, 11th Generation Core Processors Datasheet (634648), the Core i9-11900K",
            _AS_ZEN5,
        ),
    ),
    Family(
        "Ice Lake",
        ("icelake-server",),
        _ICE_LAKE,
        Sources(
            f"{_INTEL}, Ice Lake Server; {_TIMES}",
            f"{_INTEL}, cache parameters of Ice Lake Server: 1.5 MB of level 3 a core; the Xeon "
            "Platinum 8380",
            _AS_ZEN5,
        ),
    ),
    Family(
        "Tiger Lake",
        ("tigerlake",),
        replace(
            _ICE_LAKE_CLIENT,
            caches=(Cache(48 * K, 128.0), Cache(1280 * K, 22.0), Cache(12 * M, 16.0, 4)),
        ),
        Sources(
            f"{_INTEL}, as Ice Lake Client; {_TIMES}",
            "Intel, 11th Generation Core Processors Datasheet (631121), the Core i7-1165G7",
            _AS_ZEN5,
        ),
    ),
    Family(
        "Sapphire Rapids",
        ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"),
        replace(
            _ICE_LAKE,
            fill_buffers=16,
            caches=(Cache(48 * K, 128.0), Cache(2 * M, 22.0), Cache(105 * M, 16.0, 56)),
            memory_latency=300,
            dot_rates=_VNNI_BF16,
        ),
        Sources(
            f"{_INTEL}, Golden Cove servers; {_TIMES}",
            f"{_INTEL}, cache parameters of Golden Cove servers; level 3 of the Xeon Platinum "
            "8480+, others have more",
            "latency of memory: as `treadle doctor --measure` tells of an Emerald Rapids; "
            "the rest estimated: as measured on Zen 5",
        ),
    ),
    Family(
        "Alder Lake",
        ("alderlake",),
        replace(
            _ZEN5,
            last_caches=1,
            fma_bits=256,
            fill_buffers=16,
            fetch_bytes=_PAIR_OF_LINES,
            loads_per_cycle=3,
            load_bits=256,
            caches=(Cache(48 * K, 96.0), Cache(1280 * K, 22.0), Cache(30 * M, 16.0, 16)),
            dot_rates=_VNNI,
        ),
        Sources(
            f"{_INTEL}, Golden Cove (its performance cores) without AVX-512; {_TIMES}",
            f"{_INTEL}, cache parameters of Golden Cove; level 3 of the Core i9-12900K",
            _AS_ZEN5,
        ),
    ),
    Family(
        "Zen",
        ("znver1",),
        _ZEN,
        Sources(
            f"{_AMD} Family 17h Processors (55723); {_TIMES}",
            f"{_AMD} Family 17h Processors (55723)",
            "estimated: as on Zen 3",
        ),
    ),
    Family(
        "Zen 2",
        ("znver2",),
        _ZEN2,
        Sources(
            f"{_AMD} Family 17h Models 30h and Greater (56305); {_TIMES}",
            f"{_AMD} Family 17h Models 30h and Greater (56305)",
            "estimated: as on Zen 3",
        ),
    ),
    Family(
        "Zen 3",
        ("znver3",),
        _ZEN3,
        Sources(
            f"{_AMD} Family 19h Processors (56665); {_TIMES}",
            f"{_AMD} Family 19h Processors (56665)",
            "level 2: fitted to the times of ResNet-50's convolutions on two cores of a server; "
            "the rest estimated: as measured on Zen 5",
        ),
    ),
    Family(
        "Zen 4",
        ("znver4",),
        _ZEN4,
        Sources(
            f"{_AMD} the Zen4 Microarchitecture (57647): vectors of 512 bits take a unit twice",
            f"{_AMD} the Zen4 Microarchitecture (57647)",
            "level 3: measured on two cores of a server; the rest estimated: as measured on Zen 5",
        ),
    ),
    Family(
        "Zen 5",
        ("znver5",),
        _ZEN5,
        Sources(
            f"{_AMD} the Zen5 Microarchitecture (58455)",
            f"{_AMD} the Zen5 Microarchitecture (58455)",
            "fitted to the times of the benchmark networks' kernels on two cores of a server",
        ),
    ),
)

GENERIC_X86 = Family(
    "generic x86-64",
    (),
    replace(
        _HASWELL,
        fill_buffers=FILL_BUFFERS,
        fetch_bytes=FETCH_BYTES,
        caches=(Cache(32 * K, 64.0), Cache(512 * K, 22.0), Cache(8 * M, 16.0, 4)),
    ),
    Sources(
        "chosen: two units of 256 bits, as most of the rows have",
        "chosen: of the rows, as many have less as have more",
        _AS_ZEN5,
    ),
)
