# SPDX-License-Identifier: Apache-2.0
"""Products with constant weights, which are laid out in panels of columns when compiled."""

from __future__ import annotations

from dataclasses import replace

from treadle.graph.nodes import Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.matmul import matmul
from treadle.ops.schedules.estimates import dense_packed_cycles
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.product import ProductSite, panel_width
from treadle.target.base import Target

PACKED = ("float32", "float64", "int32")
"""Types that are summed in themselves, by schedules that keep whole vectors in registers."""


def why_no_matrix(site: ProductSite) -> str | None:
    """Return why weights cannot be laid out anew, whatever their type; None where they can."""
    weights = site.node.args[1]
    if not isinstance(weights, Constant):
        return "the second factor is not known when compiled"
    if weights.type.ndim != 2:
        return "it is for weights that are one matrix with elements"
    return None


def why_not_packed(site: ProductSite) -> str | None:
    """Return why weights cannot be laid out in panels of their type; None where they can."""
    against = why_no_matrix(site)
    if against is not None:
        return against
    types = {site.data.dtype, site.weights.type.dtype, tensor_type(site.node.type).dtype}
    if len(types) > 1 or site.data.dtype not in PACKED:
        return f"it is for {', '.join(PACKED)}, which are summed in themselves"
    return None


def panels_cycles(site: ProductSite, width: int, steps: int, target: Target) -> float:
    """Return the cycles of a product with panels of `width` columns and `steps` rows."""
    return dense_packed_cycles(replace(site.shape, steps=steps), width, target)


def _width(site: ProductSite) -> int:
    shape = site.shape
    return panel_width(site.rows, shape.columns, shape.steps, site.data.dtype, site.target)


def _estimate(site: ProductSite) -> float:
    return panels_cycles(site, _width(site), site.shape.steps, site.target)


def _build(site: ProductSite) -> Node:
    panels = site.panels(_width(site))
    values = site.plain_values()
    return dense_packed(values, panels, n=site.shape.columns, origin=site.origin)


product_panels = Method(
    "panels",
    matmul,
    why_not_packed,
    _estimate,
    _build,
    knobs=("panel width",),
    layout="weights in panels",
)
