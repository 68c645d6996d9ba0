# SPDX-License-Identifier: Apache-2.0
"""The converter of GroupQueryAttention: several query heads share a head of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.onnx.build import (
    broadcast,
    converted,
    reshaped,
    scalar_like,
    shape_of,
    transposed,
)
from treadle.frontend.onnx.microsoft import (
    DOMAIN,
    dtype_of_node,
    join_heads,
    rotated,
    split_heads,
)
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise, matmul, movement, norm

_REFUSED = ("k_quant_type", "v_quant_type", "kv_cache_bit_width", "sliding_window_cache")


@dataclass(frozen=True, slots=True)
class _Times:
    """Where the steps of a call stand: `past[b]` steps went before, of `total` in all.

    `past` is int64[batch, 1], a constant where it follows from the shapes.
    """

    past: Node
    steps: int
    total: int

    def positions(self) -> Node:
        """Return int64[batch, steps]: the position of every query."""
        return elementwise.add(self.past, Constant.of(np.arange(self.steps).reshape(1, -1)))


@converter("GroupQueryAttention", since=(1,), domain=DOMAIN)
def group_query_attention(node: OnnxNode) -> list[Node]:
    """Convert causal attention over a cache of keys and values, rotated by position if asked."""
    _refuse(node)
    q, k, v = _heads(node)
    times = _times(node, shape_of(q)[2], shape_of(k)[2])
    if node.flag("do_rotary"):
        q, k = (_turned(node, x, times) for x in (q, k))
    keys, values = (_present(node, x, 3 + i, times) for i, x in enumerate((k, v)))
    weights = _weights(node, q, keys, times)
    batch, heads, steps, _ = shape_of(q)
    shared, size = shape_of(values)[1], shape_of(values)[3]
    grouped = reshaped(weights, (batch, shared, heads // shared * steps, shape_of(values)[2]))
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
        batch, steps, width = shape_of(q)
        size = width // (heads + 2 * shared)
        ends = [0, heads * size, (heads + shared) * size, width]
        q, k, v = (
            movement.slice_(q, begin=(0, 0, a), end=(batch, steps, b)) for a, b in pairwise(ends)
        )
    return split_heads(q, heads), split_heads(k, shared), split_heads(v, shared)


def _times(node: OnnxNode, steps: int, fresh: int) -> _Times:
    total = int(node.constant_scalar(6, "total sequence length"))
    batch = node.shape(0)[0]
    if fresh != steps:
        raise ModelError(f"GroupQueryAttention of {steps} queries and {fresh} new keys")
    if total == steps:
        return _Times(Constant.of(np.zeros((batch, 1), "int64")), steps, total)
    if batch == 1:
        return _Times(Constant.of(np.full((1, 1), total - steps)), steps, total)
    last = reshaped(converted(node.input(5), "int64"), (batch, 1))
    return _Times(elementwise.add(last, Constant.of(1 - steps, "int64")), steps, total)


def _turned(node: OnnxNode, x: Node, times: _Times) -> Node:
    batch, _, steps, _ = shape_of(x)
    positions = node.optional(9) or times.positions()
    tables: list[Node] = []
    for k in (7, 8):
        rows: Node = movement.gather(node.input(k), positions, axis=0)
        rows = broadcast(rows, (batch, steps, shape_of(rows)[-1]))
        tables.append(reshaped(rows, (batch, 1, steps, shape_of(rows)[-1])))
    width = 2 * node.shape(7)[-1]
    return rotated(x, tables[0], tables[1], width, node.flag("rotary_interleaved"))


def _present(node: OnnxNode, fresh: Node, index: int, times: _Times) -> Node:
    """Return the cache with the new steps in it, [batch, heads, steps in all, size].

    A cache with more room than that keeps its size; what is not in use yet is 0.
    """
    if not node.has_input(index) or node.shape(index)[2] == 0:
        return fresh
    past = node.input(index)
    batch, heads, room, size = shape_of(past)
    both: Node = movement.concat(past, fresh, axis=2)
    if batch == 1 and room + times.steps == times.total:
        return both
    extent = max(room, times.total)
    places = np.arange(extent).reshape(1, -1)
    is_old = elementwise.less(Constant.of(places), times.past)
    new = elementwise.subtract(Constant.of(places + room), times.past)
    source = elementwise.where(is_old, Constant.of(np.minimum(places, room - 1)), new)
    source = elementwise.minimum(source, Constant.of(room + times.steps - 1))
    shape = (batch, heads, extent, size)
    spread = broadcast(reshaped(source, (shape_of(source)[0], 1, extent, 1)), shape)
    kept = movement.gather_elements(both, spread, axis=2)
    end = elementwise.add(times.past, Constant.of(times.steps, "int64"))
    is_used: Node = elementwise.less(Constant.of(places), end)
    is_used = reshaped(is_used, (shape_of(is_used)[0], 1, extent, 1))
    return elementwise.where(is_used, kept, scalar_like(0, kept))


def _weights(node: OnnxNode, q: Node, keys: Node, times: _Times) -> Node:
    """Return the share of every key in every query's result, [batch, heads, steps, keys]."""
    batch, heads, steps, size = shape_of(q)
    shared, total = shape_of(keys)[1:3]
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


def _cut_bias(node: OnnxNode, total: int) -> Node:
    """Return the bias [batch, heads, steps, >= keys] with as many keys as there are."""
    shape = node.shape(10)
    bias = node.input(10)
    if shape[3] > total:
        return movement.slice_(bias, begin=(0, 0, 0, 0), end=(*shape[:3], total))
    if shape[3] < total:
        widths = (0, 0, 0, total - shape[3])
        return movement.pad(bias, before=(0, 0, 0, 0), after=widths)
    return bias


def _masked(node: OnnxNode, scores: Node, times: _Times) -> Node:
    """Put the smallest number where a key comes after its query, or too long before it."""
    steps, total = shape_of(scores)[2:]
    keys = Constant.of(np.arange(total).reshape(1, 1, 1, total))
    at = reshaped(times.positions(), (shape_of(times.past)[0], 1, steps, 1))
    window = node.integer("local_window_size", -1)
    if not node.flag("causal", True):
        raise ModelError("GroupQueryAttention that is not causal is not supported")
    seen: Node = elementwise.less_equal(keys, at)
    if window > 0:
        first = elementwise.subtract(at, Constant.of(window, "int64"))
        seen = elementwise.logical_and(seen, elementwise.greater(keys, first))
    dtype = dtype_of_node(scores)
    lowest = float(np.finfo(to_numpy(dtype)).min) if dtype != "bfloat16" else -3e38
    return elementwise.where(seen, scores, scalar_like(lowest, scores))


def _shares(node: OnnxNode, scores: Node) -> Node:
    """Return the softmax, in which a further score (a sink, or 0) may take a share of its own."""
    batch, heads, steps, total = shape_of(scores)
    smooth = node.integer("smooth_softmax", 0) > 0
    if not node.has_input(11) and not smooth:
        return norm.softmax(scores, axis=3)
    sink: Node = Constant.of(np.zeros(heads, to_numpy(dtype_of_node(scores))))
    sink = reshaped(node.optional(11) or sink, (1, heads, 1, 1))
    wide = movement.concat(scores, broadcast(sink, (batch, heads, steps, 1)), axis=3)
    shares = norm.softmax(wide, axis=3)
    return movement.slice_(shares, begin=(0, 0, 0, 0), end=(batch, heads, steps, total))
