# SPDX-License-Identifier: Apache-2.0
"""What Strassen's algorithm does besides its products: sums of blocks before, combination after.

Cycles per vector were measured on a core of AMD Zen 5 with vectors of 512 bits.
"""

from __future__ import annotations

from treadle.target.base import Target

_SUM_CYCLES, _FAR_SUM_CYCLES = 3.0, 6.0
"""Per vector read or written where blocks are added: from near caches, and from far ones."""
_COMBINE_CYCLES = 6.0
"""Per vector of the result: products are stored, read, added."""
_PLACE_CYCLES = 2.0
"""Per vector of the result: it is read again to go where it belongs."""
_KERNEL_CYCLES = 60_000.0
"""Of one more kernel."""


def sum_cycles(vectors: float, target: Target, *, in_memory: bool = False) -> float:
    """Return the cycles to read or write so many vectors where blocks of values are added.

    `in_memory`: where they may take much of the last cache.
    """
    is_far = in_memory and target.vector_bytes * vectors > target.l3_bytes // 8
    return vectors * (_FAR_SUM_CYCLES if is_far else _SUM_CYCLES)


def sums_kernel_cycles() -> float:
    """Return what a kernel for the sums costs: the threads meet once more, and read what the others
    wrote."""
    return _KERNEL_CYCLES


def combine_cycles(vectors: float) -> float:
    """Return the cycles for so many vectors of results: products are stored, read, added."""
    return vectors * _COMBINE_CYCLES


def place_cycles(vectors: float) -> float:
    """Return the cycles to read so many vectors of results again, to go where they belong."""
    return vectors * _PLACE_CYCLES
