# SPDX-License-Identifier: Apache-2.0
"""Products of matrices where they lie: what every call can do."""

from __future__ import annotations

from treadle.graph.nodes import Node
from treadle.ops.matmul import matmul
from treadle.ops.schedules.estimates import matmul_cycles
from treadle.optimize.methods.method import Method, always
from treadle.optimize.methods.product import ProductSite

_WORTHWHILE = 0.9
"""The share of another method's cycles it may take: the estimate does not know of the pages, and of
the sets of a cache, that rows of the second factor far apart take."""


def _estimate(site: ProductSite) -> float:
    return matmul_cycles(site.shape, site.target)


def _build(site: ProductSite) -> Node:
    return site.as_in_model()


product_plain = Method(
    "plain", matmul, always, _estimate, _build, worthwhile=lambda site: _WORTHWHILE
)
