# SPDX-License-Identifier: Apache-2.0
"""How often a thing is called to be timed, what the figures are, and memory out of the caches."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.errors import UsageError
from treadle.runtime.timing import BenchmarkResult, measure, out_of_cache


def test_min_repeat_ms_raises_the_number_of_calls() -> None:
    numbers: list[int] = []

    def time(number: int) -> float:
        numbers.append(number)
        return number * 1e-4

    result = measure(time, 2, 3, 10)
    assert result.mean == pytest.approx(1e-4)
    assert numbers[0] == 1
    assert all(number * 1e-4 >= 10e-3 for number in numbers[-3:])
    with pytest.raises(UsageError, match="cannot be measured"):
        measure(time, 0, 1, 0)


def test_the_summary_table() -> None:
    result = BenchmarkResult((0.001, 0.002, 0.006))
    assert (result.median, result.min, result.max) == (0.002, 0.001, 0.006)
    assert result.mean == pytest.approx(0.003)
    assert result.std == pytest.approx(np.std([0.001, 0.002, 0.006]))
    assert str(result).splitlines() == [
        "Execution time summary:",
        " mean (ms)   median (ms)    max (ms)     min (ms)     std (ms)  ",
        "   3.0000       2.0000       6.0000       1.0000       2.1602   ",
    ]


def test_every_call_out_of_cache_is_timed_alone_and_writes_nothing() -> None:
    numbers: list[int] = []
    memory = np.arange(200, dtype=np.uint8)

    def time(number: int) -> float:
        numbers.append(number)
        return 0.5

    assert out_of_cache(time, [memory])(3) == 1.5
    assert numbers == [1, 1, 1]
    np.testing.assert_array_equal(memory, np.arange(200, dtype=np.uint8))
