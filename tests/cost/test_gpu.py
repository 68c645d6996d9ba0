# SPDX-License-Identifier: Apache-2.0
"""What products cost on a GPU: the order of tiles and parts, not their cycles."""

from __future__ import annotations

import pytest

from treadle.cost.gpu import (
    ATTENTION_TILES,
    PARTS,
    TILES,
    AttentionTile,
    ProductTile,
    apart_cycles,
    attention_cycles_on_gpu,
    attention_tiles,
    element_cycles,
    is_attention_worth,
    parted_cycles,
    product_cycles,
    product_tiles,
)
from treadle.target.gpu_rows import GPUS

H100 = GPUS["sm_90"].gpu


def best_tile(rows: int, columns: int, steps: int) -> ProductTile:
    return min(TILES, key=lambda t: product_cycles(1, rows, columns, steps, t, H100))


def test_large_products_take_the_largest_tile() -> None:
    for size in (2048, 4096):
        assert best_tile(size, size, size) == ProductTile(128, 128, 16, 8)


def test_few_sums_a_thread_leave_warps_for_every_multiprocessor() -> None:
    """Tiles of 1024 are half as many as multiprocessors: one block of few threads is no work."""
    assert best_tile(1024, 1024, 1024).sums < best_tile(2048, 2048, 2048).sums


def test_factors_are_read_ahead_where_threads_have_registers_for_it() -> None:
    ahead = [t for t in TILES if t.ahead(H100)]
    assert ahead
    assert all(2 * t.registers(H100) * t.threads <= H100.registers for t in ahead)
    assert product_tiles(H100) == list(TILES)
    generic = GPUS["generic"].gpu
    found = product_tiles(generic)
    assert found == [t for t in TILES if t.sums <= 64]
    assert [t.steps(generic) for t in found if t.sums == 64] == [16] * 4
    assert product_tiles(H100, itemsize=8) == found


def test_small_products_leave_tiles_for_all_multiprocessors() -> None:
    large, small = best_tile(4096, 4096, 4096), best_tile(512, 512, 512)
    assert small.rows * small.columns <= large.rows * large.columns / 4


@pytest.mark.parametrize("tile", TILES)
def test_tiles_are_whole_warps(tile: ProductTile) -> None:
    assert tile.threads % H100.warp == 0
    assert tile.threads <= H100.block_threads
    assert tile.rows % (4 * tile.thread_rows) == 0
    assert tile.columns % (8 * tile.thread_columns) == 0


def best_parts(rows: int, columns: int, steps: int) -> int:
    def cycles(parts: int) -> float:
        return min(parted_cycles(1, rows, columns, steps, parts, t, H100) for t in TILES)

    return min(PARTS, key=cycles)


def test_steps_are_divided_where_results_are_few() -> None:
    assert best_parts(4096, 4096, 4096) == 1
    assert best_parts(64, 64, 8192) > 1
    assert best_parts(64, 64, 16) == 1  # a second launch takes longer


def test_no_product_is_cheaper_than_its_arithmetic() -> None:
    rows = columns = steps = 2048
    least = rows * columns * steps / (H100.lanes * H100.multiprocessors)
    assert all(product_cycles(1, rows, columns, steps, t, H100) >= least for t in TILES)
    assert element_cycles(rows * columns, steps, H100) > 2 * least


@pytest.mark.parametrize("tile", ATTENTION_TILES)
def test_tiles_of_attention_are_whole_warps_with_a_vector_of_keys_a_thread(
    tile: AttentionTile,
) -> None:
    assert tile.threads % H100.warp == 0
    assert tile.lanes % 8 == 0
    assert tile.thread_keys % 4 == 0
    assert tile.rows % (4 * tile.thread_rows) == 0


def best_attention(rows: int) -> AttentionTile:
    fitting = attention_tiles(64, 64, H100)
    return min(fitting, key=lambda t: attention_cycles_on_gpu(12, rows, rows, 64, 64, t, H100))


def test_long_rows_of_queries_take_larger_tiles() -> None:
    assert best_attention(197).rows < best_attention(2048).rows


def test_tiles_of_attention_fit_a_block() -> None:
    for depth in (8, 64, 80, 128, 256):
        for tile in attention_tiles(depth, depth, H100):
            assert tile.shared_bytes(depth, depth) <= H100.block_bytes
    assert attention_tiles(64, 64, H100)
    assert not attention_tiles(512, 512, H100)


def test_attention_is_one_launch_where_that_takes_less() -> None:
    assert is_attention_worth(12, 197, 197, 64, 64, H100)
    assert is_attention_worth(12, 2048, 2048, 64, 64, H100)
    assert not is_attention_worth(12, 1024, 1024, 128, 128, H100)
    assert is_attention_worth(12, 0, 0, 128, 128, H100)
    assert not is_attention_worth(12, 0, 0, 512, 512, H100)
    assert apart_cycles(12, 64, 64, 64, 64, H100) > 2 * H100.launch_time * H100.clock
