# SPDX-License-Identifier: Apache-2.0
"""What values cost that pass between products, and weights that are read for every block."""

from __future__ import annotations

import pytest

from treadle.cost.chains import passing_cycles, saves_enough, waiting_cycles
from treadle.target.parse import parse_target

CASCADE_LAKE = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake")
K, M = 1024, 1024 * 1024


def test_values_that_level_2_holds_pass_for_nothing() -> None:
    assert passing_cycles(1 * M, CASCADE_LAKE) == 0
    rate = CASCADE_LAKE.machine.caches[2].bytes_per_cycle
    assert passing_cycles(4 * M, CASCADE_LAKE) == pytest.approx(3 * 4 * M / rate)


def test_values_that_no_cache_holds_pass_memory() -> None:
    held, more = 4 * M, 64 * M
    of_byte = [passing_cycles(size, CASCADE_LAKE) / size for size in (held, more)]
    assert of_byte[1] > of_byte[0]


def test_a_block_waits_for_weights_that_level_2_does_not_hold() -> None:
    assert waiting_cycles([256 * K, 256 * K], 200 * K, CASCADE_LAKE) == 0
    short = waiting_cycles([512 * K, 512 * K], 200 * K, CASCADE_LAKE)
    long = waiting_cycles([M, M], 200 * K, CASCADE_LAKE)
    assert 0 < 2 * short < long  # twice the bytes, of which less stays while a block passes


def test_what_one_kernel_saves_is_more_than_estimates_are_wrong_by() -> None:
    assert saves_enough(0.97, 1)
    assert not saves_enough(0.99, 1)
