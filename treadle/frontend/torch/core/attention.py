# SPDX-License-Identifier: Apache-2.0
"""Converters of attention."""

from __future__ import annotations

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.builders.attention import attended
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    element_type,
    reshaped,
    scalar_like,
)
from treadle.frontend.torch.node import AtenNode, Operand, aten, operand, sum_dtype
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import product_of
from treadle.ops import elementwise as ew
from treadle.ops import reduce as reductions


@aten("scaled_dot_product_attention")
def scaled_dot_product_attention(
    node: AtenNode,
    q: Node,
    k: Node,
    v: Node,
    attn_mask: Node | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Operand | None = None,
    enable_gqa: bool = False,
) -> Node:
    """Convert attention of any number of axes before steps and features."""
    return _attention(node, (q, k, v), attn_mask, dropout_p, is_causal, scale)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    node: AtenNode,
    q: Node,
    k: Node,
    v: Node,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Node | None = None,
    scale: Operand | None = None,
) -> list[Node | None]:
    """Convert attention as torch's kernel for CPUs has it; nobody reads its second result."""
    return [_attention(node, (q, k, v), attn_mask, dropout_p, is_causal, scale), None]


def _attention(
    node: AtenNode,
    given: tuple[Node, Node, Node],
    mask: Node | None,
    dropout: float,
    is_causal: bool,
    scale: Operand | None,
) -> Node:
    if dropout:
        raise ModelError("attention with dropout is for training")
    wide = sum_dtype(element_type(given[0]))  # scores of halves would lose what tells keys apart
    q, k, v = (_with_heads(converted(t, wide)) for t in given)
    k, v = (_repeated(t, dims_of(q)[1]) for t in (k, v))
    added = [] if mask is None else [_added(mask, q)]
    factor = None if scale is None else operand(scale, wide)
    made = attended(q, k, v, scale=factor, added=added, causal=is_causal, ahead=0)
    for term in added:
        made = _without_blind(made, term)
    return converted(reshaped(made, node.dims(0)), node.dtype(0))


def _without_blind(made: Node, added: Node) -> Node:
    """Return attention with zeros where a query sees no key, as what is added to scores says.

    The softmax of nothing but minus infinity would be no number.
    """
    lowest = scalar_like(float("-inf"), added)
    if isinstance(added, Constant) and (added.value.max(-1) > float("-inf")).all():
        return made
    sees = ew.not_equal(
        reductions.max_(added, axes=(len(dims_of(added)) - 1,), keepdims=True), lowest
    )
    return ew.where(sees, made, scalar_like(0, made))


def _with_heads(x: Node) -> Node:
    """Return [..., heads, steps, size] with one axis before the heads."""
    *lead, heads, steps, size = dims_of(x) if len(dims_of(x)) > 2 else (1, *dims_of(x))
    return reshaped(x, (product_of(lead), heads, steps, size))


def _repeated(x: Node, heads: object) -> Node:
    """Return keys or values with as many heads as queries have; groups of those share one."""
    batch, own, steps, size = dims_of(x)
    if own == heads:
        return x
    if not isinstance(heads, int) or not isinstance(own, int) or heads % own:
        raise ModelError(f"{heads} heads of queries and {own} of keys do not fit")
    wide = reshaped(x, (batch, own, 1, steps, size))
    spread = broadcast(wide, (batch, own, heads // own, steps, size))
    return reshaped(spread, (batch, heads, steps, size))


def _added(mask: Node, q: Node) -> Node:
    """Return a mask as what is added to scores: of truth values, minus infinity where not."""
    if len(dims_of(mask)) > 4:
        *lead, heads, steps, total = dims_of(mask)
        mask = reshaped(mask, (product_of(lead), heads, steps, total))
    if element_type(mask) != "bool":
        return mask
    kind = element_type(q)
    low = Constant.of(np.asarray(float("-inf")).astype(to_numpy(kind)))
    return ew.where(mask, scalar_like(0, q), low)
