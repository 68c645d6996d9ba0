# SPDX-License-Identifier: Apache-2.0
"""Schedules of products: remainders, blocks of rows, tiles that fit the registers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.ops.schedules.compiled import check
from tests.ops.test_operators import call_of, function_of, inputs_of
from tests.target.kernel import native, pool_of, run
from treadle.build.kernel import Kernel
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Var
from treadle.graph.operator import OPERATORS, Example
from treadle.graph.types import TensorType
from treadle.ops.matmul import dense_packed
from treadle.optimize.dense import panel_width
from treadle.target.base import Target
from treadle.target.llvm import spill_count
from treadle.target.parse import parse_target

MACHINES = {
    "avx512": "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4",
    "avx2": "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell",
    "neon": "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1",
}


def dense(rows: int, k: int, n: int, target: Target) -> tuple[Kernel, list[np.ndarray]]:
    width = panel_width(rows, n, k, "float32", target)
    example = Example(((rows, k), (-(-n // width), k, width)), {"n": n})
    inputs = inputs_of(example)
    op = OPERATORS.get("dense_packed")
    assert op is not None
    return Kernel(function_of(call_of(op, example, inputs)), target), inputs


@pytest.mark.parametrize("rows", [1, 2, 5, 13, 14, 15, 29])
@pytest.mark.parametrize("n", [5, 64, 75])
def test_any_rows_and_columns(rows: int, n: int) -> None:
    width = panel_width(rows, n, 40, "float32", native())
    check("dense_packed", (rows, 40), (-(-n // width), 40, width), n=n)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rows", [1, 3, 64, 197])
def test_sums_stay_in_registers(rows: int, machine: str) -> None:
    kernel, _ = dense(rows, 96, 192, parse_target(MACHINES[machine]))
    asm = kernel.asm()
    assert "prefetch" in asm or "prfm" in asm
    assert spill_count(asm) == 0


def test_rows_beyond_the_last_cache_are_taken_in_blocks() -> None:
    small = replace(native(), l3_bytes=64 << 10)
    kernel, (a, w) = dense(301, 96, 70, small)
    assert "split(i0, factor=" in kernel.schedule
    out = np.zeros((301, 70), np.float32)
    run(kernel.lowered, [a, w, out], env=pool_of(3, []), workspace=0)
    matrix = w.transpose(1, 0, 2).reshape(96, -1)[:, :70]
    np.testing.assert_allclose(out, a @ matrix, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "is_split"), [(640, True), (641, False), (128, False)])
def test_rows_beyond_a_core_meet_weights_that_stay_in_it(rows: int, is_split: bool) -> None:
    small = replace(native(), l2_bytes=128 << 10)
    kernel, (a, w) = dense(rows, 96, 70, small)
    assert ("split(i0.inner" in kernel.schedule) == is_split
    out = np.zeros((rows, 70), np.float32)
    run(kernel.lowered, [a, w, out], env=pool_of(3, []), workspace=0)
    matrix = w.transpose(1, 0, 2).reshape(96, -1)[:, :70]
    np.testing.assert_allclose(out, a @ matrix, rtol=1e-5, atol=1e-5)


def test_rows_known_at_run_time_have_tiles_of_constant_size() -> None:
    target = native()
    rows, width = Symbol("rows"), 2 * target.lanes()
    a = Var("a", TensorType((2, rows, 40), "float32"))
    w = Var("w", TensorType((2, 40, width), "float32"))
    kernel = Kernel(function_of(dense_packed(a, w, n=2 * width)), target)
    assert spill_count(kernel.asm()) == 0
    rng = np.random.default_rng(0)
    panels = rng.standard_normal((2, 40, width), np.float32)
    for count in (1, 3, 8, 17, 31):
        x = rng.standard_normal((2, count, 40), np.float32)
        out = np.zeros((2, count, 2 * width), np.float32)
        assert run(kernel.lowered, [x, panels, out], [count], env=pool_of(3, [])) == 0
        expected = x @ panels.transpose(1, 0, 2).reshape(40, -1)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 1), (3, 5, 1), (9, 4), (2, 3, 3), (5, 7), (1, 1)])
def test_matrices_of_few_rows_share_tiles(shape: tuple[int, ...]) -> None:
    kernel = check("dense_packed", (*shape, 40), (3, 40, 2 * native().lanes()), n=70)
    assert (".fuse(i0, i1" in kernel.schedule) == (shape != (1, 1))
