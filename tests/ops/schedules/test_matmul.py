# SPDX-License-Identifier: Apache-2.0
"""Schedules of products: remainders, blocks of rows, tiles that fit the registers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.ops.test_operators import call_of, function_of, inputs_of
from tests.target.kernel import native, pool_of, run
from tests.targets import MACHINES, with_caches
from treadle.build.kernel import Kernel
from treadle.expr.nodes import Var as Symbol
from treadle.graph.nodes import Var
from treadle.graph.operator import OPERATORS, Example
from treadle.graph.types import TensorType
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.optimize.methods.product import panel_width
from treadle.target.base import Target
from treadle.target.llvm import spill_count
from treadle.target.parse import parse_target
from treadle.te.knobs import Config


def dense(rows: int, k: int, n: int, target: Target) -> tuple[Kernel, list[np.ndarray]]:
    width = panel_width(rows, n, k, "float32", target)
    example = Example(((rows, k), (-(-n // width), k, width)), {"n": n})
    inputs = inputs_of(example)
    op = OPERATORS.get("dense_packed")
    assert op is not None
    return Kernel(function_of(call_of(op, example, inputs)), target), inputs


def assert_multiplies(rows: int, k: int, n: int, target: Target) -> None:
    """Run a product of this machine with the caches of `target` in its schedule.

    Sums may be in error by some roundings of their terms' magnitudes.
    """
    kernel, (a, w) = dense(rows, k, n, target)
    out = np.zeros((rows, n), np.float32)
    run(kernel.lowered, [a, w, out], env=pool_of(3, []), workspace=kernel.workspace())
    matrix = w.transpose(1, 0, 2).reshape(k, -1)[:, :n].astype(np.float64)
    exact, magnitude = a @ matrix, np.abs(a) @ np.abs(matrix)
    assert np.all(np.abs(out - exact) <= 4 * np.finfo(np.float32).eps * magnitude)


@pytest.mark.parametrize("rows", [1, 2, 5, 13, 14, 15, 29])
@pytest.mark.parametrize("n", [5, 64, 75])
def test_any_rows_and_columns(rows: int, n: int) -> None:
    width = panel_width(rows, n, 40, "float32", native())
    check("dense_packed", (rows, 40), (-(-n // width), 40, width), n=n)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rows", [1, 3, 64, 197])
def test_sums_stay_in_registers(rows: int, machine: str) -> None:
    kernel, _ = dense(rows, 96, 192, MACHINES[machine])
    asm = kernel.asm()
    if rows != 3:  # of so many it depends on the machine
        assert ("prefetch" in asm or "prfm" in asm) == (rows > 3)
    assert spill_count(asm) == 0


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("rows", "steps", "is_fetched"), [(1, 96, 0), (1, 4000, 0), (20, 96, 1)])
def test_weights_that_are_a_stream_are_not_fetched_ahead(
    machine: str, rows: int, steps: int, is_fetched: int
) -> None:
    """Of panels that several tiles read the next one is fetched, by steps only whole lines."""
    kernel, _ = dense(rows, steps, 400, MACHINES[machine])
    are_lines = MACHINES[machine].vector_bytes >= MACHINES[machine].machine.line_bytes
    assert kernel.schedule.count("prefetch(") == (is_fetched and are_lines)
    assert kernel.schedule.count("prefetch_panel(") == is_fetched
    assert "fetch_weights" in {knob.name for knob in kernel.knobs}  # tuning may find otherwise


@pytest.mark.parametrize("machine", MACHINES)
def test_rows_beyond_the_last_cache_are_taken_in_blocks(machine: str) -> None:
    small = {"l3": 64 << 10}
    kernel, _ = dense(301, 96, 70, with_caches(MACHINES[machine], **small))
    assert "split(m, factor=" in kernel.schedule
    assert_multiplies(301, 96, 70, with_caches(native(), **small))


SMALL = {"l2": 192 << 10, "l3": 32 << 20}


def value_of(kernel: Kernel, knob: str) -> object:
    return next(k.value for k in kernel.knobs if k.name == knob)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("rows", "is_first"), [(640, True), (641, True), (128, False)])
def test_rows_beyond_a_core_meet_weights_that_stay_in_it(
    rows: int, is_first: bool, machine: str
) -> None:
    kernel, _ = dense(rows, 96, 70, with_caches(MACHINES[machine], **SMALL))
    assert value_of(kernel, "rows_first") == is_first
    assert ("prefetch_panel(" in kernel.schedule) != is_first  # of what stays nothing is fetched
    assert_multiplies(rows, 96, 70, with_caches(native(), **SMALL))


@pytest.mark.parametrize("machine", MACHINES)
def test_rows_too_long_for_any_cache_are_blocks_of_a_tile(machine: str) -> None:
    tiny = {"l2": 4 << 10, "l3": 8 << 10}
    kernel, _ = dense(61, 1200, 48, with_caches(MACHINES[machine], **tiny))
    assert value_of(kernel, "block") is not None
    assert_multiplies(61, 1200, 48, with_caches(native(), **tiny))


def block_of(rows: int, k: int, n: int, cpu: str) -> int | None:
    """Return the rows of a block on a CPU whose cores have 1 MB of level 2; None: of all."""
    target = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu} -caches=32K,1M,32M")
    kernel, _ = dense(rows, k, n, target)
    return next((int(str(x.value)) for x in kernel.knobs if x.name == "block"), None)


def test_rows_that_would_wait_for_level_3_are_blocks_that_stay_in_level_2() -> None:
    assert block_of(1024, 768, 192, "znver5") is None  # its level 3 keeps up
    block = block_of(1024, 768, 192, "cascadelake")
    assert block is not None
    assert 100 < block < (1 << 20) // (768 * 4)
    assert block_of(1024, 2048, 192, "cascadelake") is None  # level 2 holds too few tiles
    assert block_of(128, 768, 192, "cascadelake") is None  # it holds all rows


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rows", [640, 641, 655])
def test_blocks_of_whole_tiles_leave_one_remainder(rows: int, machine: str) -> None:
    kernel, _ = dense(rows, 96, 768, with_caches(MACHINES[machine], **SMALL))
    assert value_of(kernel, "rows_first") is False
    assert "split(m_inner" in kernel.schedule
    assert "unrolled(max(" not in kernel.loop_text()  # the rows of any tile are known
    assert_multiplies(rows, 96, 768, with_caches(native(), **SMALL))


def open_rows(target: Target) -> Kernel:
    """Return a product of rows whose number each run decides, by two panels."""
    rows, width = Symbol("rows"), 2 * target.lanes()
    a = Var("a", TensorType((2, rows, 40), "float32"))
    w = Var("w", TensorType((2, 40, width), "float32"))
    return Kernel(function_of(dense_packed(a, w, n=2 * width)), target)


@pytest.mark.parametrize("machine", MACHINES)
def test_sums_of_rows_known_at_run_time_stay_in_registers(machine: str) -> None:
    assert spill_count(open_rows(MACHINES[machine]).asm()) == 0


def test_rows_known_at_run_time_have_tiles_of_constant_size() -> None:
    kernel, width = open_rows(native()), 2 * native().lanes()
    rng = np.random.default_rng(0)
    panels = rng.standard_normal((2, 40, width), np.float32)
    for count in (1, 3, 8, 17, 31):
        x = rng.standard_normal((2, count, 40), np.float32)
        out = np.zeros((2, count, 2 * width), np.float32)
        run(kernel.lowered, [x, panels, out], [count], env=pool_of(3, []))
        expected = x @ panels.transpose(1, 0, 2).reshape(40, -1)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


FEW_ROWS = [(8, 1), (3, 5, 1), (2, 3, 3), (1, 1)]
MORE_ROWS = [(9, 4), (5, 7)]  # a tile of AVX2's 16 registers has 4 rows: it needs no others


@pytest.mark.parametrize(
    ("machine", "shape"),
    [
        *((m, s) for m in MACHINES for s in FEW_ROWS),
        *((m, s) for m in ("avx512", "neon") for s in MORE_ROWS),
    ],
)
def test_matrices_of_few_rows_share_tiles(shape: tuple[int, ...], machine: str) -> None:
    def operands(target: Target) -> tuple[tuple[int, ...], ...]:
        width = 2 * target.lanes()
        return (*shape, 40), (-(-70 // width), 40, width)

    check("dense_packed", *operands(native()), n=70)
    target = MACHINES[machine]
    kernel = kernel_of(target, "dense_packed", *operands(target), n=70)
    assert ('name="row")' in kernel.schedule) == (shape != (1, 1))


CASCADE_LAKE = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake")


def test_rows_that_evict_each_other_are_copied_where_that_pays() -> None:
    """Rows of 12 KB begin at one place of a page, of 3 KB at four, of 6 KB at two."""
    copied = {
        (rows, steps): "storage_align" in dense(rows, steps, 768, CASCADE_LAKE)[0].schedule
        for rows in (1, 4, 197)
        for steps in (768, 1536, 3072, 3088)
    }
    assert [key for key, is_copied in copied.items() if is_copied] == [(197, 3072)]
    kernel, _ = dense(197, 3072, 768, CASCADE_LAKE)
    assert "float32[197, 3072] = alloc(workspace, strides=[3088, 1])" in str(kernel.loops)
    assert "copy_rows" in {knob.name for knob in kernel.knobs}
    zen = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5")
    assert "storage_align" not in dense(197, 3072, 768, zen)[0].schedule


@pytest.mark.parametrize(("rows", "steps", "columns"), [(23, 1024, 70), (64, 2048, 33)])
def test_copied_rows_give_the_same(rows: int, steps: int, columns: int) -> None:
    plain, (a, w) = dense(rows, steps, columns, native())
    kernel = Kernel(plain.function, native(), Config.of({"copy_rows": True}))
    assert "storage_align" in kernel.schedule
    out = np.zeros((rows, columns), np.float32)
    run(kernel.lowered, [a, w, out], env=pool_of(3, []), workspace=kernel.workspace())
    matrix = w.transpose(1, 0, 2).reshape(steps, -1)[:, :columns]
    np.testing.assert_allclose(out, a @ matrix, rtol=1e-4, atol=1e-3)
