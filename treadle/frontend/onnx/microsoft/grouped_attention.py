# SPDX-License-Identifier: Apache-2.0
"""The converter of GroupQueryAttention: several query heads share a head of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.expr.nodes import convert, maximum
from treadle.frontend.builders.attention import join_heads, rotated, split_heads
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    cut_columns,
    dims_of,
    element_type,
    known_width,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.movement import taken
from treadle.frontend.onnx.microsoft.transformer import DOMAIN
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.symbolic import size_values, sizes_node
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, as_dim, normal_size
from treadle.ops import elementwise, indexing, matmul, movement, norm, sizes

_REFUSED = ("k_quant_type", "v_quant_type", "kv_cache_bit_width", "sliding_window_cache")


@dataclass(frozen=True, slots=True)
class _Times:
    """Where the steps of a call stand: `past[b]` steps went before, of `total` in all.

    `past` is int64[batch, 1], a constant where it follows from the shapes.
    """

    past: Node
    steps: Dim
    total: Dim

    def positions(self) -> Node:
        """Return int64[batch, steps]: the position of every query."""
        return elementwise.add(self.past, _row(self.steps))


def _row(size: Dim) -> Node:
    """Return int64[1, size]: 0, 1, 2, ..."""
    return reshaped(counted(size), (1, size))


def _number(value: Dim) -> Node:
    """Return a size as an int64 scalar."""
    return sizes_node((normal_size(value),), ())


@converter("GroupQueryAttention", since=(1,), domain=DOMAIN)
def group_query_attention(node: OnnxNode) -> list[Node]:
    """Convert causal attention over a cache of keys and values, rotated by position if asked."""
    _refuse(node)
    q, k, v = _heads(node)
    times = _times(node, dims_of(q)[2], dims_of(k)[2])
    if node.flag("do_rotary"):
        q, k = (_rotated(node, x, times) for x in (q, k))
    keys, values = (_present(node, x, 3 + i, times) for i, x in enumerate((k, v)))
    weights = _weights(node, q, keys, times)
    batch, heads, steps, _ = dims_of(q)
    _, shared, total, size = dims_of(values)
    grouped = reshaped(weights, (batch, shared, heads // shared * steps, total))
    mixed = reshaped(matmul.matmul(grouped, values), (batch, heads, steps, size))
    return [join_heads(mixed), keys, values]


def _refuse(node: OnnxNode) -> None:
    node.without_effect("qk_norm_epsilon")
    for name in _REFUSED:
        given = node.attributes.get(name)
        node.read.add(name)
        if given is not None and (given.i or given.s not in (b"", b"NONE")):
            raise ModelError(f"GroupQueryAttention with {name} is not supported")
    if node.integer("qk_output", 0) or node.wants(3):
        raise ModelError("GroupQueryAttention that returns its scores is not supported")
    extra = [k for k in range(12, 16) if node.has_input(k)]
    if extra:
        raise ModelError(f"the input {extra[0]} of GroupQueryAttention is not supported")


def _heads(node: OnnxNode) -> tuple[Node, Node, Node]:
    """Return queries, keys and values as [batch, heads, steps, size]; they may lie side by side."""
    heads, shared = node.integer("num_heads"), node.integer("kv_num_heads")
    if heads < 1 or shared < 1 or heads % shared or node.type(0).ndim != 3:
        raise ModelError(f"{shared} heads of keys do not fit {heads} of queries {node.type(0)}")
    q = node.input(0)
    if node.has_input(1):
        k, v = node.input(1), node.input(2)
    else:
        width = known_width(q)
        size = width // (heads + 2 * shared)
        ends = [0, heads * size, (heads + shared) * size, width]
        q, k, v = (cut_columns(q, a, b) for a, b in pairwise(ends))
    return split_heads(q, heads), split_heads(k, shared), split_heads(v, shared)


def _times(node: OnnxNode, steps: Dim, fresh: Dim) -> _Times:
    total = _total(node)
    batch = node.dims(0)[0]
    if isinstance(fresh, int) and isinstance(steps, int) and fresh != steps:
        raise ModelError(f"GroupQueryAttention of {steps} queries and {fresh} new keys")
    if total == steps:
        return _Times(broadcast(Constant.of(np.zeros((1, 1), "int64")), (batch, 1)), steps, total)
    if batch == 1:
        return _Times(reshaped(_number(total - steps), (1, 1)), steps, total)
    last = reshaped(converted(node.input(5), "int64"), (batch, 1))
    past: Node = elementwise.add(last, _number(1 - steps))
    if not (isinstance(steps, int) and isinstance(total, int)):
        # A first call may leave room at the end of a row: nothing went before it all the same.
        past = elementwise.maximum(past, Constant.of(0))
    return _Times(past, steps, total)


def _total(node: OnnxNode) -> Dim:
    """Return how many steps there are in all, a size of its own where a run computes it."""
    if isinstance(node.input(6), Constant) or size_values(node.input(6)) is not None:
        return node.sizes(6, "total sequence length")[0]
    return node.measure(converted(reshaped(node.input(6), ()), "int64"))


def _rotated(node: OnnxNode, x: Node, times: _Times) -> Node:
    batch, _, steps, _ = dims_of(x)
    positions = node.optional(9) or times.positions()
    tables: list[Node] = []
    for k in (7, 8):
        rows = taken(node.input(k), positions, 0, node.op)
        half = dims_of(rows)[-1]
        rows = broadcast(rows, (batch, steps, half))
        tables.append(reshaped(rows, (batch, 1, steps, half)))
    return rotated(
        x, tables[0], tables[1], 2 * known_width(node.input(7)), node.flag("rotary_interleaved")
    )


def _present(node: OnnxNode, fresh: Node, index: int, times: _Times) -> Node:
    """Return the cache with the new steps in it, [batch, heads, steps in all, size].

    A cache with more room than that keeps its size; what is not in use yet is 0.
    """
    if not node.has_input(index) or node.dims(index)[2] == 0:
        return fresh
    past = node.input(index)
    batch, heads, room, size = dims_of(past)
    both: Node = movement.concat(past, fresh, axis=2)
    if batch == 1 and room + times.steps == times.total:
        return both
    extent = as_dim(maximum(convert(room), convert(times.total)))
    places = _row(extent)
    is_old = elementwise.less(places, times.past)
    new = elementwise.subtract(elementwise.add(places, _number(room)), times.past)
    source: Node = elementwise.where(is_old, places, new)
    source = elementwise.minimum(source, _number(room + times.steps - 1))
    shape = (batch, heads, extent, size)
    spread = broadcast(reshaped(source, (dims_of(source)[0], 1, extent, 1)), shape)
    kept = indexing.gather_elements(both, spread, axis=2)
    end = elementwise.add(times.past, _number(times.steps))
    is_used: Node = elementwise.less(places, end)
    is_used = reshaped(is_used, (dims_of(is_used)[0], 1, extent, 1))
    return elementwise.where(is_used, kept, scalar_like(0, kept))


def _weights(node: OnnxNode, q: Node, keys: Node, times: _Times) -> Node:
    """Return the share of every key in every query's result, [batch, heads, steps, keys]."""
    (batch, heads, steps, _), size = dims_of(q), known_width(q)
    shared, total = dims_of(keys)[1:3]
    grouped = reshaped(q, (batch, shared, heads // shared * steps, size))
    scores: Node = matmul.matmul(grouped, transposed(keys, (0, 1, 3, 2)))
    scores = reshaped(scores, (batch, heads, steps, total))
    scale = node.number("scale", 0.0) or 1.0 / sqrt(size)
    scores = elementwise.multiply(scores, scalar_like(scale, scores))
    cap = node.number("softcap", 0.0)
    if cap > 0:
        bent = elementwise.tanh(elementwise.divide(scores, scalar_like(cap, scores)))
        scores = elementwise.multiply(bent, scalar_like(cap, scores))
    if node.has_input(10):
        scores = elementwise.add(scores, _cut_bias(node, total))
    scores = _masked(node, scores, times)
    return _shares(node, scores)


def _cut_bias(node: OnnxNode, total: Dim) -> Node:
    """Return the bias [batch, heads, steps, >= keys] with as many keys as there are."""
    width = node.dims(10)[3]
    bias = node.input(10)
    if not isinstance(width, int) or not isinstance(total, int):
        return (
            bias  # one mask for all keys; where a dynamic size says something else, the sum fails
        )
    if width > total:
        return cut_columns(bias, 0, total)
    if width < total:
        return movement.pad(bias, before=(0, 0, 0, 0), after=(0, 0, 0, total - width))
    return bias


def _masked(node: OnnxNode, scores: Node, times: _Times) -> Node:
    """Put the smallest number where a key comes after its query, or too long before it."""
    steps, total = dims_of(scores)[2:]
    keys = reshaped(counted(total), (1, 1, 1, total))
    at = reshaped(times.positions(), (dims_of(times.past)[0], 1, steps, 1))
    window = node.integer("local_window_size", -1)
    if not node.flag("causal", True):
        raise ModelError("GroupQueryAttention that is not causal is not supported")
    seen: Node = elementwise.less_equal(keys, at)
    if window > 0:
        first = elementwise.subtract(at, Constant.of(window, "int64"))
        seen = elementwise.logical_and(seen, elementwise.greater(keys, first))
    dtype = element_type(scores)
    lowest = float(np.finfo(to_numpy(dtype)).min) if dtype != "bfloat16" else -3e38
    return elementwise.where(seen, scores, scalar_like(lowest, scores))


def _shares(node: OnnxNode, scores: Node) -> Node:
    """Return the softmax, in which a further score (a sink, or 0) may take a share of its own."""
    batch, heads, steps, total = dims_of(scores)
    smooth = node.integer("smooth_softmax", 0) > 0
    if not node.has_input(11) and not smooth:
        return norm.softmax(scores, axis=3)
    sink = node.optional(11) or broadcast(scalar_like(0, scores), (heads,))
    sink = reshaped(sink, (1, heads, 1, 1))
    wide = movement.concat(scores, broadcast(sink, (batch, heads, steps, 1)), axis=3)
    shares = norm.softmax(wide, axis=3)
    return sizes.dynamic_slice(shares, begin=(0,), sizes=(total,), strides=(1,), axes=(3,))
