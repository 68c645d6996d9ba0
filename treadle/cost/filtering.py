# SPDX-License-Identifier: Apache-2.0
"""How many products Winograd's minimal filtering takes along rows and along columns.

F(m, r): m outputs of r taps take m + r - 1 products, one per point, where the sum takes m r
(Winograd, "Arithmetic Complexity of Computations", 1980).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

_SPARE_OF = 32
"""Of so many tiles one may be spare."""
_MOST_POINTS = {1: 8, 2: 6}
"""How many points an axis may have, by how many axes are filtered: each multiplies the rounding
errors of the other."""


@dataclass(frozen=True, slots=True)
class FilterAxis:
    """How the window moves along rows or columns, and how many outputs a tile has there.

    The outputs of a tile are `gap` apart. With a `stride` there are so many images, of every
    stride-th row, which meet every stride-th tap. An axis with a window of 1 is not filtered.
    """

    tile: int
    kernel: int
    stride: int = 1
    gap: int = 1

    @property
    def taps(self) -> int:
        """How many taps the images of a stride meet at most."""
        return -(-self.kernel // self.stride)

    @property
    def points(self) -> int:
        """At how many points a tile of one of these images is multiplied."""
        return self.tile + self.taps - 1

    @property
    def missing(self) -> int:
        """How many of the images of a stride meet a tap less than the others."""
        return self.taps * self.stride - self.kernel

    @property
    def products(self) -> int:
        """How many products all of these images take: those with a tap less have none at infinity.

        That is, of a stride of 2 the odd ones of a window of odd extent.
        """
        return self.points * self.stride - self.missing

    def tiles(self, outputs: int) -> int:
        """Return how many tiles cover so many outputs, those of all phases of a gap together.

        Of many there are up to a thirtieth more, so that groups can divide them evenly.
        """
        if self.kernel == 1:
            return outputs
        count = -(-outputs // (self.tile * self.gap))
        step = 1 << max(0, (count // _SPARE_OF).bit_length() - 1)
        return -(-count // step) * step * self.gap

    def reads(self, outputs: int) -> int:
        """Return how many inputs the tiles of so many outputs read."""
        margin = (self.taps - 1) * self.gap
        return (self.tiles(outputs) * self.tile + margin) * self.stride


@lru_cache(maxsize=1 << 8)
def filter_axes(
    tile: int, kernel: tuple[int, int], stride: int = 1, gaps: tuple[int, int] = (1, 1)
) -> tuple[FilterAxis, FilterAxis]:
    """Return how rows and columns are filtered; stride, gap and tile are those of several taps."""
    high, wide = (
        FilterAxis(tile, k, stride, gap) if k > 1 else FilterAxis(1, 1)
        for k, gap in zip(kernel, gaps, strict=True)
    )
    return high, wide


def images_of(axes: Sequence[FilterAxis]) -> int:
    """Return how many images a stride takes an image apart into."""
    return prod(axis.stride for axis in axes)


def weights_at_points(axes: Sequence[FilterAxis]) -> int:
    """Return how many weights those of one window become, for all images of a stride."""
    return prod(axis.points * axis.stride for axis in axes)


def why_not_filtered(axes: Sequence[FilterAxis]) -> str | None:
    """Return why a window cannot be filtered so; None where it can."""
    filtered = [axis for axis in axes if axis.kernel > 1]
    if not filtered or any(axis.taps < 2 for axis in filtered):
        return "it is for windows of several taps a stride apart"
    most = _MOST_POINTS[len(filtered)]
    if any(axis.points > most for axis in filtered):
        return f"of more than {most} points the rounding errors are too large"
    return None
