# SPDX-License-Identifier: Apache-2.0
"""Products of small integers as those of int32, with constant weights in panels."""

from __future__ import annotations

from dataclasses import replace

from treadle.dtype import bits, is_integer
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.matmul import matmul
from treadle.ops.schedules.estimates import dense_packed_cycles
from treadle.optimize.channel_order import pack_panels, packed_constant
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.moves import move_cycles
from treadle.optimize.methods.product import ProductSite, as_type, panel_width
from treadle.optimize.methods.product_panels import why_no_matrix


def _applies(site: ProductSite) -> str | None:
    against = why_no_matrix(site)
    if against is not None:
        return against
    if not is_integer(site.data.dtype) or bits(site.data.dtype) > 16:
        return "it is for integers of 16 bits and fewer"
    return None


def _width(site: ProductSite) -> int:
    return panel_width(site.rows, site.shape.columns, site.shape.steps, "int32", site.target)


def _estimate(site: ProductSite) -> float:
    wide = replace(site.shape, dtype_bits=32)
    widening = move_cycles(site.data, site.target)
    return widening + dense_packed_cycles(wide, _width(site), site.target)


def _build(site: ProductSite) -> Node:
    width, weights = _width(site), site.weights
    panels = site.shared.once(("int32", weights, width), lambda: _panels(weights, width))
    values = as_type(site.plain_values(), "int32", site.origin)
    made = dense_packed(values, panels, n=site.shape.columns, origin=site.origin)
    return as_type(made, tensor_type(site.node.type).dtype, site.origin)


def _panels(weights: Constant, width: int) -> Constant:
    return packed_constant(pack_panels(weights.value.astype("int32"), width), weights)


product_widened = Method(
    "widened",
    matmul,
    _applies,
    _estimate,
    _build,
    knobs=("panel width",),
    layout="weights in panels",
)
