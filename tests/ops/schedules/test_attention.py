# SPDX-License-Identifier: Apache-2.0
"""The schedule of attention: any sizes agree, blocks stay on the stack, threads change nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.target.kernel import native, pool_of, run
from tests.targets import MACHINES, with_caches
from treadle.build.compile import compile_model, kernels_of
from treadle.build.kernel import Kernel
from treadle.cost.attention import block_vectors, most_scores
from treadle.cost.memory import rows_side_by_side
from treadle.graph.interpret import run as interpret
from treadle.graph.nodes import Constant, Function, Module, Var
from treadle.graph.types import TensorType
from treadle.ops.attention import attend
from treadle.ops.elementwise import where
from treadle.ops.matmul import matmul
from treadle.ops.movement import slice_
from treadle.ops.norm import softmax
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize.pipeline import optimize
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.knobs import Config


@pytest.mark.parametrize("keys", [1, 7, 8, 33, 130])
@pytest.mark.parametrize("rows", [1, 16, 37])
def test_any_sizes(keys: int, rows: int) -> None:
    check("attend", (7, keys, rows), (7, keys, 20))


@pytest.mark.parametrize("machine", MACHINES)
def test_few_heads_are_shared_out_by_blocks(machine: str) -> None:
    check("attend", (1, 64, 200), (1, 64, 16))
    text = kernel_of(MACHINES[machine], "attend", (1, 64, 200), (1, 64, 16)).loop_text()
    assert text.count("parallel(") == 1
    assert "alloc(workspace)" not in text


@pytest.mark.parametrize("machine", MACHINES)
def test_values_across_memory_are_turned_once_for_few_heads(machine: str) -> None:
    scores = Var("scores", TensorType((2, 40, 64), "float32"))
    values = Var("values", TensorType((2, 32, 40), "float32"))
    made = attend(scores, transpose(values, perm=(0, 2, 1)))
    function = Function((scores, values), made, "turned")
    text = Kernel(function, MACHINES[machine]).loop_text()
    assert "transpose: float32[2, 40, 32] = alloc(workspace)" in text
    kernel = Kernel(function, native())
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.type.static_shape).astype("f4") for v in (scores, values)]
    given = {"scores": arrays[0], "values": arrays[1]}
    (expected,) = interpret(function, given)
    result = np.zeros_like(expected)
    space = kernel.lowered.workspace_bytes
    run(kernel.lowered, [*arrays, result], env=pool_of(2, []), workspace=space)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunks", [1, 4])
def test_chunks_do_not_change_the_result(chunks: int) -> None:
    check("attend", (9, 21, 40), (9, 21, 17), chunks=chunks)


@pytest.mark.parametrize("machine", MACHINES)
def test_blocks_get_smaller_as_rows_get_longer(machine: str) -> None:
    target = with_caches(MACHINES[machine], l1=48 << 10, l2=1 << 20)
    found = [block_vectors(keys, 16, 4, target) for keys in (64, 1024, 4096, 1 << 20)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0
    assert found[-1] == 0
    most = most_scores(4, target)
    assert all(v * 16 * n <= most for v, n in zip(found, (64, 1024, 4096), strict=False))


def _attention(heads: int, rows: int, keys: int, width: int) -> Function:
    """Return queries, keys and values, all as float32[heads, n, width], to their attention."""
    sizes = {"q": rows, "k": keys, "v": keys}
    q, k, v = (Var(n, TensorType((heads, m, width), "float32")) for n, m in sizes.items())
    weights = softmax(matmul(q, transpose(k, perm=(0, 2, 1))), axis=2)
    return Function((q, k, v), matmul(weights, v), "attention")


def _fused(function: Function, target: Target) -> Kernel:
    (kernel,) = kernels_of(optimize(function, target), target)[0]
    return kernel


@pytest.mark.parametrize("machine", MACHINES)
def test_sums_of_the_largest_tiles_of_scores_stay_in_registers(machine: str) -> None:
    """A tile of one vector in a block of two took twice the registers that it says."""
    target = MACHINES[machine]
    kernel = _fused(_attention(24, 64, 180, 64), target)
    (tiles,) = [n.candidates for n in kernel.knobs if n.name == "score_tile"]
    lanes = target.vector_bits // 32
    widths = {tile[1] for tile in tiles}
    assert len(widths) > 1
    for tile in (max(t for t in tiles if t[1] == width) for width in widths):
        chosen = Kernel(kernel.function, target, Config.of({"score_tile": tile}))
        found = re.findall(
            r"matmul\.local\w*: float32\[1, (\d+), (\d+)\] = alloc", chosen.loop_text()
        )
        assert found
        for rows, columns in found:
            vectors = -(-int(columns) // lanes)
            assert int(rows) * vectors + vectors < target.vector_registers


def _side_by_side(heads: int, rows: int, depth: int, columns: int) -> Function:
    """Return attention of queries, keys and values that lie side by side for each head."""
    each = 2 * depth + columns
    x = Var("x", TensorType((rows, heads * each), "float32"))
    split = transpose(reshape(x, shape=(rows, heads, each)), perm=(1, 0, 2))
    spans = ((0, depth), (depth, 2 * depth), (2 * depth, each))
    q, k, v = (slice_(split, begin=(a,), end=(b,), axes=(2,)) for a, b in spans)
    scores = matmul(q, transpose(k, perm=(0, 2, 1)))
    weights = softmax(scores, axis=2)
    return Function((x,), matmul(weights, v), "attention")


def test_keys_are_gathered_where_level_2_does_not_hold_them_as_they_lie() -> None:
    """Rows of 784 positions are 3 kB apart: they begin at four places of a page."""
    zen3 = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3 -num-cores=2")
    gathered = _fused(_side_by_side(6, 784, 32, 64), zen3)
    assert re.search(r"float32\[1, 784, 32\] = alloc\(local\)", gathered.loop_text())
    left = _fused(_side_by_side(6, 128, 32, 64), zen3)
    assert not re.search(r"float32\[1, 128, 32\] = alloc", left.loop_text())
    chosen = [{n.name: n.value for n in kernel.knobs}["gather_keys"] for kernel in (gathered, left)]
    assert chosen == [True, False]


@pytest.mark.parametrize("rows", [40, 37])
def test_gathered_keys_make_the_same_scores(rows: int) -> None:
    function = _side_by_side(9, rows, 12, 20)
    data = np.random.default_rng(0).standard_normal((rows, 9 * 44)).astype("f4")
    (expected,) = interpret(function, {"x": data})
    kernel = Kernel(_fused(function, native()).function, native(), Config.of({"gather_keys": True}))
    assert re.search(rf"float32\[1, {rows}, 12\] = alloc\(local\)", kernel.loop_text())
    found = np.zeros_like(expected)
    run(kernel.lowered, [data, found], env=pool_of(2, []))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _causal(heads: int, rows: int, keys: int, width: int) -> Function:
    """Return attention in which a row sees the keys up to its own, counted from the last."""
    sizes = {"q": rows, "k": keys, "v": keys}
    q, k, v = (Var(n, TensorType((heads, m, width), "float32")) for n, m in sizes.items())
    seen = np.arange(keys) <= np.arange(rows)[:, None] + keys - rows
    scores = matmul(q, transpose(k, perm=(0, 2, 1)))
    scores = where(Constant.of(seen), scores, Constant.of(np.float32(-np.inf)))
    return Function((q, k, v), matmul(softmax(scores, axis=2), v), "causal")


@pytest.mark.parametrize("machine", MACHINES)
def test_keys_that_no_row_of_a_block_sees_are_left_out(machine: str) -> None:
    """Of 4 blocks of rows, the first sees a quarter of the keys; two sums and a product end so."""
    target = MACHINES[machine]
    kernel = _fused(_causal(12, 128, 128, 64), target)
    block = 2 * target.lanes()
    assert re.search(
        rf"for \w+ in range\(\(\(i1.outer \* {block}\) \+ {block}\)\)", kernel.loop_text()
    )
    assert "range(128)" not in kernel.loop_text()
    whole = Kernel(kernel.function, target, Config.of({"trim": False}))
    assert whole.loop_text().count("range(128)") >= 2


@pytest.mark.parametrize(("rows", "keys"), [(64, 64), (37, 60), (100, 100), (40, 104), (50, 47)])
def test_unseen_keys_do_not_count(rows: int, keys: int) -> None:
    function = _causal(3, rows, keys, 20)
    rng = np.random.default_rng(0)
    inputs = {
        p.name: rng.standard_normal(p.type.static_shape).astype("f4") for p in function.params
    }  # type: ignore[union-attr]
    (expected,) = interpret(function, inputs)
    (found,) = compile_model(Module(function, ("y",))).run(inputs)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_keys_of_a_tile_do_not_evict_each_other() -> None:
    """Those of queries, keys and values side by side are 9 kB apart: 20 rows fit the first cache.

    By its arithmetic alone a tile of 30 would be the best.
    """
    x = Var("x", TensorType((197, 3 * 768), "float32"))
    parts = [slice_(x, begin=(k * 768,), end=((k + 1) * 768,), axes=(1,)) for k in range(3)]
    q, k, v = (transpose(reshape(part, shape=(197, 12, 64)), perm=(1, 0, 2)) for part in parts)
    weights = softmax(matmul(q, transpose(k, perm=(0, 2, 1))), axis=2)
    function = Function((x,), matmul(weights, v), "attention")
    zen4 = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2")
    (tile,) = [n.value for n in _fused(function, zen4).knobs if n.name == "score_tile"]
    assert isinstance(tile, tuple)
    assert tile[0] <= rows_side_by_side(4 * 3 * 768, zen4) == 20
