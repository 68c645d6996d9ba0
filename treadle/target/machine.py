# SPDX-License-Identifier: Apache-2.0
"""What a family of CPUs is built of, as far as its instruction set does not say it: its caches.

One row per family, with where its figures stand. Caches differ within a family where licensees or
product lines choose them: a row then holds one common part, which its source names, and
`-caches=` of a target string says better.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.target.cpus import architecture_of

K, M = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Cache:
    """One data cache: its bytes, and how many cores share it."""

    bytes: int
    shared_by: int = 1


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """The bytes that schedules count on: of level 1, of one core's part of level 2, of the last.

    Cores that share a cache near them run the same kernel, so that each has its part of it; the
    last level holds what the cores share, and is counted whole.
    """

    l1: int = 32 * K
    l2: int = 512 * K
    l3: int = 8 * M

    def __str__(self) -> str:
        """Return the sizes as `-caches=` of a target string takes them: "32K,1M,32M"."""
        return ",".join(map(_size_text, (self.l1, self.l2, self.l3)))


@dataclass(frozen=True, slots=True)
class Machine:
    """A family of CPUs, under LLVM's names for its members."""

    name: str
    cpus: tuple[str, ...]
    caches: tuple[Cache, ...]
    """By level, the nearest first; two or three."""
    source: str

    @property
    def sizes(self) -> CacheSizes:
        """The sizes of the caches as schedules count them."""
        near, middle, last = self.caches[0], self.caches[1], self.caches[-1]
        return CacheSizes(near.bytes, middle.bytes // middle.shared_by, last.bytes)


_INTEL = "Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), cache parameters"
_AMD = "AMD Software Optimization Guide for"

MACHINES = (
    Machine(
        "Haswell",
        ("haswell", "broadwell", "skylake"),
        (Cache(32 * K), Cache(256 * K), Cache(8 * M, 4)),
        f"{_INTEL} of Haswell; level 3 of the Core i7-4770",
    ),
    Machine(
        "Skylake-SP",
        ("skylake-avx512", "skx", "cascadelake", "cooperlake", "x86-64-v4"),
        (Cache(32 * K), Cache(1 * M), Cache(28160 * K, 20)),
        f"{_INTEL} of Skylake Server: 1.375 MB of level 3 a core; the Xeon Gold 6148",
    ),
    Machine(
        "Ice Lake client",
        ("icelake-client",),
        (Cache(48 * K), Cache(512 * K), Cache(8 * M, 4)),
        f"{_INTEL} of Ice Lake Client; level 3 of the Core i7-1065G7",
    ),
    Machine(
        "Ice Lake",
        ("icelake-server",),
        (Cache(48 * K), Cache(1280 * K), Cache(60 * M, 40)),
        f"{_INTEL} of Ice Lake Server: 1.5 MB of level 3 a core; the Xeon Platinum 8380",
    ),
    Machine(
        "Tiger Lake",
        ("tigerlake",),
        (Cache(48 * K), Cache(1280 * K), Cache(12 * M, 4)),
        "Intel, 11th Generation Core Processors Datasheet (631121), the Core i7-1165G7",
    ),
    Machine(
        "Sapphire Rapids",
        ("sapphirerapids",),
        (Cache(48 * K), Cache(2 * M), Cache(105 * M, 56)),
        f"{_INTEL} of Golden Cove servers; level 3 of the Xeon Platinum 8480+",
    ),
    Machine(
        "Alder Lake",
        ("alderlake",),
        (Cache(48 * K), Cache(1280 * K), Cache(30 * M, 16)),
        f"{_INTEL} of Golden Cove (its performance cores); level 3 of the Core i9-12900K",
    ),
    Machine(
        "Zen",
        ("znver1",),
        (Cache(32 * K), Cache(512 * K), Cache(8 * M, 4)),
        f"{_AMD} Family 17h Processors (55723)",
    ),
    Machine(
        "Zen 2",
        ("znver2",),
        (Cache(32 * K), Cache(512 * K), Cache(16 * M, 4)),
        f"{_AMD} Family 17h Models 30h and Greater (56305)",
    ),
    Machine(
        "Zen 3",
        ("znver3",),
        (Cache(32 * K), Cache(512 * K), Cache(32 * M, 8)),
        f"{_AMD} Family 19h Processors (56665)",
    ),
    Machine(
        "Zen 4",
        ("znver4",),
        (Cache(32 * K), Cache(1 * M), Cache(32 * M, 8)),
        f"{_AMD} the Zen4 Microarchitecture (57647)",
    ),
    Machine(
        "Zen 5",
        ("znver5",),
        (Cache(48 * K), Cache(1 * M), Cache(32 * M, 8)),
        f"{_AMD} the Zen5 Microarchitecture (58455)",
    ),
    Machine(
        "Cortex-A53",
        ("cortex-a53",),
        (Cache(32 * K), Cache(512 * K, 4)),
        "Arm Cortex-A53 Technical Reference Manual (DDI 0500); sizes of the BCM2837",
    ),
    Machine(
        "Cortex-A55",
        ("cortex-a55",),
        (Cache(32 * K), Cache(128 * K), Cache(3 * M, 8)),
        "Arm Cortex-A55 Technical Reference Manual (100442); sizes of the RK3588",
    ),
    Machine(
        "Cortex-A72",
        ("cortex-a72",),
        (Cache(32 * K), Cache(1 * M, 4)),
        "Arm Cortex-A72 Technical Reference Manual (100095); sizes of the BCM2711",
    ),
    Machine(
        "Cortex-A76",
        ("cortex-a76",),
        (Cache(64 * K), Cache(512 * K), Cache(2 * M, 4)),
        "Arm Cortex-A76 Technical Reference Manual (100798); sizes of the BCM2712",
    ),
    Machine(
        "Cortex-X1",
        ("cortex-x1",),
        (Cache(64 * K), Cache(1 * M), Cache(4 * M, 8)),
        "Arm Cortex-X1 Technical Reference Manual (101433); sizes of the Snapdragon 888",
    ),
    Machine(
        "Neoverse N1",
        ("neoverse-n1",),
        (Cache(64 * K), Cache(1 * M), Cache(32 * M, 64)),
        "Arm Neoverse N1 Technical Reference Manual (100616); sizes of the AWS Graviton2",
    ),
    Machine(
        "Neoverse V1",
        ("neoverse-v1",),
        (Cache(64 * K), Cache(1 * M), Cache(32 * M, 64)),
        "Arm Neoverse V1 Technical Reference Manual (101427); sizes of the AWS Graviton3",
    ),
    Machine(
        "Neoverse V2",
        ("neoverse-v2",),
        (Cache(64 * K), Cache(2 * M), Cache(36 * M, 96)),
        "Arm Neoverse V2 Technical Reference Manual (102375); sizes of the AWS Graviton4",
    ),
    Machine(
        "Apple M1",
        ("apple-m1",),
        (Cache(128 * K), Cache(12 * M, 4)),
        "hw.perflevel0.l1dcachesize and l2cachesize of sysctl: its performance cores",
    ),
)

GENERIC = {
    "x86": Machine(
        "generic x86-64",
        (),
        (Cache(32 * K), Cache(512 * K), Cache(8 * M, 4)),
        "chosen: of the rows above, as many have less as have more",
    ),
    "aarch64": Machine(
        "generic AArch64",
        (),
        (Cache(32 * K), Cache(512 * K), Cache(8 * M, 4)),
        "chosen: between the Cortex and the Neoverse cores",
    ),
    "riscv": Machine(
        "generic RISC-V",
        (),
        (Cache(32 * K), Cache(2 * M, 4)),
        "SiFive U74-MC Core Complex Manual; sizes of the JH7110",
    ),
}
"""By architecture: for CPUs without a row."""

_BY_CPU = {cpu: machine for machine in MACHINES for cpu in machine.cpus}


def _size_text(size: int) -> str:
    for unit, bytes_ in (("M", M), ("K", K)):
        if size % bytes_ == 0:
            return f"{size // bytes_}{unit}"
    return str(size)


def machine_of(triple: str, cpu: str) -> Machine | None:
    """Return the row of a CPU, its architecture's generic one; None for an unknown architecture."""
    architecture = architecture_of(triple)
    if architecture is None:
        return None
    return (
        _BY_CPU[cpu] if cpu in architecture.cpus and cpu in _BY_CPU else GENERIC[architecture.name]
    )


def cache_sizes_of(triple: str, cpu: str) -> CacheSizes:
    """Return what schedules count on for a CPU."""
    machine = machine_of(triple, cpu)
    return CacheSizes() if machine is None else machine.sizes
