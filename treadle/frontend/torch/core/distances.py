# SPDX-License-Identifier: Apache-2.0
"""Converters of distances between rows, and of products of three tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from treadle.frontend.builders.basic import converted, dims_of, element_type, reshaped, scalar_like
from treadle.frontend.builders.movement import taken
from treadle.frontend.builders.pool import power
from treadle.frontend.builders.reduce import largest, total
from treadle.frontend.builders.shapes import unsqueezed
from treadle.frontend.torch.node import AtenNode, aten, sum_dtype
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes
from treadle.ops import elementwise as ew


def norm_of_rows(x: Node, p: float) -> Node:
    """Return the p-norm along the last axis, which the result lacks."""
    axes, sizes = (len(dims_of(x)) - 1,), ew.abs(x)
    if p == inf:
        return largest(sizes, axes, False) if dims_of(x)[-1] != 0 else total(sizes, axes, False)
    if p == 0:
        is_any = ew.not_equal(x, scalar_like(0, x))
        return total(converted(is_any, element_type(x)), axes, False)
    return power(total(power(sizes, p), axes, False), 1 / p)


@aten("_cdist_forward")
def cdist(node: AtenNode, a: Node, b: Node, p: float, compute_mode: int | None = None) -> Node:
    """Convert the distances [..., m, n] of rows [..., m, d] from rows [..., n, d]."""
    at_a, at_b = len(dims_of(a)) - 1, len(dims_of(b)) - 2  # their axes in front broadcast
    apart = ew.subtract(unsqueezed(a, [at_a]), unsqueezed(b, [at_b]))
    return norm_of_rows(apart, p)


@aten("_pdist_forward")
def pdist(node: AtenNode, x: Node, p: float = 2) -> Node:
    """Convert the distances of all pairs of rows, the first with the others in front."""
    (count,) = known_sizes(dims_of(x)[:1], "the number of rows")
    first, second = np.triu_indices(count, 1)
    rows = [taken(x, Constant.of(at.astype("int64")), 0, node.op) for at in (first, second)]
    return norm_of_rows(ew.subtract(*rows), p)


@aten("_trilinear")
def trilinear(
    node: AtenNode,
    a: Node,
    b: Node,
    c: Node,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    sum_dims: Sequence[int],
    unroll_dim: int = 1,
) -> Node:
    """Convert sums of products of three tensors with new axes, rounded once."""
    wide = sum_dtype(node.dtype())
    pairs = zip((a, b, c), (expand_a, expand_b, expand_c), strict=True)
    x, y, z = (converted(unsqueezed(v, sorted(axes)), wide) for v, axes in pairs)
    product = ew.multiply(ew.multiply(x, z), y)
    return reshaped(converted(total(product, tuple(sum_dims), False), node.dtype()), node.dims())
