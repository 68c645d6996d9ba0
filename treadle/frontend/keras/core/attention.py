# SPDX-License-Identifier: Apache-2.0
"""Layers of attention."""

from __future__ import annotations

from math import sqrt

from treadle.errors import ModelError
from treadle.frontend.builders.attention import attended
from treadle.frontend.builders.basic import (
    converted,
    counted,
    dims_of,
    element_type,
    operands,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.einsum import einsum
from treadle.frontend.builders.reduce import total as summed
from treadle.frontend.keras.layer import KerasLayer, Result, layer, rank
from treadle.graph.nodes import Node
from treadle.graph.types import known_sizes
from treadle.ops import elementwise as ew
from treadle.ops import matmul, norm


def _argument(use: KerasLayer, place: int, name: str) -> Node | None:
    """Return an argument given by place or by name, None where it is not."""
    value = use.kwargs.get(name)
    if value is None and place < len(use.args):
        value = use.args[place]
    return use.cast(value) if isinstance(value, Node) else None


def _projected(use: KerasLayer, x: Node, part: str) -> Node:
    """Return [batch, steps, features] as heads [batch, heads, steps, size]."""
    weights = use.weights.child(part)
    made = einsum("abc,cde->abde", [x, use.weight(0, weights)])
    if use.flag("use_bias", True):
        made = ew.add(*operands(made, use.weight(1, weights)))
    return transposed(made, (0, 2, 1, 3))


@layer("MultiHeadAttention")
def multi_head_attention(use: KerasLayer) -> Result:
    """Convert attention of several heads: of a query to values, found by keys."""
    query, value = _argument(use, 0, "query"), _argument(use, 1, "value")
    if query is None or value is None:
        raise ModelError("an attention lacks its query or value")
    key = _argument(use, 2, "key") or value
    if any(rank(x) != 3 for x in (query, value, key)):
        raise ModelError("an attention over several axes is not supported")
    for name in ("use_gate", "sliding_window"):
        if use.setting(name):
            raise ModelError(f"an attention with {name} is not supported")
    if use.kwargs.get("return_attention_scores"):
        raise ModelError("an attention that gives its scores is not supported")
    q, k, v = (_projected(use, x, f"{n}_dense")
               for x, n in ((query, "query"), (key, "key"), (value, "value")))  # fmt: skip
    mask = _mask(use, query, key)
    added = [] if mask is None else [_bias(mask, q)]
    made = attended(q, k, v, scale=1.0 / sqrt(use.integer("key_dim")), added=added)
    weights = use.weights.child("output_dense")
    made = einsum("adbe,def->abf", [made, use.weight(0, weights)])
    if use.flag("use_bias", True):
        made = ew.add(*operands(made, use.weight(1, weights)))
    return made


def _bias(mask: Node, like: Node) -> Node:
    """Return 0 where a mask holds, a very small number elsewhere, as Keras's softmax adds it."""
    low = scalar_like(-3e4 if element_type(like) == "float16" else -1e9, like)
    return ew.where(*operands(mask, scalar_like(0.0, like), low))


def _mask(use: KerasLayer, query: Node, key: Node) -> Node | None:
    """Return which keys a query sees, [batch, 1, queries, keys]; None where it sees all."""
    found: list[Node] = []
    given = _argument(use, 3, "attention_mask")
    if given is not None:
        given = converted(given, "bool")
        dims = dims_of(given)
        found.append(reshaped(given, (dims[0], 1, *dims[1:])) if len(dims) == 3 else given)
    steps, total = dims_of(query)[1], dims_of(key)[1]
    for name, shape in (("query_mask", (-1, 1)), ("value_mask", (1, -1)), ("key_mask", (1, -1))):
        part = use.optional(name)
        if part is None:
            continue
        batch, count = dims_of(part)
        spread = (count, 1) if shape == (-1, 1) else (1, count)
        found.append(reshaped(converted(part, "bool"), (batch, 1, *spread)))
    if use.kwargs.get("use_causal_mask"):
        rows = reshaped(counted(steps), (1, 1, steps, 1))
        columns = reshaped(counted(total), (1, 1, 1, total))
        found.append(ew.greater_equal(rows, columns))
    if use.mask is not None and not any(use.optional(n) for n in ("query_mask", "value_mask")):
        raise ModelError(
            "an attention over steps of which some do not count is not supported",
            hint="give attention_mask, or save the model with a newer Keras",
        )
    made: Node | None = None
    for part in found:
        made = part if made is None else ew.logical_and(*operands(made, part))
    return made


@layer("Attention", "AdditiveAttention")
def attention(use: KerasLayer) -> Node:
    """Convert attention of one head without weights of projections."""
    values = use.inputs()
    if len(values) not in (2, 3) or use.mask is not None:
        raise ModelError(f"{use.class_name} takes query, value and key, and no masks here")
    query, value = values[:2]
    key = values[2] if len(values) == 3 else value
    if use.class_name == "AdditiveAttention":
        scores = _additive(use, query, key)
    else:
        if use.setting("score_mode", "dot") != "dot":
            raise ModelError("attention by concatenation is not supported")
        scores = matmul.matmul(query, transposed(key, (0, 2, 1)))
        if use.flag("use_scale"):
            scores = ew.multiply(*operands(scores, use.weight(0)))
    if use.kwargs.get("use_causal_mask"):
        raise ModelError(f"a causal mask of {use.class_name} is not supported")
    return matmul.matmul(norm.softmax(scores, axis=2), value)


def _additive(use: KerasLayer, query: Node, key: Node) -> Node:
    """Return sum(scale * tanh(query + key)) of every pair."""
    (width,) = known_sizes(dims_of(query)[-1:])
    a, b = dims_of(query), dims_of(key)
    both = ew.tanh(
        ew.add(reshaped(query, (a[0], a[1], 1, width)), reshaped(key, (b[0], 1, b[1], width)))
    )
    scale: Node = use.weight(0) if use.flag("use_scale", True) else scalar_like(1.0, query)
    return summed(ew.multiply(*operands(both, scale)), (3,), False)
