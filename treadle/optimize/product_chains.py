# SPDX-License-Identifier: Apache-2.0
"""Which products share a kernel with the product that reads them: those of a feed-forward layer.

before:  h = gelu(dense_packed(x, u)); y = dense_packed(h, v)       two kernels, h in memory
after:   the same in one kernel, a block of rows at a time          h stays in level 2
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cost.chains import passing_cycles, saves_enough
from treadle.dtype import bits, itemsize
from treadle.graph.nodes import Call
from treadle.graph.types import tensor_type
from treadle.limits import CHAINED_PRODUCTS
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.schedules.estimates import MatmulShape, dense_packed_cycles
from treadle.ops.schedules.product_chain import ChainedProduct, chain_cycles
from treadle.optimize.fuse import OWN_SCHEDULE
from treadle.target.base import Target


def why_apart(anchors: Sequence[Call], target: Target) -> str:
    """Return why calls of which each reads the one before are kernels of their own; "" if not.

    What lies between them is element-wise, and nobody else reads it.
    """
    if any(a.op is not dense_packed for a in anchors) or target.family != "cpu":
        return OWN_SCHEDULE
    if len(anchors) > CHAINED_PRODUCTS:
        return f"a kernel has at most {CHAINED_PRODUCTS} products"
    types = [tensor_type(a.type) for a in anchors]
    if any(t.ndim != 2 or not t.is_static or t.size == 0 for t in types):
        return "its rows are not those of one matrix of known size"
    if len({tensor_type(x.type).dtype for a in anchors for x in (a, *a.args)}) > 1:
        return "its elements are of another type"
    passing = passing_cycles(types[0].nbytes, target)
    if passing == 0:
        return "level 2 holds the values that pass between them"
    apart = _cycles(anchors[:1], target) + passing + _cycles(anchors[1:], target)
    together = _cycles(anchors, target)
    if saves_enough(together, apart):
        return ""
    return f"by blocks of rows they take {together / apart:.2f} of the time"


def _cycles(anchors: Sequence[Call], target: Target) -> float:
    """Return the cycles of products as one kernel."""
    rows, _ = tensor_type(anchors[0].type).static_shape
    dtype = tensor_type(anchors[0].type).dtype
    sizes = [(tensor_type(a.type), tensor_type(a.args[1].type)) for a in anchors]
    chain = tuple(
        ChainedProduct(w.static_shape[1], t.static_shape[1], w.static_shape[2], itemsize(dtype))
        for t, w in sizes
    )
    if len(chain) > 1:
        return chain_cycles(rows, chain, target)
    (only,) = chain
    shape = MatmulShape(1, rows, only.columns, only.steps, bits(dtype))
    return dense_packed_cycles(shape, only.width, target)
