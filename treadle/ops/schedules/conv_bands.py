# SPDX-License-Identifier: Apache-2.0
"""How many rows of an image a convolution finishes for all channels before the next rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from treadle.cost.memory import (
    again_cycles,
    fetched_bytes,
    filled_bytes,
    kept_bytes,
    level_cycles,
    memory_bytes_per_cycle,
    rows_cycles,
)
from treadle.cost.registers import WindowTile
from treadle.expr.nodes import int_value
from treadle.limits import BANDS
from treadle.ops.schedules.stages import compute_of, itemsize_of, known
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.stage import Stage


def rows_per_band(
    total: Stage,
    rows: int,
    tile: WindowTile,
    target: Target,
    knobs: Knobs,
    *,
    groups: int = 1,
    lead: int = 1,
    strides: Sequence[int] = (),
) -> int:
    """Return knob "band": the tile rows of the image to finish for all channels before the next.

    A band's input is read once per tile of output channels, all weights once per band: what fits
    a cache costs nothing to read again from there. The band that moves least wins. The last one may
    have fewer rows.
    `lead` axes stand before the channels: the batch, and what else reads the same input. Windows
    are `strides` apart (default: 1 along each axis).
    """
    op = compute_of(total)
    if any(int_value(a.extent) is None for a in (*op.axis[1:], *op.reduce_axis)):
        return rows
    reads = _reads_of(total, rows, tile, target, groups, lead, strides)

    def from_others(band: int) -> float:
        """What the other cores read too: all weights where they share bands, else all inputs."""
        are_shared = -(-rows // band) % target.cores == 0
        return (reads.weights if are_shared else reads.source) * (1 - 1 / target.cores)

    def cost(band: int) -> tuple[float, int]:
        of_weights, of_data = reads.moved(band, kept_bytes(target, 2))
        far = again_cycles(of_weights, reads.weights, target)
        far += rows_cycles(of_data, reads.source, reads.position, target)
        near = level_cycles(
            sum(reads.moved(band, filled_bytes(target, 1) - reads.panel)), 2, target
        )
        return far + near + from_others(band) / memory_bytes_per_cycle(target), -band

    return knobs.pick("band", band_sizes(rows), cost=cost)


def band_sizes(rows: int) -> list[int]:
    """Return the tile rows of the bands that are compared, the fewest first: shares of all rows."""
    even = (-(-rows // k) for k in range(2, min(rows, BANDS)))
    return list(dict.fromkeys((1, *sorted(even), rows)))


@dataclass(frozen=True, slots=True)
class _Reads:
    """What a convolution of `rows` tile rows reads of one plane of results, in bytes.

    `source` is what its windows read of a plane of data, in `position`s; a tile of channels reads a
    `panel` of the `weights` and, in so many `passes` for each of the groups, all data of `planes`.
    A band reads `border` in addition to its rows, as a share of them all; tiles read `overlap`
    times their own.
    """

    rows: int
    groups: int
    weights: int
    panel: float
    source: int
    position: int
    passes: int
    planes: int
    border: float
    overlap: float

    def moved(self, band: int, room: float) -> tuple[float, float]:
        """Return the bytes of weights, and of data, that come from beyond `room` in a cache."""
        bands = -(-self.rows // band)
        source = self.source * (band / self.rows + self.border)
        stays = self.planes * source <= room
        again = 1 if stays else self.planes * self.passes * self.overlap
        weights = self.weights * (1 if self.weights <= room else bands)
        return weights, self.groups * source * bands * again


def _reads_of(
    total: Stage,
    rows: int,
    tile: WindowTile,
    target: Target,
    groups: int,
    lead: int,
    strides: Sequence[int],
) -> _Reads:
    op = compute_of(total)
    oc, *deep, ocb = (known(a) for a in op.axis[lead:])
    oc *= prod(known(a) for a in op.axis[1:lead])
    oh, ow = deep[-2:] if len(deep) > 1 else (deep[0], 1)
    steps = [known(a) for a in op.reduce_axis]
    size: int = itemsize_of(total)
    window = steps[-1 - len(deep) : -1]
    column = [] if len(deep) > 1 else [1]
    *planes, high, wide = [*window, *column]
    *_, step_down, step_across = [*(strides or [1] * len(deep)), *column]
    # positions that come to level 2 together, or that a window reads
    together = max(wide, fetched_bytes(target) // (steps[-1] * size))
    row = prod(steps) // prod(window) * ow * min(step_across, together) * size
    down = oh * min(step_down, high)
    weights = oc * ocb * prod(steps) * size
    passes = -(-oc // (groups * tile.vectors))
    return _Reads(
        rows,
        groups,
        weights,
        weights / (groups * passes),
        row * down,
        ocb * size,
        passes,
        prod(planes),
        max(0, high - step_down) / max(down, 1),
        ((tile.high - 1) * step_down + high) / (tile.high * min(step_down, high)),
    )
