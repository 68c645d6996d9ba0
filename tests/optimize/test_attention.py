# SPDX-License-Identifier: Apache-2.0
"""Attention as models write it becomes one call, means the same, and stays where it must."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.optimize.cases import assert_same, constant, function, var
from treadle.build.compile import compile_model
from treadle.frontend.builders.einsum import einsum
from treadle.graph.interpret import run
from treadle.graph.nodes import Call, Constant, Function, Module, Node, topological
from treadle.ops.elementwise import add, divide, exp, isnan, multiply, tanh, where
from treadle.ops.indexing import gather
from treadle.ops.matmul import matmul
from treadle.ops.movement import slice_
from treadle.ops.norm import softmax
from treadle.ops.reshaping import broadcast_to, reshape, transpose
from treadle.optimize.attention import fuse_attention
from treadle.optimize.canonicalize import canonicalize
from treadle.target.base import Target

TARGET = Target("llvm", vector_bits=256, vector_registers=16, cores=2)
HEADS, ROWS, KEYS, DEPTH = 2, 21, 19, 8

q = var("q", 1, ROWS, HEADS, DEPTH)
k = var("k", 1, KEYS, HEADS, DEPTH)
v = var("v", 1, KEYS, HEADS, DEPTH)


def _number(value: float) -> Constant:
    return Constant.of(np.float32(value))


def _same(scores: Node) -> Node:
    return scores


def _attention(scored: Callable[[Node], Node] = _same, *more: Node) -> Function:
    queries, values = transpose(q, perm=(0, 2, 1, 3)), transpose(v, perm=(0, 2, 1, 3))
    scores = scored(matmul(queries, transpose(k, perm=(0, 2, 3, 1))))
    context = matmul(softmax(scores, axis=3), values)
    params = [q, k, v, *(m for m in more if not isinstance(m, Constant))]
    return function(transpose(context, perm=(0, 2, 1, 3)), params=params)  # type: ignore[arg-type]


def _masked(mask: Node) -> Function:
    return _attention(lambda s: add(divide(s, _number(3.0)), mask), mask)


def _masked_by_window(mask: Node) -> Function:
    """Windows of one image are a batch, and have an axis of their own where they are masked."""

    def scored(scores: Node) -> Node:
        apart = reshape(multiply(scores, _number(0.3)), shape=(1, 1, HEADS, ROWS, KEYS))
        return reshape(add(apart, mask), shape=(1, HEADS, ROWS, KEYS))

    return _attention(scored, mask)


def _scaled_queries() -> Function:
    queries = multiply(transpose(q, perm=(0, 2, 1, 3)), _number(0.3))
    keys, values = transpose(k, perm=(0, 2, 1, 3)), transpose(v, perm=(0, 2, 1, 3))
    scores = matmul(queries, transpose(keys, perm=(0, 1, 3, 2)))
    return function(matmul(softmax(scores, axis=3), values), params=[q, k, v])


def _joined_projections() -> Function:
    x = var("x", 1, 24, 3, HEADS, DEPTH)
    parts = [
        transpose(gather(x, Constant.of(np.int64(i)), axis=2), perm=(0, 2, 1, 3)) for i in range(3)
    ]
    scores = matmul(parts[0], transpose(parts[1], perm=(0, 1, 3, 2)))
    context = matmul(softmax(scores, axis=3), parts[2])
    return function(transpose(context, perm=(0, 2, 1, 3)), params=[x])


def _sliced_projections() -> Function:
    x = var("x", 24, 3 * HEADS * DEPTH)
    width = HEADS * DEPTH
    parts = [
        reshape(
            slice_(x, begin=(i * width,), end=((i + 1) * width,), axes=(1,)), shape=(24, HEADS, -1)
        )
        for i in range(3)
    ]
    moved = [transpose(p, perm=(1, 0, 2)) for p in parts]
    scores = matmul(moved[0], transpose(moved[1], perm=(0, 2, 1)))
    context = matmul(softmax(scores, axis=2), moved[2])
    return function(transpose(context, perm=(1, 0, 2)), params=[x])


def _shared_keys() -> Function:
    shared = [var(n, 1, 2, KEYS, DEPTH) for n in ("k", "v")]
    queries = var("q", 1, 6, ROWS, DEPTH)
    wide = [
        reshape(
            broadcast_to(reshape(x, shape=(1, 2, 1, KEYS, DEPTH)), shape=(1, 2, 3, KEYS, DEPTH)),
            shape=(1, 6, KEYS, DEPTH),
        )
        for x in shared
    ]
    scores = matmul(queries, transpose(wide[0], perm=(0, 1, 3, 2)))
    return function(matmul(softmax(scores, axis=3), wide[1]), params=[queries, *shared])


def _scaled_on_both_sides() -> Function:
    queries = multiply(transpose(q, perm=(0, 2, 1, 3)), _number(0.3))
    keys = multiply(transpose(k, perm=(0, 2, 3, 1)), _number(0.5))
    weights = softmax(matmul(queries, keys), axis=3)
    return function(matmul(weights, transpose(v, perm=(0, 2, 1, 3))), params=[q, k, v])


def _channels_outside() -> Function:
    a, b, c = (var(n, 2, DEPTH, 24) for n in "abc")
    weights = softmax(matmul(transpose(a, perm=(0, 2, 1)), b), axis=2)
    return function(matmul(c, transpose(weights, perm=(0, 2, 1))), params=[a, b, c])


def _channels_outside_of_all() -> Function:
    a, b, c = (var(n, 2, DEPTH, 24) for n in "abc")
    weights = softmax(matmul(transpose(a, perm=(0, 2, 1)), b), axis=2)
    context = matmul(weights, transpose(c, perm=(0, 2, 1)))
    return function(transpose(context, perm=(0, 2, 1)), params=[a, b, c])


def _merged_heads() -> Function:
    sides = [reshape(transpose(x, perm=(0, 2, 1, 3)), shape=(HEADS, -1, DEPTH)) for x in (q, k, v)]
    scores = matmul(sides[0], transpose(sides[1], perm=(0, 2, 1)))
    weights = softmax(reshape(scores, shape=(1, HEADS, ROWS, KEYS)), axis=3)
    context = matmul(reshape(weights, shape=(HEADS, ROWS, KEYS)), sides[2])
    joined = transpose(reshape(context, shape=(1, HEADS, ROWS, DEPTH)), perm=(0, 2, 1, 3))
    return function(joined, params=[q, k, v])


def _one_head() -> Function:
    a, b, c = var("a", 33, 8), var("b", 40, 8), var("c", 40, 20)
    scores = matmul(a, transpose(b, perm=(1, 0)))
    return function(matmul(softmax(scores, axis=1), c), params=[a, b, c])


def _einsum_of_one_head() -> Function:
    a, b, c = var("a", 1, 1, 33, 8), var("b", 1, 1, 40, 8), var("c", 1, 1, 40, 20)
    scores = multiply(einsum("bhlk,bhtk->bhlt", (a, b)), _number(0.3))
    context = einsum("bhlt,bhtv->bhlv", (softmax(scores, axis=3), c))
    return function(context, params=[a, b, c])


def _heads_without_a_batch() -> Function:
    """As XGLM is exported: keys and weights are one image's heads, queries and values a batch."""
    queries, values = (transpose(x, perm=(0, 2, 1, 3)) for x in (q, v))
    keys = reshape(transpose(k, perm=(0, 2, 1, 3)), shape=(HEADS, KEYS, DEPTH))
    scores = add(matmul(queries, transpose(keys, perm=(0, 2, 1))), constant(1, 1, ROWS, KEYS))
    weights = softmax(reshape(scores, shape=(HEADS, ROWS, KEYS)), axis=2)
    return function(matmul(weights, values), params=[q, k, v])


