# SPDX-License-Identifier: Apache-2.0
"""Written targets, the same on every machine, for tests that look at texts and choices.

Only tests that run code ask for this machine (`tests.target.kernel.native`, "llvm").
"""

from __future__ import annotations

from dataclasses import replace

from treadle.target.base import Target
from treadle.target.machine import CacheSizes
from treadle.target.parse import parse_target

CACHES = "-caches=32K,1M,32M -num-cores=2"
AVX512 = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu=znver5 {CACHES}")
ZEN4 = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 {CACHES}")
"""With vectors of 512 bits that its units take in halves: caches keep up with them."""
AVX2 = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu=haswell {CACHES}")
SSE = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64 {CACHES}")
NEON = parse_target(f"llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 {CACHES}")
NEOVERSE_V1 = parse_target(f"llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1 {CACHES}")
ALDER_LAKE = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu=alderlake {CACHES}")

MACHINES = {"avx512": AVX512, "avx2": AVX2, "neon": NEON}
"""The machines that schedules are written for, by the name a parametrised test shows."""


def with_caches(
    target: Target, *, l1: int | None = None, l2: int | None = None, l3: int | None = None
) -> Target:
    """Return a target with caches of other sizes, in bytes; None: those it has."""
    sizes = CacheSizes(l1 or target.l1_bytes, l2 or target.l2_bytes, l3 or target.l3_bytes)
    return replace(target, machine=target.machine.with_sizes(sizes))
