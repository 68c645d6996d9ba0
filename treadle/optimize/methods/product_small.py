# SPDX-License-Identifier: Apache-2.0
"""Products of bytes or 16-bit numbers, by value or by type: several steps at a time, in panels."""

from __future__ import annotations

from collections.abc import Callable

from treadle.graph.nodes import Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops.lowered.dot import dense_dot, grouped
from treadle.ops.matmul import matmul
from treadle.ops.schedules.dot import tiles_target
from treadle.optimize.channel_order import pack_panels, packed_constant
from treadle.optimize.dots import Factors, in_whole_steps, small_factors
from treadle.optimize.methods.conv_small import why_not_small
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.product import ProductSite, as_type, panel_width
from treadle.optimize.methods.product_panels import panels_cycles, why_no_matrix
from treadle.target.base import Target
from treadle.target.intrinsics.dots import dot_for


def _factors(site: ProductSite, x: Node) -> Factors | None:
    """Return the small factors of a product of `x`, whatever their type."""
    return small_factors(x, site.weights, site.weights.value.shape[0], site.target)


def _applies_by(name: str) -> Callable[[ProductSite], str | None]:
    def applies(site: ProductSite) -> str | None:
        against = why_no_matrix(site)
        return against or why_not_small(_factors(site, site.node.args[0]), name)

    return applies


def _width(site: ProductSite, words: int, target: Target) -> int:
    return panel_width(site.rows, site.shape.columns, words, "int32", target)


def _estimate(site: ProductSite) -> float:
    found = _factors(site, site.node.args[0])
    assert found is not None
    target = _tiles_target(found, site)
    words = -(-site.shape.steps // found.steps)
    return panels_cycles(site, _width(site, words, target), words, target)


def _tiles_target(found: Factors, site: ProductSite) -> Target:
    dot = dot_for(found.data_type, found.weights.dtype.name, site.target)
    return tiles_target(dot, site.target)


def _build(site: ProductSite) -> Node:
    found = _factors(site, site.plain_values())
    assert found is not None
    k, n = found.weights.shape
    width = _width(site, -(-k // found.steps), _tiles_target(found, site))
    key = site.weights, width, found.weights.dtype.name
    panels = site.shared.once(key, lambda: _panels(site, found, width))
    data = found.data
    x = in_whole_steps(data, tensor_type(data.type).ndim - 1, k, found.steps, site.origin)
    total = dense_dot(x, panels, n=n, origin=site.origin)
    made = found.less_zero(total, (0,), 0, site.origin)
    return as_type(made, tensor_type(site.node.type).dtype, site.origin)


def _panels(site: ProductSite, found: Factors, width: int) -> Constant:
    """Return panels of the small weights, steps that are multiplied at once side by side."""
    return packed_constant(grouped(pack_panels(found.weights, width), 1), site.weights)


def _method(name: str) -> Method[ProductSite]:
    return Method(
        name,
        matmul,
        _applies_by(name),
        _estimate,
        _build,
        knobs=("panel width",),
        layout="weights in panels",
    )


product_bytes = _method("bytes")
product_pairs = _method("pairs")
