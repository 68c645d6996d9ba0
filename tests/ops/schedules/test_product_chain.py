# SPDX-License-Identifier: Apache-2.0
"""Products of one kernel: a block of rows goes through all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.optimize.cases import function, inputs_of, var
from tests.target.kernel import native, pool_of, run
from treadle.build.kernel import Kernel
from treadle.cost.chains import passing_cycles
from treadle.graph import interpret
from treadle.graph.nodes import Function, Node
from treadle.ops.activation import gelu
from treadle.ops.elementwise import add, relu
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.schedules.product_chain import ChainedProduct, chain_cycles
from treadle.optimize.methods.product import panel_width
from treadle.target.base import Target
from treadle.target.llvm import spill_count
from treadle.target.parse import parse_target
from treadle.te.choice import Choice
from treadle.te.knobs import DEFAULTS, Config

CASCADE_LAKE = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake")
HASWELL = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
A78 = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a78")
CPUS = pytest.mark.parametrize("target", [CASCADE_LAKE, HASWELL, A78], ids=lambda t: t.cpu)


def chain(rows: int, sizes: Sequence[int], target: Target, choice: Choice = DEFAULTS) -> Kernel:
    """Return the kernel of products of these depths: a GELU after the first, then ReLUs."""
    x = var("x", rows, sizes[0])
    y: Node = x
    names = [x]
    for k, (steps, columns) in enumerate(pairwise(sizes)):
        width = panel_width(rows, columns, steps, "float32", target)
        w = var(f"w{k}", -(-columns // width), steps, width)
        b = var(f"b{k}", columns)
        names += [w, b]
        y = add(dense_packed(y, w, n=columns), b)
        y = y if k == len(sizes) - 2 else relu(y) if k else gelu(y)
    f = function(y, params=names)
    return Kernel(Function(f.params, f.body, "chain", {"primitive": True}), target, choice)


def assert_same(kernel: Kernel) -> None:
    """Run a kernel of this machine and hold its result against the references of its calls."""
    f = kernel.function
    inputs = inputs_of(f)
    (expected,) = interpret.run(f, inputs)
    out = np.zeros(expected.shape, np.float32)
    run(kernel.lowered, [*inputs.values(), out], env=pool_of(3, []), workspace=kernel.workspace())
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("rows", [1, 13, 100, 197])
@pytest.mark.parametrize("sizes", [(24, 96, 40), (7, 33, 50, 19), (64, 256, 256, 64, 3)])
def test_rows_go_through_all_products(rows: int, sizes: tuple[int, ...]) -> None:
    target = replace(native(), cores=1)
    assert_same(chain(rows, sizes, target))
    assert_same(chain(rows, sizes, target, Config.of({"product1.rows_first": False})))


def test_blocks_that_do_not_divide_the_rows_store_what_there_is() -> None:
    target = replace(native(), cores=1)
    kernel = chain(1369, (48, 192, 48), target)
    block = next(k for k in kernel.knobs if k.name == "block")
    ragged = [b for b in block.candidates if isinstance(b, int) and 1369 % b]
    assert ragged
    assert_same(chain(1369, (48, 192, 48), target, Config.of({"block": ragged[0]})))


@CPUS
def test_values_between_the_products_are_those_of_a_block(target: Target) -> None:
    """They stand on the stack of a thread, in half of level 2; the rows are walked outside."""
    text = chain(3136, (96, 384, 96), target).loop_text()
    hidden = re.search(r"(\w+): float32\[(\d+), 384\] = alloc\(local\)", text)
    assert hidden is not None
    assert int(hidden[2]) * 384 * 4 <= target.l2_bytes // 2
    assert re.search(r"parallel\(\d+\)", text.splitlines()[1])


@CPUS
def test_tiles_of_all_products_keep_their_sums_in_registers(target: Target) -> None:
    asm = chain(112, (64, 256, 64), target).asm()
    assert spill_count(asm) == 0


def test_rows_of_a_page_lie_a_line_further_apart() -> None:
    """1024 values fill a page, and few such rows would stay in level 1 together."""
    assert "storage_align" in chain(392, (64, 1024, 64), CASCADE_LAKE).schedule
    assert "storage_align" not in chain(392, (64, 384, 64), CASCADE_LAKE).schedule


def products(*sizes: int) -> tuple[ChainedProduct, ...]:
    return tuple(ChainedProduct(steps, columns, 32, 4) for steps, columns in pairwise(sizes))


def test_weights_that_level_2_does_not_hold_cost_time_for_every_block() -> None:
    """Of the sizes of BERT the values of a block are few, and 19 MB of weights pass for each."""
    small, large = products(96, 384, 96), products(768, 3072, 768)
    alone = [
        2 * 3136 * p[0].steps * p[0].columns / 32 for p in (small, large)
    ]  # 32 products a cycle
    cycles = [chain_cycles(3136, p, CASCADE_LAKE) for p in (small, large)]
    assert cycles[0] < 1.25 * alone[0]
    assert cycles[1] > alone[1] + passing_cycles(3136 * 3072 * 4, CASCADE_LAKE)


def test_cores_share_the_blocks() -> None:
    """With as many cores as there are rows to share, blocks are smaller."""
    few, many = (replace(CASCADE_LAKE, cores=n) for n in (2, 32))
    sizes = []
    for target in (few, many):
        knobs = chain(3136, (96, 384, 96), target).knobs
        block = next(k for k in knobs if k.name == "block")
        sizes.append(int(str(block.value)))
    assert sizes[1] < sizes[0]
    assert -(-3136 // sizes[1]) % 32 == 0 or -(-3136 // sizes[1]) > 32


def test_few_blocks_are_compared_whatever_the_rows() -> None:
    target = replace(CASCADE_LAKE, cores=6)
    for rows in (3136, 1_000_003):
        block = next(k for k in chain(rows, (96, 384, 96), target).knobs if k.name == "block")
        assert 4 <= len(block.candidates) <= 200
