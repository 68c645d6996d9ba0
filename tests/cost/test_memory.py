# SPDX-License-Identifier: Apache-2.0
"""What reading costs, what fits together, how early to fetch: by the facts of the target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets import AVX2, AVX512, with_caches
from treadle.cost.memory import (
    aligned_pitch,
    fetched_bytes,
    filled_bytes,
    is_met,
    is_near_again,
    level_cycles,
    local_bytes,
    memory_bytes_per_cycle,
    next_panel_leaves,
    outlast_products,
    overlapped,
    panel_level,
    remote_cycles,
    rows_side_by_side,
    scattered_cycles,
    shared_cycles,
    spares_buffers,
    stack_bytes,
    step_read_cycles,
    steps_to_cores,
    steps_to_memory,
    weight_cycles,
)
from treadle.cost.registers import load_cycles, tile_load_cycles
from treadle.target.base import Target
from treadle.target.parse import parse_target

pytestmark = pytest.mark.tiny

M1 = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=apple-m1")


def test_cores_have_more_of_memory_together_and_less_each() -> None:
    alone, four = (memory_bytes_per_cycle(replace(AVX512, cores=n)) for n in (1, 4))
    assert alone == AVX512.machine.memory_bytes_per_cycle == 2 * four


def test_reading_takes_as_long_as_the_level_gives() -> None:
    machine = AVX512.machine
    assert level_cycles(660, 2, AVX512) == 660 / machine.caches[1].bytes_per_cycle
    assert remote_cycles(660, AVX512) == 660 / machine.remote_bytes_per_cycle


def test_arithmetic_hides_what_is_short_and_not_all_of_what_is_long() -> None:
    assert overlapped(100, 0) == pytest.approx(100)
    assert 100 < overlapped(100, 20) < 101
    assert 120 < overlapped(100, 100) < 130
    assert overlapped(20, 100) == overlapped(100, 20)


def test_weights_cost_where_they_leave_the_second_cache() -> None:
    assert weight_cycles(64, 2, AVX512) == 0
    assert weight_cycles(8192, 2, AVX512) == level_cycles(64, 3, AVX512)
    assert weight_cycles(8192, 2, AVX2) == 0  # half as many bytes
    assert weight_cycles(8193, 2, AVX2) == level_cycles(32, 3, AVX2)
    assert weight_cycles(8192, 2, with_caches(AVX512, l2=8 << 20)) == 0


def test_weights_outlast_the_products_of_few_rows() -> None:
    by_level = [[outlast_products(size, rows, AVX512) for rows in (0, 1, 2, 3, 4, 5, 9)]
                for size in (64 << 10, 64 << 20)]  # fmt: skip
    for found in by_level:
        assert found[0] is False  # rows that are not known
        assert found[1] is True
        assert found[-1] is False
    assert sum(by_level[1]) >= sum(by_level[0])  # what lies further away takes longer


def test_far_memory_is_asked_earlier() -> None:
    far = replace(AVX512, machine=replace(AVX512.machine, memory_latency=1000, remote_latency=50))
    assert steps_to_memory(10, far) == 200
    assert steps_to_cores(10, far) == 10


def test_rows_share_sets_by_their_place_in_a_page() -> None:
    """48 KiB of 4 KiB pages: 12 ways, of which 8 are used; 128 KiB of 16 KiB pages: 5 of 8."""
    target = with_caches(AVX512, l1=48 << 10)
    assert rows_side_by_side(4096, target) == 8
    assert rows_side_by_side(4096 + 64, target) == 8 * 64
    assert rows_side_by_side(16 << 10, M1) == 5
    assert rows_side_by_side(4096, M1) == 5 * 4
    assert rows_side_by_side((16 << 10) + 128, M1) == 5 * 128


def test_buffers_of_a_thread_fit_its_cache_and_the_stack() -> None:
    assert local_bytes(with_caches(AVX512, l2=1 << 20)) == 512 << 10
    assert local_bytes(with_caches(AVX512, l2=8 << 20)) == 768 << 10
    assert 4 * stack_bytes(AVX512, 4) == stack_bytes(AVX512)


def test_buffers_are_smaller_where_a_thread_has_less_stack() -> None:
    musl = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5 -stack-bytes=32K")
    assert local_bytes(musl) == 24 << 10
    assert stack_bytes(musl, 4) == 8 << 10


def test_without_threads_buffers_need_no_room_on_the_stack() -> None:
    """The caller lends them: what stays in the last cache decides, as memory is small."""
    board = parse_target("c -mtriple=thumbv7em-none-eabi -mcpu=cortex-m4")
    assert stack_bytes(board) == board.l3_bytes // 2 > board.machine.stack_bytes
    assert local_bytes(board) == board.l2_bytes // 2


def test_rows_that_evict_each_other_come_from_the_second_cache_every_time() -> None:
    page = AVX512.machine.page_bytes
    alike = rows_side_by_side(page, AVX512)
    assert scattered_cycles(alike, page, 64, AVX512) == 0
    assert scattered_cycles(alike + 1, page, 64, AVX512) == level_cycles(
        64 * (alike + 1), 2, AVX512
    )
    assert scattered_cycles(1000, 64, 64, AVX512) == 0  # one run of memory


@pytest.mark.parametrize("row", [64, 3072, 4096, 4100, 12288])
def test_aligned_rows_begin_at_places_of_their_own(row: int) -> None:
    pitch = aligned_pitch(row, AVX512)
    assert row <= pitch < row + AVX512.machine.page_bytes
    page, line = AVX512.machine.page_bytes, AVX512.machine.line_bytes
    assert len({k * pitch % page for k in range(page // line)}) == page // line


def test_steps_ask_for_lines_of_many_places_where_level_1_waits_for_many() -> None:
    few, many = (parse_target(f"llvm -fill-buffers={n}") for n in (12, 16))
    assert [spares_buffers(few), spares_buffers(many)] == [False, True]
    assert [panel_level(few), panel_level(many)] == [2, 1]
    half = few.l2_bytes * 3 // 8
    assert [next_panel_leaves(size, few) for size in (half - 1, half)] == [False, True]
    names = ("znver3", "znver5", "sapphirerapids", "skylake-avx512", "haswell")
    targets = [parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={name}") for name in names]
    assert [spares_buffers(t) for t in targets] == [True, True, True, False, False]


def test_level_2_is_filled_by_lines_or_by_pairs_of_them() -> None:
    given = ("-line-bytes=64 -fetch-bytes=128", "-line-bytes=128 -fetch-bytes=64")
    assert [fetched_bytes(parse_target(f"llvm {options}")) for options in given] == [128, 128]
    names = ("znver5", "skylake-avx512", "sapphirerapids")
    targets = [parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={name}") for name in names]
    assert [fetched_bytes(t) for t in targets] == [64, 128, 128]


def test_wider_pieces_of_rows_share_more_lines() -> None:
    row = 2048 + 64  # lines of neighbouring rows have places of their own
    few = rows_side_by_side(row, AVX512) // 2
    assert scattered_cycles(few, row, 64, AVX512) == 0
    assert scattered_cycles(few, row, 512, AVX512) > 0


def test_what_is_fetched_past_the_end_is_in_vain() -> None:
    assert is_met(12, 3)
    assert not is_met(11, 3)


@pytest.mark.parametrize(
    ("panel", "size", "passes", "is_near"),
    [(1.0, 4.0, 32, True), (1.0, 4.0, 31, False), (1.1, 4.0, 32, False), (1.0, 99.0, 32, False)],
)
def test_weights_are_near_again_where_a_panel_stays_for_many_tiles(
    panel: float, size: float, passes: int, is_near: bool
) -> None:
    level_1 = filled_bytes(AVX512, 1)
    sizes = int(panel * level_1), int(size * level_1)
    assert is_near_again(*sizes, passes, AVX512) == is_near


@pytest.mark.parametrize("target", [AVX2, AVX512])
def test_weights_of_a_step_come_from_level_2_where_they_pass_level_1(target: Target) -> None:
    fits = filled_bytes(target, 1) // (2 * target.vector_bytes)
    near = step_read_cycles(fits, 10, 2, target)
    assert near == step_read_cycles(0, 10, 2, target) == tile_load_cycles(10, 2, target)
    added = level_cycles(2 * target.vector_bytes, 2, target) - load_cycles(2, target)
    assert step_read_cycles(fits + 1, 10, 2, target) == pytest.approx(near + added)


def test_sharing_is_reading_and_taking_back() -> None:
    target = parse_target(
        "llvm -mcpu=apple-m1 -mtriple=aarch64-linux-gnu -remote-bytes-per-cycle=4"
    )
    assert shared_cycles(4096, target) == 2 * remote_cycles(4096, target) == 2048
