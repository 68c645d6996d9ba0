# SPDX-License-Identifier: Apache-2.0
"""The schedule of attention: any sizes agree, blocks stay on the stack, threads change nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ops.schedules.compiled import check
from tests.target.kernel import native
from treadle.ops.schedules.attention import MOST_SCORES, block_vectors


@pytest.mark.parametrize("keys", [1, 7, 8, 33, 130])
@pytest.mark.parametrize("rows", [1, 16, 37])
def test_any_sizes(keys: int, rows: int) -> None:
    check("attend", (7, keys, rows), (7, keys, 20))


def test_few_heads_are_shared_out_by_blocks() -> None:
    text = check("attend", (1, 64, 200), (1, 64, 16)).loop_text()
    assert text.count("parallel(") == 1
    assert "alloc(workspace)" not in text


@pytest.mark.parametrize("chunks", [1, 4])
def test_chunks_do_not_change_the_result(chunks: int) -> None:
    check("attend", (9, 21, 40), (9, 21, 17), chunks=chunks)


def test_blocks_get_smaller_as_rows_get_longer() -> None:
    target = replace(native(), l1_bytes=48 << 10, l2_bytes=1 << 20)
    found = [block_vectors(keys, 16, 4, target) for keys in (64, 1024, 4096, 1 << 20)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0
    assert found[-1] == 0
    assert all(v * 16 * n <= MOST_SCORES for v, n in zip(found, (64, 1024, 4096), strict=False))
