# SPDX-License-Identifier: Apache-2.0
"""Schedules of Strassen's products: sums in registers on every machine, weights fetched ahead."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.targets import MACHINES
from treadle.ops.lowered.matmul_strassen import PRODUCTS, TRAILER
from treadle.ops.schedules.estimates import MatmulShape
from treadle.optimize.methods.product_strassen import strassen_width
from treadle.target.llvm import spill_count


def shapes(
    rows: int, steps: int, pairs: int, width: int, *, plain: bool = False
) -> tuple[tuple[int, ...], ...]:
    values = (PRODUCTS, -(-rows // 2), steps // 2 + TRAILER)
    return values, (2 * pairs, steps, width) if plain else (pairs, PRODUCTS, steps // 2, width)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("rows", [128, 197])
def test_sums_stay_in_registers(rows: int, plain: bool, machine: str) -> None:
    target = MACHINES[machine]
    width = strassen_width(MatmulShape(1, rows, 3072, 768), target)
    how = {"m": rows, "n": 4 * width, "half": -(-rows // 2), "plain_weights": plain}
    operands = shapes(rows, 768, 2, width, plain=plain)
    asm = kernel_of(target, "dense_strassen", *operands, **how).asm()
    assert "prefetch" in asm or "prfm" in asm
    # 16 registers do not hold the factor that one block of a sum has, too: each step reads it
    assert spill_count(asm) <= (1 if plain else 0)


@pytest.mark.parametrize("rows", [1, 2, 3, 28, 31])
@pytest.mark.parametrize("n", [5, 64, 75])
@pytest.mark.parametrize("plain", [False, True])
def test_any_rows_and_columns(rows: int, n: int, plain: bool) -> None:
    operands = shapes(rows, 48, -(-n // 64), 32, plain=plain)
    how = {"m": rows, "n": n, "half": -(-rows // 2), "plain_weights": plain}
    check("dense_strassen", *operands, **how)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_run_makes_the_sums_of_one_product_at_a_time(machine: str) -> None:
    operands = shapes(64, 96, 3, 32, plain=True)
    how = {"m": 64, "n": 192, "half": 32, "plain_weights": True}
    kernel = kernel_of(MACHINES[machine], "dense_strassen", *operands, **how)
    before, made = kernel.loop_text().split("strassen_weights", 1)
    assert "for p in range(7)" in before
    assert "[1, 1, 48, 32] = alloc(local)" in made.splitlines()[0]
    stores = [line for line in made.splitlines() if line.lstrip().startswith("strassen_weights[")]
    tiles = [line for line in made.splitlines() if "for k" in line]
    assert len(stores) == 1 < len(tiles)  # the first tile makes them, all others read them


@pytest.mark.parametrize("rows", [41, 48, 79])
def test_parts_of_the_rows(rows: int) -> None:
    values, weights = shapes(-(-rows // 16) * 16, 48, 2, 32)
    check("dense_strassen", values, weights, m=rows, n=100, half=8)
    plain = (2 * weights[0], 2 * weights[2], weights[3])
    check("dense_strassen", values, plain, m=rows, n=100, half=8, plain_weights=True)


@pytest.mark.parametrize("shape", [(1, 2), (7, 34), (2, 5, 64), (64, 130)])
def test_sums_of_blocks_of_any_size(shape: tuple[int, ...]) -> None:
    check("strassen_blocks", shape, half=-(-shape[-2] // 2))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", [(7, 34), (64, 130)])
def test_sums_of_many_blocks_are_shared_out(shape: tuple[int, ...], machine: str) -> None:
    kernel = kernel_of(MACHINES[machine], "strassen_blocks", shape, half=-(-shape[-2] // 2))
    assert ("parallel" in kernel.schedule) == (np.prod(shape) > 4096)
