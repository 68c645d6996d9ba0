# SPDX-License-Identifier: Apache-2.0
"""How many rows of an image a convolution finishes for all channels before the next rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from treadle.cost.memory import (
    again_cycles,
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
    oc, *deep, ocb = (known(a) for a in op.axis[lead:])
    oc *= prod(known(a) for a in op.axis[1:lead])
    oh, ow = deep[-2:] if len(deep) > 1 else (deep[0], 1)
    steps = [known(a) for a in op.reduce_axis]
    size: int = itemsize_of(total)
    window = steps[-1 - len(deep) : -1]
    column = [] if len(deep) > 1 else [1]
    *planes, high, wide = [*window, *column]
    *_, step_down, step_across = [*(strides or [1] * len(deep)), *column]
    together = max(wide, target.machine.line_bytes // (steps[-1] * size))  # in a line, or a window
    row = prod(steps) // prod(window) * ow * min(step_across, together) * size
    down = oh * min(step_down, high)
    source = row * down
    weights = oc * ocb * prod(steps) * size
    passes = -(-oc // (groups * tile.vectors))
    panel = weights / (groups * passes)
    overlap = ((tile.high - 1) * step_down + high) / (tile.high * min(step_down, high))

    def moved(band: int, room: float) -> tuple[float, float]:
        """Return the bytes of weights, and of data, that come from beyond `room` in a cache."""
        bands = -(-rows // band)
        lines = band / rows + max(0, high - step_down) / max(down, 1)
        held = prod(planes) * source * lines
        again = 1 if held <= room else prod(planes) * passes * overlap
        return weights * (1 if weights <= room else bands), groups * source * lines * bands * again

    def from_others(band: int) -> float:
        """What the other cores read too: all weights where they share bands, else all inputs."""
        are_shared = -(-rows // band) % target.cores == 0
        return (weights if are_shared else source) * (1 - 1 / target.cores)

    def cost(band: int) -> tuple[float, int]:
        of_weights, of_data = moved(band, kept_bytes(target, 2))
        far = again_cycles(of_weights, weights, target)
        far += rows_cycles(of_data, source, ocb * size, target)
        near = level_cycles(sum(moved(band, filled_bytes(target, 1) - panel)), 2, target)
        return far + near + from_others(band) / memory_bytes_per_cycle(target), -band

    even = (-(-rows // k) for k in range(2, min(rows, BANDS)))
    bands = dict.fromkeys((1, *sorted(even), rows))
    return knobs.pick("band", bands, cost=cost)
