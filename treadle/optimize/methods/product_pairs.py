# SPDX-License-Identifier: Apache-2.0
"""Products of int32 values that are 16-bit numbers: two steps in a word, weights in panels."""

from __future__ import annotations

from treadle.graph.nodes import Constant, Node
from treadle.ops.lowered.pairs import dense_pairs, pair_words
from treadle.ops.matmul import matmul
from treadle.optimize.channels import pack_panels, packed_constant
from treadle.optimize.methods.method import Method
from treadle.optimize.methods.product import ProductSite, panel_width
from treadle.optimize.methods.product_panels import panels_cycles, why_not_packed
from treadle.optimize.pairs import paired, why_not_pairs


def _applies(site: ProductSite) -> str | None:
    against = why_not_packed(site)
    if against is not None:
        return against
    return why_not_pairs(site.node.args[0], site.weights, site.shape.steps, site.target)


def _words(site: ProductSite) -> int:
    return -(-site.shape.steps // 2)


def _width(site: ProductSite) -> int:
    columns = site.shape.columns
    return panel_width(site.rows, columns, _words(site), site.data.dtype, site.target)


def _estimate(site: ProductSite) -> float:
    return panels_cycles(site, _width(site), _words(site))


def _build(site: ProductSite) -> Node:
    width = _width(site)
    words = paired(site.plain_values(), site.data.ndim - 1, site.shape.steps, site.origin)
    panels = site.shared.once(("pairs", site.weights, width), lambda: _panels(site, width))
    return dense_pairs(words, panels, n=site.shape.columns, origin=site.origin)


def _panels(site: ProductSite, width: int) -> Constant:
    """Return panels of words that hold two rows of weights each."""
    words = pair_words(site.weights.value, 0)
    return packed_constant(pack_panels(words, width), site.weights)


product_pairs = Method(
    "pairs",
    matmul,
    _applies,
    _estimate,
    _build,
    knobs=("panel width",),
    layout="weights in panels",
)
