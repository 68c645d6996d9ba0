# SPDX-License-Identifier: Apache-2.0
"""Converters of losses that torch writes by steps which would each be rounded."""

from __future__ import annotations

from treadle.frontend.builders.basic import converted, dims_of, scalar_like
from treadle.frontend.torch.node import AtenNode, aten, sum_dtype
from treadle.graph.nodes import Node
from treadle.ops import activation
from treadle.ops import elementwise as ew
from treadle.ops import reduce as reductions

_REDUCTIONS = (None, reductions.mean, reductions.sum_)
"""By torch's number of a reduction."""


@aten("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    node: AtenNode,
    x: Node,
    target: Node,
    weight: Node | None = None,
    pos_weight: Node | None = None,
    reduction: int = 1,
) -> Node:
    """Convert (1 - t) x + (1 + (p - 1) t) softplus(-x), weighted and reduced; halves in float32."""
    wide = sum_dtype(node.dtype())
    x, target = converted(x, wide), converted(target, wide)
    one = scalar_like(1, x)
    far = activation.softplus(ew.negative(x))
    if pos_weight is not None:
        above = ew.multiply(ew.subtract(converted(pos_weight, wide), one), target)
        far = ew.multiply(ew.add(above, one), far)
    made = ew.add(ew.multiply(ew.subtract(one, target), x), far)
    if weight is not None:
        made = ew.multiply(made, converted(weight, wide))
    reduce = _REDUCTIONS[reduction]
    return converted(
        made if reduce is None else reduce(made, axes=tuple(range(len(dims_of(made))))),
        node.dtype(),
    )
