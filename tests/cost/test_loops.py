# SPDX-License-Identifier: Apache-2.0
"""What loops cost of their own is counted in iterations of the machine they run on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets import AVX2
from treadle.cost.loops import room_in, row_cycles, run_cycles, tile_start_cycles

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize("cycles", [run_cycles, tile_start_cycles, row_cycles])
def test_costs_grow_with_what_an_iteration_takes(cycles: object) -> None:
    assert callable(cycles)
    machine = AVX2.machine
    slow = replace(AVX2, machine=replace(machine, iteration_cycles=3 * machine.iteration_cycles))
    assert cycles(slow) == pytest.approx(3 * cycles(AVX2))
    assert cycles(AVX2) > 0


def test_a_tile_begins_more_slowly_than_a_row_or_a_run() -> None:
    assert tile_start_cycles(AVX2) > max(row_cycles(AVX2), run_cycles(AVX2))


def test_a_tile_has_a_part_of_a_cache() -> None:
    assert 0 < room_in(1000) < 1000
    assert room_in(2000) == 2 * room_in(1000)
