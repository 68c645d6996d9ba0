# SPDX-License-Identifier: Apache-2.0
"""Attention on GPUs: one launch, what all its threads make, and what stays in several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.gpus import CUDA, GPUS, H100, interpreted
from treadle.build.compile import compile_model
from treadle.build.kernel import Kernel
from treadle.build.launches import launches_of
from treadle.cost.gpu import AttentionTile
from treadle.expr.nodes import Const
from treadle.expr.nodes import Var as Size
from treadle.graph.nodes import Call, Constant, Function, Module, Node, Var, topological
from treadle.graph.types import TensorType
from treadle.loop import nodes as lp
from treadle.ops.attention import attend
from treadle.ops.elementwise import add, multiply, where
from treadle.ops.matmul import matmul
from treadle.ops.norm import softmax
from treadle.ops.reshaping import transpose
from treadle.optimize.pipeline import optimize
from treadle.target.base import Target
from treadle.target.parse import parse_target
from treadle.te.knobs import Config

Sizes = tuple[Any, Any, Any, Any]
"""Batches, heads, rows, keys: numbers or symbols."""


def attention(
    sizes: Sizes, depth: int, width: int, *, mask: Sequence[Any] = (), causal: bool = False
) -> Function:
    """Return attention as models write it: [batches, rows, heads, width] of its operands."""
    batches, heads, rows, keys = sizes
    params = [
        Var("q", TensorType((batches, heads, rows, depth), "float32")),
        Var("k", TensorType((batches, heads, keys, depth), "float32")),
        Var("v", TensorType((batches, heads, keys, width), "float32")),
    ]
    q, k, v = params
    scores: Node = matmul(q, transpose(k, perm=(0, 1, 3, 2)))
    scores = multiply(scores, Constant.of(np.float32(0.25)))
    if causal:
        seen = np.arange(keys) <= np.arange(rows)[:, None]
        scores = where(Constant.of(seen), scores, Constant.of(np.float32(-np.inf)))
    if mask:
        params.append(Var("m", TensorType(tuple(mask), "float32")))
        scores = add(scores, params[-1])
    made = transpose(matmul(softmax(scores, axis=3), v), perm=(0, 2, 1, 3))
    return Function(tuple(params), made, "attention")


def oracle(arrays: Sequence[np.ndarray], *, causal: bool = False) -> np.ndarray:
    """Return the attention of arrays in float64."""
    q, k, v, *mask = (a.astype(np.float64) for a in arrays)
    scores = q @ k.swapaxes(-1, -2) * 0.25
    if causal:
        seen = np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None]
        scores = np.where(seen, scores, -np.inf)
    scores = scores + mask[0] if mask else scores
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray((powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3))


def arrays_of(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    chance = np.random.default_rng(7)
    return [chance.standard_normal(s).astype(np.float32) for s in shapes]


def fused(function: Function, target: Target) -> Function:
    """Return the one function that the graph passes make of attention."""
    body = optimize(function, target).body
    (call,) = [n for n in topological([body]) if isinstance(n, Call)]
    assert isinstance(call.op, Function)
    return call.op


def by_threads(
    function: Function, arrays: Sequence[np.ndarray], expected: np.ndarray, *sizes: int
) -> np.ndarray:
    """Return what the threads of the one launch of an attention make, in the smallest tile."""
    inner = fused(function, CUDA)
    kernel = Kernel(inner, CUDA, Config.of({"tile": (16, 32, 2, 4)}))
    assert len(launches_of(kernel.lowered)) == 1
    with np.errstate(divide="ignore", invalid="ignore"):
        return interpreted(kernel.loops, operands_of(function, arrays), expected, sizes)


def operands_of(function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return what the function that the graph passes make is called with."""
    body = optimize(function, CUDA).body
    (call,) = [n for n in topological([body]) if isinstance(n, Call)]
    known: dict[Node, np.ndarray] = dict(zip(function.params, arrays, strict=True))
    return [a.value if isinstance(a, Constant) else known[a] for a in call.args]


