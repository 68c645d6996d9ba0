# SPDX-License-Identifier: Apache-2.0
"""Whether the first elements of a row in order are kept while it is read, or it is sorted."""

from __future__ import annotations

from math import log, log2

from treadle.cost.unknown import SORTED_PARTS

_MOVES = 6
"""Elements that are moved in the time of a comparison whose outcome cannot be foretold: on Zen 4 a
step of a merge takes about 8 ns and a place that is moved 1.3."""


def keeps_best(k: int, n: int | None) -> bool:
    """True where the first `k` of a row of `n` elements are found sooner than it is sorted.

    `n` is None where only a run knows it. In random order k (1 + ln(n / k)) elements are put among
    the best so far: their places are found by halving, and half of the others move. A merge sort
    compares n log2(n) times.
    """
    length = SORTED_PARTS * k if n is None else n
    kept = k * (1 + log(max(1, length / k)))
    return kept * (log2(max(1, k)) + k / 2 / _MOVES) <= length * log2(max(2, length))