def _one_query() -> Function:
    a, b, c = var("a", 3, 1, 16), var("b", 3, 40, 16), var("c", 3, 40, 20)
    weights = softmax(matmul(a, transpose(b, perm=(0, 2, 1))), axis=2)
    return function(matmul(weights, c), params=[a, b, c])


def _rows_without_keys(replaced: float = 0.0, test: Node | None = None) -> Function:
    """As torch exports a mask of truth values: the weights of a row that sees no key are 0."""
    seen = np.random.default_rng(0).random((1, 1, ROWS, KEYS)) < 0.5
    seen[:, :, ::4] = False
    mask = Constant.of(np.where(seen, 0, -np.inf).astype(np.float32))
    scores = matmul(transpose(q, perm=(0, 2, 1, 3)), transpose(k, perm=(0, 2, 3, 1)))
    weights = softmax(add(multiply(scores, _number(0.3)), mask), axis=3)
    known = where(isnan(weights if test is None else test), _number(replaced), weights)
    return function(matmul(known, transpose(v, perm=(0, 2, 1, 3))), params=[q, k, v])


CASES: dict[str, Callable[[], Function]] = {
    "plain": _attention,
    "mask of keys": lambda: _masked(var("m", 1, 1, 1, KEYS)),
    "mask of rows and keys": lambda: _masked(var("m", 1, 1, ROWS, KEYS)),
    "mask of every head": lambda: _masked(var("m", 1, HEADS, ROWS, KEYS)),
    "constant mask": lambda: _masked(constant(ROWS, KEYS)),
    "mask vector": lambda: _masked(constant(KEYS)),
    "mask of windows": lambda: _masked_by_window(var("m", 1, 1, 1, ROWS, KEYS)),
    "constant mask of windows": lambda: _masked_by_window(constant(1, 1, 1, ROWS, KEYS)),
    "choice": lambda: _attention(
        lambda s: where(constant(1, 1, ROWS, KEYS, dtype="bool"), s, _number(-1e9))
    ),
    "bounded scores": lambda: _attention(
        lambda s: multiply(tanh(multiply(s, _number(0.1))), _number(10.0))
    ),
    "scores used twice in a step": lambda: _attention(lambda s: add(s, tanh(s))),
    "scaled queries": _scaled_queries,
    "joined projections": _joined_projections,
    "sliced projections": _sliced_projections,
    "shared keys": _shared_keys,
    "scaled on both sides": _scaled_on_both_sides,
    "channels outside": _channels_outside,
    "channels outside of all": _channels_outside_of_all,
    "merged heads": _merged_heads,
    "one head": _one_head,
    "einsum of one head": _einsum_of_one_head,
    "heads without a batch": _heads_without_a_batch,
    "one query": _one_query,
    "rows without keys": _rows_without_keys,
}


