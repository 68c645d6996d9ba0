# SPDX-License-Identifier: Apache-2.0
"""Products whose reduction is cut into blocks: where, and that they give the same."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.ops.schedules.test_matmul import CASCADE_LAKE, dense
from tests.target.kernel import native, pool_of, run
from treadle.build.kernel import Kernel
from treadle.target.base import Target
from treadle.target.llvm import spill_count
from treadle.target.parse import parse_target
from treadle.te.knobs import Config

ZEN = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5")


def block_of(rows: int, steps: int, columns: int, target: Target) -> int:
    """Return the steps of a block as the loops have them; 0 where the reduction is not cut."""
    text = dense(rows, steps, columns, target)[0].loop_text()
    found = re.search(r"for k\.inner in range\((\d+)\)", text)
    return int(found[1]) if found else 0


def test_a_reduction_is_cut_where_level_2_does_not_hold_two_panels() -> None:
    sizes = {steps: block_of(197, steps, 768, CASCADE_LAKE) for steps in (768, 1536, 3072)}
    assert sizes == {768: 0, 1536: 0, 3072: 512}
    assert block_of(128, 3072, 768, CASCADE_LAKE) == 768  # fewer rows pass between two panels
    assert block_of(5, 3072, 768, CASCADE_LAKE) == 0  # one tile: a panel is read once
    assert block_of(197, 3072, 768, ZEN) == 512


def test_a_reduction_is_whole_where_cores_would_have_no_columns() -> None:
    many = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake -num-cores=32")
    assert block_of(197, 3072, 768, many) == 0


@pytest.mark.parametrize(("rows", "steps", "columns"), [(31, 1024, 130), (64, 1536, 197)])
def test_blocks_of_a_reduction_add_up_to_the_same(rows: int, steps: int, columns: int) -> None:
    target = replace(native(), cores=1)
    plain, (a, w) = dense(rows, steps, columns, target)
    kernel = Kernel(plain.function, target, Config.of({"reduction_block": 512}))
    assert "range(512)" in kernel.loop_text()
    out = np.zeros((rows, columns), np.float32)
    run(kernel.lowered, [a, w, out], env=pool_of(3, []), workspace=kernel.workspace())
    matrix = w.transpose(1, 0, 2).reshape(steps, -1)[:, :columns]
    np.testing.assert_allclose(out, a @ matrix, rtol=1e-4, atol=1e-3)


def test_tiles_fetch_the_next_block_of_a_panel_into_level_2() -> None:
    """After the last block comes the first of the next panel. Sums stay in registers."""
    kernel, _ = dense(128, 3072, 768, CASCADE_LAKE)
    hints = [x for x in kernel.loop_text().splitlines() if "level=2" in x]
    assert hints
    assert all("select((2 < k.outer), 0, (k.outer + 1)) * 768" in x for x in hints)
    assert spill_count(kernel.asm()) == 0
