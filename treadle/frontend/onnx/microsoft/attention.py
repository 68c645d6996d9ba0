# SPDX-License-Identifier: Apache-2.0
"""Converters of the attention operators that onnxruntime's optimiser makes (com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from treadle.errors import ModelError
from treadle.frontend.builders.attention import attended, join_heads, split_heads
from treadle.frontend.builders.basic import (
    converted,
    counted,
    cut_columns,
    dims_of,
    known_width,
    reshaped,
)
from treadle.frontend.onnx.microsoft.transformer import DOMAIN
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import product_of, shapes_may_agree
from treadle.ops import elementwise, matmul, movement


@converter("Attention", since=(1,), domain=DOMAIN)
def attention(node: OnnxNode) -> list[Node]:
    """Convert self-attention with the projections of queries, keys and values in one product."""
    node.without_effect("past_present_share_buffer", "rotary_embedding_dim")
    if node.flag("do_rotary"):
        raise ModelError("Attention with do_rotary is not supported")
    heads = node.integer("num_heads")
    product: Node = matmul.matmul(node.input(0), node.input(1))
    if node.has_input(2):
        product = elementwise.add(product, node.input(2))
    third = known_width(product) // 3
    sizes = node.integers("qkv_hidden_sizes") or (third,) * 3
    q, k, v = (split_heads(p, heads) for p in _parted(product, sizes))
    if node.has_input(4):
        past = node.input(4)
        k = movement.concat(_entry(past, 0), k, axis=2)
        v = movement.concat(_entry(past, 1), v, axis=2)
    present = [reshaped(x, (1, *dims_of(x))) for x in (k, v)]
    result = _attended(node, q, k, v, _mask(node, q, k, 3), node.optional(5))
    if not node.wants(1):
        return [result]
    return [result, movement.concat(*present, axis=0)]


@converter("MultiHeadAttention", since=(1,), domain=DOMAIN)
def multi_head_attention(node: OnnxNode) -> list[Node]:
    """Convert attention of separate queries, keys and values."""
    heads = node.integer("num_heads")
    if node.has_input(8) or node.has_input(9) or node.wants(3):
        raise ModelError("MultiHeadAttention with a shared cache or scores is not supported")
    q, k, v = _separate(node)
    if node.has_input(3):
        widths = [known_width(x) for x in (q, q, v)]
        shifts = _parted(node.input(3), widths)
        q, k, v = (
            elementwise.add(x, b) if len(dims_of(x)) == 3 else x
            for x, b in zip((q, k, v), shifts, strict=True)
        )
    q, k, v = (split_heads(x, heads) if len(dims_of(x)) == 3 else x for x in (q, k, v))
    if node.has_input(6) and node.has_input(7):
        k = movement.concat(node.input(6), k, axis=2)
        v = movement.concat(node.input(7), v, axis=2)
    return [_attended(node, q, k, v, _mask(node, q, k, 4), node.optional(5)), k, v]


def _separate(node: OnnxNode) -> tuple[Node, Node, Node]:
    """Return queries, keys, values; they may be packed as [batch, steps, heads, 3 or 2, size]."""
    packed = [k for k in range(2) if node.has_input(k) and node.type(k).ndim == 5]
    if not packed:
        return node.input(0), node.input(1), node.input(2)
    parts = [_part(node.input(packed[0]), k) for k in range(3 - packed[0])]
    if packed[0] == 0:
        return parts[0], parts[1], parts[2]
    return node.input(0), parts[0], parts[1]


def _part(x: Node, k: int) -> Node:
    batch, steps, heads, _, size = dims_of(x)
    part = movement.slice_(x, begin=(k,), end=(k + 1,), axes=(3,))
    return reshaped(part, (batch, steps, product_of((heads, size))))


def _parted(x: Node, widths: Sequence[int]) -> list[Node]:
    """Cut the last axis into parts."""
    if sum(widths) != known_width(x):
        raise ModelError(f"parts of {list(widths)} do not make up {x.type}")
    return [cut_columns(x, a, b) for a, b in pairwise((0, *accumulate(widths)))]


def _entry(x: Node, k: int) -> Node:
    part = movement.slice_(x, begin=(k,), end=(k + 1,), axes=(0,))
    return reshaped(part, dims_of(x)[1:])


def _attended(
    node: OnnxNode, q: Node, k: Node, v: Node, masks: list[Node], bias: Node | None
) -> Node:
    """Return attention as the attributes of a node say, with the heads joined."""
    scale = node.number("scale", 0.0) or None
    added = ([] if bias is None else [bias]) + masks
    causal = node.flag("unidirectional")
    return join_heads(attended(q, k, v, scale=scale, added=added, causal=causal))


def _mask(node: OnnxNode, q: Node, k: Node, index: int) -> list[Node]:
    """Return what the optional mask adds to the scores: its filter value where it is 0."""
    given = node.optional(index)
    hidden = node.number("mask_filter_value", -10000.0)
    if given is None:
        return []
    batch, _, steps, _ = dims_of(q)
    total, shape = dims_of(k)[2], dims_of(given)
    if shapes_may_agree(shape, (batch,)) and (batch, total) != (1, 1):
        lengths = converted(reshaped(given, (batch, 1)), "int64")
        keeps: Node = elementwise.less(reshaped(counted(total), (1, total)), lengths)
        shape = (batch, total)
    elif shapes_may_agree(shape, (batch, total)) or shapes_may_agree(shape, (batch, steps, total)):
        keeps = converted(given, "bool")
    else:
        raise ModelError(f"a mask {given.type} of {node.op} is not supported")
    wide = reshaped(keeps, (batch, 1, *((1,) if len(shape) == 2 else ()), *shape[1:]))
    zero, filtered = Constant.of(0.0, "float32"), Constant.of(hidden, "float32")
    return [elementwise.where(wide, zero, filtered)]
