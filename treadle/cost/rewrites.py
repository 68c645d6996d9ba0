# SPDX-License-Identifier: Apache-2.0
"""When a rewrite of the graph saves more than it costs, by counts of what both sides do."""

from __future__ import annotations

from treadle.dtype import bits
from treadle.limits import REDUCED_CHANNELS, REDUCED_POSITIONS
from treadle.target.base import Target

_SHARE_OF_LIVE = 0.75
"""The part of window positions that meet no padding below which skipping the others pays: a test
for each of them takes the rest."""
_RUNS = 6
"""Runs of neighbouring lanes from which a vector is put together as fast as by looking up each lane
of sixteen: as many vectors are read under a mask."""
_USES = 32
"""Operations on an element of 16 bits from which they take longer than widening it."""
_SAVED_PRODUCTS = 24
"""Products of an element from which leaving them out pays for one more pass over the results."""
_GROWTH = 4
"""How many times as many channels results may have as the image whose resizing they replace."""
_VECTORS = 2
"""Vectors of filters of a tile of results, of which it reads the weights for all channels."""
_INSIDE = 4
"""Elements of an image for each zero around it: one of 14x14 and a border of one has less. With
code for the edges of all images MobileNetV2 took a fifth longer to compile, and most of what it
gained it gained there."""
_BLOCKS = 64
"""Channels that are whole blocks on every target: parts of a convolution are multiples of them."""


def skips_padding(live: float) -> bool:
    """True where a window meets no padding at a part `live` of its positions, and few of them."""
    return live < _SHARE_OF_LIVE


def is_spliced(runs: int) -> bool:
    """True for so few runs that a block of channels is put together of whole vectors."""
    return runs <= _RUNS


def pays_to_widen(operations: int, elements: int) -> bool:
    """True for as many operations that their operands, elements of 16 bits, become float32."""
    return operations >= _USES * elements


def resizes_results(channels: int, filters: int, grown: float) -> bool:
    """True where a 1x1 convolution before an image grows saves more than resizing results costs.

    The image has `channels` and becomes `grown` times as large; the results have `filters`.
    """
    saved = channels * (1 - 1 / grown)
    return saved >= _SAVED_PRODUCTS and filters <= _GROWTH * channels


def tile_weight_bytes(filter_bytes: int, dtype: str, target: Target) -> int:
    """Return the bytes of weights that a tile of a convolution reads, of filters of so many."""
    return _VECTORS * target.lanes(bits(dtype)) * filter_bytes


def channel_parts(
    channels: int, positions: int, filter_bytes: int, dtype: str, target: Target
) -> list[tuple[int, int]]:
    """Return the parts of its channels, [begin, end), over which a convolution is summed.

    One, unless level 2 does not hold the weights that a tile reads, so that each tile would read
    them from further away.
    """
    if channels < REDUCED_CHANNELS or positions < REDUCED_POSITIONS:
        return [(0, channels)]
    count = -(-tile_weight_bytes(filter_bytes, dtype, target) // max(1, target.l2_bytes))
    size = -(-channels // (count * _BLOCKS)) * _BLOCKS
    return [(begin, min(begin + size, channels)) for begin in range(0, channels, size)]


def outweighs_edges(zeros: int, inside: int) -> bool:
    """True where zeros around an image are so many that code for its edges is worth compiling."""
    return _INSIDE * zeros >= inside
