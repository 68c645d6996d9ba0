# SPDX-License-Identifier: Apache-2.0
"""What loops cost besides what they compute, where nothing nearer is known of them.

Counted in iterations of an inner loop without a body; the counts only order candidates of sketches.
"""

from __future__ import annotations

from treadle.target.base import Target

_RUN = 8
"""A loop over a reduction takes as many empty iterations to begin and to end."""
_TILE = 50
"""A tile that a thread takes needs as many: its addresses, and accumulators set to nothing."""
_ROW = 10
"""A row of a plain loop nest needs as many."""
_CACHE_PART = 0.6
"""The part of a cache that a tile has before it is evicted by what else is read."""


def run_cycles(target: Target) -> float:
    """Return what a loop over a reduction takes to begin and to end."""
    return _RUN * target.machine.iteration_cycles


def tile_start_cycles(target: Target) -> float:
    """Return what a tile of several levels takes to begin."""
    return _TILE * target.machine.iteration_cycles


def row_cycles(target: Target) -> float:
    """Return what a row of a plain loop nest takes to begin."""
    return _ROW * target.machine.iteration_cycles


def room_in(cache_bytes: int) -> float:
    """Return the bytes of a cache that a tile can count on."""
    return cache_bytes * _CACHE_PART
