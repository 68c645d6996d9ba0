# SPDX-License-Identifier: Apache-2.0
"""The schedule of attention: any sizes agree, blocks stay on the stack, threads change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.schedules.compiled import check, kernel_of
from tests.target.kernel import native, pool_of, run
from tests.targets import MACHINES, with_caches
from treadle.build.compile import kernels_of
from treadle.build.kernel import Kernel
from treadle.cost.memory import rows_side_by_side
from treadle.graph.interpret import run as interpret
from treadle.graph.nodes import Function, Var
from treadle.graph.types import TensorType
from treadle.ops.attention import attend
from treadle.ops.matmul import matmul
from treadle.ops.movement import slice_
from treadle.ops.norm import softmax
from treadle.ops.reshaping import reshape, transpose
from treadle.ops.schedules.attention import block_vectors, most_scores
from treadle.optimize.pipeline import optimize
from treadle.target.parse import parse_target


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
    assert all(v * 16 * n <= most_scores(4) for v, n in zip(found, (64, 1024, 4096), strict=False))


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
    kernels, _ = kernels_of(optimize(function, zen4), zen4)
    (tile,) = [n.value for kernel in kernels for n in kernel.knobs if n.name == "score_tile"]
    assert isinstance(tile, tuple)
    assert tile[0] <= rows_side_by_side(4 * 3 * 768, zen4) == 20