@pytest.mark.parametrize(
    ("sizes", "depth", "width"),
    [((1, 2, 17, 37), 5, 9), ((2, 2, 8, 3), 8, 8), ((1, 2, 16, 64), 4, 32)],
)
def test_rows_meet_all_keys(sizes: Sizes, depth: int, width: int) -> None:
    b, h, rows, keys = sizes
    arrays = arrays_of((b, h, rows, depth), (b, h, keys, depth), (b, h, keys, width))
    expected = oracle(arrays)
    found = by_threads(attention(sizes, depth, width), arrays, expected.astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_scores_that_grow_from_tile_to_tile_scale_the_sums() -> None:
    arrays = arrays_of((1, 2, 8, 4), (1, 2, 70, 4), (1, 2, 70, 8))
    arrays[1] *= np.linspace(0.1, 30, 70, dtype=np.float32)[:, None]
    expected = oracle(arrays)
    found = by_threads(attention((1, 2, 8, 70), 4, 8), arrays, expected.astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_masks_may_hide_whole_tiles_and_whole_rows() -> None:
    arrays = arrays_of((1, 2, 9, 4), (1, 2, 40, 4), (1, 2, 40, 8), (1, 1, 9, 40))
    mask = arrays[3]
    mask[..., :5, :33] = -np.inf  # all of the first tile
    mask[..., 8, :] = -np.inf
    expected = oracle(arrays)
    function = attention((1, 2, 9, 40), 4, 8, mask=(1, 1, 9, 40))
    found = by_threads(function, arrays, expected.astype(np.float32))
    assert np.isnan(expected[:, 8]).all()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_hidden_keys_are_not_visited() -> None:
    arrays = arrays_of((1, 2, 40, 4), (1, 2, 40, 4), (1, 2, 40, 4))
    arrays[2][..., 32:, :] = np.inf  # the values of the second tile, which the first rows never see
    expected = oracle([*arrays[:2], np.nan_to_num(arrays[2], posinf=0)], causal=True)
    function = attention((1, 2, 40, 40), 4, 4, causal=True)
    found = by_threads(function, arrays, expected.astype(np.float32))
    np.testing.assert_allclose(found[:, :32], expected[:, :32], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "keys"), [(9, 33), (1, 4)])
def test_sizes_may_be_open(rows: int, keys: int) -> None:
    b, r, s = Size("b"), Size("r"), Size("s")
    function = attention((b, 2, r, s), 16, 8, mask=(b, 1, r, s))
    arrays = arrays_of((1, 2, rows, 16), (1, 2, keys, 16), (1, 2, keys, 8), (1, 1, rows, keys))
    expected = oracle(arrays)
    kernel = Kernel(fused(function, CUDA), CUDA, Config.of({"tile": (16, 32, 2, 4)}))
    known = {"b": 1, "r": rows, "s": keys}
    sizes = [known[v.name] for v in kernel.loops.sizes]
    found = interpreted(
        kernel.loops, operands_of(function, arrays), expected.astype(np.float32), sizes
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_without_any_key_are_zero() -> None:
    scores, values = (Var(n, TensorType((0, 4), "float32")) for n in ("x", "v"))
    function = Function((scores, values), attend(scores, values), "attention")
    empty, expected = np.zeros((0, 4), np.float32), np.zeros((4, 4), np.float32)
    with np.errstate(divide="ignore"):
        found = interpreted(Kernel(function, H100).loops, [empty, empty], expected + 7)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("kind", "depth", "width"),
    [("cuda", 64, 64), ("cuda", 20, 48), ("opencl", 20, 48), ("opencl", 64, 8)],
)
def test_one_launch_keeps_what_its_tile_says_in_shared_memory(
    kind: str, depth: int, width: int
) -> None:
    target = GPUS[kind]
    kernel = Kernel(fused(attention((1, 12, 197, 197), depth, width), target), target)
    (launch,) = launches_of(kernel.lowered)
    (tile,) = (k.value for k in kernel.knobs if k.name == "tile")
    chosen = AttentionTile(*tile)  # type: ignore[misc]  # four numbers
    assert launch.block == (chosen.threads, 1, 1)
    assert launch.grid == (12 * -(-197 // chosen.rows), 1, 1)
    held = [
        x.buffer
        for x in lp.walk_stmts(kernel.lowered.body)
        if isinstance(x, lp.Allocate) and x.buffer.scope == "shared"
    ]
    sizes = [d.value for b in held for d in b.shape if isinstance(d, Const)]
    assert len(sizes) == len(held)
    assert sum(map(int, sizes)) * 4 <= chosen.shared_bytes(depth, width)


@pytest.mark.parametrize("depth", [256, 1000])
def test_heads_too_wide_for_a_block_stay_apart(depth: int) -> None:
    body = optimize(attention((1, 2, 64, 64), depth, depth), H100).body
    names = [n.op.name for n in topological([body]) if isinstance(n, Call)]
    assert not any("attend" in n for n in names)
    assert any("softmax" in n for n in names)


def test_few_rows_stay_apart() -> None:
    body = optimize(attention((1, 2, 1, 64), 16, 16), H100).body
    assert not any("attend" in n.op.name for n in topological([body]) if isinstance(n, Call))


def test_other_element_types_have_a_launch_for_each_stage() -> None:
    scores, values = (Var(n, TensorType((20, 24), "float64")) for n in ("x", "v"))
    kernel = Kernel(Function((scores, values), attend(scores, values), "attention"), H100)
    assert len(launches_of(kernel.lowered)) > 1


@pytest.mark.opencl
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("sizes", "depth", "width"),
    [((2, 3, 33, 70), 16, 24), ((1, 2, 100, 100), 64, 64), ((1, 1, 65, 31), 7, 80)],
)
def test_devices_make_the_same(sizes: Sizes, depth: int, width: int, *, causal: bool) -> None:
    b, h, rows, keys = sizes
    function = attention(sizes, depth, width, causal=causal)
    arrays = arrays_of((b, h, rows, depth), (b, h, keys, depth), (b, h, keys, width))
    model = compile_model(Module(function, ("y",)), target=parse_target("opencl"))
    inputs = {p.name: a for p, a in zip(function.params, arrays, strict=True)}
    (found,) = model.run(inputs)
    np.testing.assert_allclose(found.numpy(), oracle(arrays, causal=causal), rtol=1e-4, atol=1e-5)
