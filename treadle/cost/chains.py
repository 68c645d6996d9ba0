# SPDX-License-Identifier: Apache-2.0
"""What it costs that values pass from one product to the next, and that weights are read again."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cost.memory import again_cycles, filled_bytes, kept_bytes
from treadle.target.base import Target

_PASSES = 3
"""How often values pass level 3: a line that is written is read before, and read again later."""
_WAIT, _SHORT_WAIT = 0.5, 0.3
"""The part of the time of reading weights that the products of a block do not hide: less where they
stay in level 2 while the tiles of a block pass."""

OTHER_CODE = 1.01
"""How many times as long a kernel takes whose last block of rows has other code than the rest."""

_WORTHWHILE = 0.98
"""The part of the time of two kernels that one takes at most: estimates are not exact."""


def saves_enough(together: float, apart: float) -> bool:
    """True where one kernel of so many cycles is worth it, instead of two that take `apart`."""
    return together <= _WORTHWHILE * apart


def passing_cycles(size: int, target: Target) -> float:
    """Return the cycles in which `size` bytes are written and read by another kernel.

    Those that level 2 holds take none.
    """
    return 0.0 if size <= target.l2_bytes else again_cycles(_PASSES * size, size, target)


def waiting_cycles(weights: Sequence[int], block: int, target: Target) -> float:
    """Return the cycles that a block of rows waits for the weights of its products, in bytes.

    None where level 2 holds all of them and the block's own values.
    """
    total = sum(weights)
    if total + block <= filled_bytes(target, 2):
        return 0.0
    parts = [_SHORT_WAIT if w <= kept_bytes(target, 2) else _WAIT for w in weights]
    waited = sum(part * w for part, w in zip(parts, weights, strict=True))
    return again_cycles(waited, total, target)
