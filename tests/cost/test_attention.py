# SPDX-License-Identifier: Apache-2.0
"""What tiles of attention take: those that read values again from level 2, those with rests."""

from __future__ import annotations

import pytest

from tests.targets import MACHINES
from treadle.cost.attention import scores_cycles, values_cycles
from treadle.cost.registers import Tile
from treadle.target.parse import parse_target

ZEN3 = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3 -num-cores=2")


def test_tiles_of_many_rows_read_values_from_level_2_less_often() -> None:
    """Of 16 rows and 64 columns, in whole lines: 4 times all of them against 5 times half."""
    flat, high = Tile(4, 3), Tile(6, 2)
    near = [values_cycles(16, 8, t, 16, 4, ZEN3)[0] for t in (flat, high)]
    far = [values_cycles(16, 8, t, 784, 4, ZEN3)[0] for t in (flat, high)]
    assert near[0] == pytest.approx(near[1])
    assert far[0] > 1.1 * far[1]
    assert far[1] > near[1]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_rest_costs_its_cycles_and_its_code(machine: str) -> None:
    target = MACHINES[machine]
    whole = scores_cycles(48, 2, Tile(6, 2), target)
    rest = scores_cycles(52, 2, Tile(6, 2), target)
    assert rest[0] > whole[0] * 52 / 48
    assert rest[1] == whole[1]
