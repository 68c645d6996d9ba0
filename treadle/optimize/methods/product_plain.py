# SPDX-License-Identifier: Apache-2.0
"""Products of matrices where they lie: what every call can do."""

from __future__ import annotations

from treadle.dtype import bits
from treadle.graph.nodes import Node
from treadle.ops.matmul import matmul
from treadle.ops.schedules.matmul import matmul_cycles
from treadle.optimize.methods.method import Method, always
from treadle.optimize.methods.product import ProductSite

_WORTHWHILE = 0.9
"""The share of another method's cycles it may take: the estimate does not know of the pages, and of
the sets of a cache, that rows of the second factor far apart take."""


def _estimate(site: ProductSite) -> float:
    shape = site.shape
    sizes = (shape.batch, shape.rows, shape.columns, shape.steps)
    return matmul_cycles(sizes, bits(site.data.dtype), site.target)


def _build(site: ProductSite) -> Node:
    return site.as_in_model()


product_plain = Method(
    "plain", matmul, always, _estimate, _build, worthwhile=lambda site: _WORTHWHILE
)
