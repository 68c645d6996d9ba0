# SPDX-License-Identifier: Apache-2.0
"""What Strassen's algorithm costs besides its products, by the facts of the target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.cost.registers import Tile
from treadle.cost.strassen import (
    combine_cycles,
    first_tile_cycles,
    handed_on_cycles,
    level_of_products,
    place_cycles,
    sum_cycles,
    sums_kernel_cycles,
    written_cycles,
)
from treadle.target.base import Target
from treadle.target.parse import parse_target

pytestmark = pytest.mark.tiny

ZEN5 = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5 -num-cores=2")


def with_machine(target: Target, **facts: object) -> Target:
    return replace(target, machine=replace(target.machine, **facts))  # type: ignore[arg-type]


def test_the_cycles_measured_on_zen_5() -> None:
    assert sum_cycles(1000, ZEN5) == pytest.approx(3000, rel=0.05)
    many = ZEN5.l3_bytes / ZEN5.vector_bytes
    assert sum_cycles(many, ZEN5, in_memory=True) == pytest.approx(6 * many, rel=0.05)
    assert combine_cycles(1750, 1000, ZEN5) == pytest.approx(6000, rel=0.05)
    assert place_cycles(1000, ZEN5) == pytest.approx(2000, rel=0.3)


def test_only_what_may_leave_the_last_cache_is_far() -> None:
    few = ZEN5.l3_bytes / 8 / ZEN5.vector_bytes
    assert sum_cycles(few, ZEN5, in_memory=True) == sum_cycles(few, ZEN5)
    assert sum_cycles(few + 1, ZEN5, in_memory=True) > sum_cycles(few + 1, ZEN5)


def test_narrow_stores_take_longer() -> None:
    narrow = with_machine(ZEN5, stores_per_cycle=1)
    assert place_cycles(10, narrow) == place_cycles(10, ZEN5) + 10
    assert combine_cycles(0, 10, narrow) == combine_cycles(0, 10, ZEN5) + 10


def test_a_tile_makes_weights_while_it_multiplies() -> None:
    tile = Tile(28, 2)
    sums_alone = tile.vectors / ZEN5.machine.fma_units
    moved = 3 * tile.vectors * ZEN5.vector_bytes / ZEN5.machine.caches[1].bytes_per_cycle
    assert sums_alone < first_tile_cycles(tile, 2, ZEN5) < sums_alone + moved / 4
    narrow = with_machine(ZEN5, stores_per_cycle=0.01)
    assert first_tile_cycles(tile, 2, narrow) > 100
    near, mid, far = (first_tile_cycles(Tile(n, 2), 2, ZEN5, level=3) for n in (28, 14, 7))
    assert near < mid < far  # fewer rows hide less of what comes from level 3


def test_what_passes_level_2_comes_from_level_3_where_few_lines_are_waited_for() -> None:
    few = with_machine(ZEN5, fill_buffers=12)
    room = ZEN5.l2_bytes * 3 // 4
    assert [level_of_products(n, few) for n in (room, room + 1)] == [2, 3]
    assert level_of_products(room + 1, ZEN5) == 2
    near, far = (combine_cycles(1000, 0, few, level=n) for n in (2, 3))
    rates = [c.bytes_per_cycle for c in few.machine.caches]
    assert far / near == pytest.approx(rates[1] / rates[2])
    assert written_cycles(1000, few, level=3) == far


VALUES = 4 * 128 * 768
"""Bytes of the values of a product."""


def test_a_kernel_of_sums_reads_what_other_cores_made() -> None:
    machine = ZEN5.machine
    assert sums_kernel_cycles(VALUES, replace(ZEN5, cores=1)) == machine.fork_cycles
    remote = 2 * VALUES / 2 / machine.remote_bytes_per_cycle  # read, and taken back
    assert sums_kernel_cycles(VALUES, ZEN5) == 2 * machine.fork_cycles + remote
    four = replace(ZEN5, cores=4)
    assert sums_kernel_cycles(VALUES, four) == 4 * machine.fork_cycles + 1.5 * remote
    slow = with_machine(ZEN5, remote_bytes_per_cycle=3.0, fork_cycles=100)
    assert sums_kernel_cycles(VALUES, slow) == 200 + 2 * remote


def test_every_core_reads_the_sums_of_all_others() -> None:
    assert handed_on_cycles(VALUES, 7 / 4 * VALUES, replace(ZEN5, cores=1)) == 0
    two = handed_on_cycles(VALUES, 7 / 4 * VALUES, ZEN5)
    assert two == 2 * 3 / 4 * VALUES / ZEN5.machine.remote_bytes_per_cycle
    assert handed_on_cycles(VALUES, 7 / 4 * VALUES, replace(ZEN5, cores=4)) == 3 * two