def _operators(f: Function) -> list[str]:
    return [n.op.name for n in topological([f.body]) if isinstance(n, Call)]


def _kernel(f: Function) -> Function:
    """Return the one function that holds an attention."""
    called = [n.op for n in topological([f.body]) if isinstance(n, Call)]
    (found,) = [c for c in called if isinstance(c, Function) and "attend" in _operators(c)]
    return found


@pytest.mark.parametrize("name", CASES)
def test_becomes_one_call(name: str) -> None:
    before = canonicalize(CASES[name]())
    after = fuse_attention(before, TARGET)
    inside = _operators(_kernel(after))
    assert inside.count("matmul") == inside.count("attend") == 1
    left = _operators(after)
    assert not {"matmul", "softmax", "slice", "gather", "broadcast_to"} & set(left)
    assert_same(before, after, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_runs(name: str) -> None:
    before = CASES[name]()
    inputs = {
        p.name: np.random.default_rng(i).standard_normal(p.type.static_shape).astype(np.float32)  # type: ignore[union-attr]
        for i, p in enumerate(before.params)
    }
    (found,) = compile_model(Module(before, ("y",))).run(inputs)
    (wanted,) = run(before, inputs)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_moves_of_the_operands_and_of_the_result_are_inside() -> None:
    after = fuse_attention(canonicalize(_attention()), TARGET)
    assert isinstance(after.body, Call)
    assert after.body.args == (k, q, v)
    assert _operators(_kernel(after)).count("transpose") == 4


def test_what_others_use_stays_outside() -> None:
    keys = transpose(k, perm=(0, 2, 1, 3))
    scores = matmul(transpose(q, perm=(0, 2, 1, 3)), transpose(keys, perm=(0, 1, 3, 2)))
    context = matmul(softmax(scores, axis=3), transpose(v, perm=(0, 2, 1, 3)))
    before = canonicalize(function(context, exp(keys), params=[q, k, v]))
    after = fuse_attention(before, TARGET)
    assert "transpose" in _operators(after)
    assert_same(before, after, rtol=1e-5)


def _weights_used_twice() -> Function:
    a, b = var("a", 2, ROWS, 8), var("b", 2, 8, KEYS)
    weights = softmax(matmul(a, b), axis=2)
    return function(matmul(weights, var("c", 2, KEYS, 8)), exp(weights), params=[a, b])


def _product_used_twice() -> Function:
    a, b = var("a", 2, ROWS, 8), var("b", 2, 8, KEYS)
    scores = matmul(a, b)
    weights = softmax(multiply(scores, _number(2.0)), axis=2)
    return function(matmul(weights, var("c", 2, KEYS, 8)), exp(scores), params=[a, b])


def _scores_of(*shape: int, axis: int = 2) -> Function:
    a, c = var("a", *shape), var("c", shape[0], shape[2], 8)
    return function(matmul(softmax(a, axis=axis), c), params=[a, c])


def _few_rows() -> Function:
    a, b = var("a", 2, 1, 8), var("b", 2, 8, KEYS)
    weights = softmax(matmul(a, b), axis=2)
    return function(matmul(weights, var("c", 2, KEYS, 8)), params=[a, b])


UNCHANGED: dict[str, Callable[[], Function]] = {
    "weights that become 1": lambda: _rows_without_keys(1.0),
    "weights chosen by others": lambda: _rows_without_keys(test=constant(1, HEADS, ROWS, KEYS)),
    "weights that are a result": _weights_used_twice,
    "scores that are a result": _product_used_twice,
    "scores from outside": lambda: _scores_of(2, ROWS, KEYS),
    "a softmax of rows": lambda: _scores_of(2, KEYS, KEYS, axis=1),
    "one query of keys that lie apart": _few_rows,
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    before = UNCHANGED[name]()
    assert fuse_attention(before, TARGET) is before


def test_rows_too_long_to_be_kept_stay_apart() -> None:
    a, b, c = var("a", 1, 64, 8), var("b", 1, 8, 9000), var("c", 1, 9000, 8)
    before = function(matmul(softmax(matmul(a, b), axis=2), c), params=[a, b, c])
    assert fuse_attention(before, TARGET) is before
