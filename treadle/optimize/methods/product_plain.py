# SPDX-License-Identifier: Apache-2.0
"""Products of matrices where they lie: what every call can do."""

from __future__ import annotations

from dataclasses import replace

from treadle.cost.gpu import element_cycles
from treadle.dtype import bits
from treadle.graph.nodes import Node
from treadle.limits import TYPICAL_ROWS
from treadle.ops.matmul import matmul
from treadle.ops.schedules.estimates import matmul_cycles
from treadle.optimize.methods.method import Method, always
from treadle.optimize.methods.product import ProductSite


def _estimate(site: ProductSite) -> float:
    if site.target.gpu is not None:
        shape = site.shape
        rows, columns = shape.rows or TYPICAL_ROWS, shape.columns or TYPICAL_ROWS
        return element_cycles(shape.matrices * rows * columns, shape.steps, site.target.gpu)
    is_widened = bits(site.data.dtype) < site.shape.dtype_bits
    return matmul_cycles(replace(site.shape, is_widened=is_widened), site.target)


def _build(site: ProductSite) -> Node:
    return site.as_in_model()


product_plain = Method("plain", matmul, always, _estimate, _build, families=("cpu", "gpu"))
