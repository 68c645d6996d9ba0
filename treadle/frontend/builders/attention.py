# SPDX-License-Identifier: Apache-2.0
"""Builders of attention: heads apart and together, rotated by position, and their weighted sums.

Attention is that of Vaswani et al., "Attention is all you need" (2017), the rotation that of Su et
al., "RoFormer: enhanced transformer with rotary position embedding" (2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
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
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, product_of
from treadle.ops import elementwise, matmul, movement, norm


def attended(
    q: Node,
    k: Node,
    v: Node,
    *,
    scale: float | Node | None = None,
    added: Sequence[Node] = (),
    causal: bool = False,
    ahead: Dim | None = None,
) -> Node:
    """Return softmax(q k' * scale + what is added) v of [batch, heads, steps, size] each.

    `scale` is 1 / sqrt(size) where it is not given. What is `added` broadcasts to [batch, heads,
    queries, keys]. With `causal` query i sees the keys up to i + `ahead`, by default so many ahead
    that the last query sees the last key.
    """
    scores: Node = matmul.matmul(q, transposed(k, (0, 1, 3, 2)))
    scores = elementwise.multiply(scores, _factor(q, scale))
    for term in added:
        scores = elementwise.add(scores, converted(term, element_type(scores)))
    if causal:
        steps, total = dims_of(scores)[2:]
        scores = _causal(scores, total - steps if ahead is None else ahead)
    return matmul.matmul(norm.softmax(scores, axis=3), v)


def _factor(q: Node, scale: float | Node | None) -> Node:
    """Return a scale as a scalar: 1 / sqrt(size) for [..., size], which a run may decide."""
    if scale is not None:
        return scale if isinstance(scale, Node) else scalar_like(scale, q)
    (size,) = dims_of(q)[-1:]
    if isinstance(size, int):
        return scalar_like(1.0 / sqrt(size), q)
    root = elementwise.sqrt(elementwise.cast(sizes_node((size,), ()), dtype="float64"))
    return converted(elementwise.divide(scalar_like(1.0, root), root), element_type(q))


def _causal(scores: Node, ahead: Dim) -> Node:
    """Put the smallest number where a key comes more than `ahead` after its query's number."""
    steps, total = dims_of(scores)[2:]
    queries = reshaped(counted(steps, ahead), (1, 1, steps, 1))
    seen = elementwise.less_equal(reshaped(counted(total), (1, 1, 1, total)), queries)
    dtype = element_type(scores)
    lowest = float(np.finfo(to_numpy(dtype)).min) if dtype != "bfloat16" else -3e38
    return elementwise.where(seen, scores, scalar_like(lowest, scores))


def rotated(x: Node, cos: Node, sin: Node, width: int, interleaved: bool) -> Node:
    """Return x [..., size] whose first `width` features are rotated, in pairs, by given angles."""
    lead, size = dims_of(x)[:-1], known_width(x)
    head = cut_columns(x, 0, width)
    half = width // 2
    if interleaved:
        pairs = reshaped(head, (*lead, half, 2))
        a, b = (reshaped(cut_columns(pairs, k, k + 1), (*lead, half)) for k in range(2))
    else:
        a, b = cut_columns(head, 0, half), cut_columns(head, half, width)
    real = elementwise.subtract(elementwise.multiply(a, cos), elementwise.multiply(b, sin))
    imaginary = elementwise.add(elementwise.multiply(a, sin), elementwise.multiply(b, cos))
    if interleaved:
        wide = [reshaped(v, (*lead, half, 1)) for v in (real, imaginary)]
        result = reshaped(movement.concat(*wide, axis=len(lead) + 1), (*lead, width))
    else:
        result = movement.concat(real, imaginary, axis=len(lead))
    if width == size:
        return result
    return movement.concat(result, cut_columns(x, width, size), axis=len(lead))


def split_heads(x: Node, heads: int) -> Node:
    """Return [batch, steps, heads * size] as [batch, heads, steps, size]."""
    (batch, steps, _), width = dims_of(x), known_width(x)
    if heads < 1 or width % heads:
        raise ModelError(f"{heads} heads do not divide {width} features")
    return transposed(reshaped(x, (batch, steps, heads, width // heads)), (0, 2, 1, 3))


def join_heads(x: Node) -> Node:
    """Return [batch, heads, steps, size] as [batch, steps, heads * size]."""
    batch, heads, steps, size = dims_of(x)
    return reshaped(transposed(x, (0, 2, 1, 3)), (batch, steps, product_of((heads, size))))
