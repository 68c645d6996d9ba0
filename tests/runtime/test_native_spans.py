# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from treadle.runtime.native_spans import Span, Spans


def spans_of(array: np.ndarray, *places: tuple[int, int]) -> Spans:
    """Return bytes [begin, end) of an array."""
    return Spans([Span(array.ctypes.data + begin, end - begin) for begin, end in places])


def test_every_byte_of_a_span_counts_and_no_other() -> None:
    array = np.arange(64, dtype=np.uint8)
    spans = spans_of(array, (40, 48), (3, 4), (3, 9), (20, 20))
    assert spans.are_unchanged()
    for at in range(64):
        array[at] ^= 128
        assert spans.are_unchanged() == (not (40 <= at < 48 or 3 <= at < 9))
        array[at] ^= 128
    assert spans.are_unchanged()


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_bytes_are_compared_not_numbers(value: float) -> None:
    array = np.full(5, value, np.float32)
    spans = spans_of(array, (0, 20))
    assert spans.are_unchanged()
    array[2] = -array[2]
    assert not spans.are_unchanged()


def test_no_spans_are_unchanged() -> None:
    assert Spans([]).are_unchanged()
