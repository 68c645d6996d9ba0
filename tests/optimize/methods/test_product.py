# SPDX-License-Identifier: Apache-2.0
"""How wide the panels of packed weights are."""

from __future__ import annotations

import pytest

from tests.targets import AVX512 as WIDE
from treadle.optimize.methods.product import panel_width
from treadle.target.parse import parse_target


@pytest.mark.parametrize("cpu", ["znver4", "haswell", "nehalem"])
def test_panels_are_wider_for_one_row(cpu: str) -> None:
    target = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    lanes = target.lanes()
    many, one = (panel_width(rows, 1000, 64, "float32", target) for rows in (20, 1))
    assert one > many >= lanes
    assert panel_width(20, 3, 64, "float32", target) == lanes
    for rows in (0, 1, 2, 20):
        for columns in range(1, 400):
            width = panel_width(rows, columns, 64, "float32", target)
            assert width % lanes == 0
            assert width < 2 * max(columns, lanes)


def test_panels_for_one_row_leave_few_columns_unused() -> None:
    assert panel_width(1, 400, 100, "float32", WIDE) in (5 * 16, 7 * 16)
    assert panel_width(1, 1800, 600, "float32", WIDE) == 6 * 16
    assert panel_width(1, 1200, 400, "float32", WIDE) == 5 * 16
    assert panel_width(1, 512, 128, "float32", WIDE) == 8 * 16


def test_panels_are_wider_where_rows_evict_each_other() -> None:
    widths = [panel_width(128, 768, steps, "float32", WIDE) for steps in (768, 1024, 3072)]
    assert widths[0] < widths[1] == widths[2]
