# SPDX-License-Identifier: Apache-2.0
"""A row of the table of machines: a family of CPUs, its facts, and the source of each group."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.target.machine import Cache, Machine

Caches = tuple[Cache, Cache, Cache]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where facts come from: of units and latencies, of sizes of caches, of rates and costs."""

    units: str
    caches: str
    rates: str


@dataclass(frozen=True, slots=True)
class Family:
    """A family of CPUs, under LLVM's names for its members."""

    name: str
    cpus: tuple[str, ...]
    machine: Machine
    sources: Sources


def two_levels(first: Cache, last: Cache) -> Caches:
    """Return the caches of a machine whose second level is its last."""
    return first, last, last
