# SPDX-License-Identifier: Apache-2.0
"""Convolutions of int32 values that are 16-bit numbers: two channels in a word."""

from __future__ import annotations

from treadle.graph.nodes import Constant, Node
from treadle.ops.conv import conv
from treadle.optimize.methods.conv_plain import product_cycles
from treadle.optimize.methods.convolution import ConvSite
from treadle.optimize.methods.method import Method
from treadle.optimize.pairs import conv_of_pairs, why_not_pairs


def _applies(site: ConvSite) -> str | None:
    if site.groups > 1:
        return "pairs of channels are of one group"
    if not isinstance(site.w, Constant):
        return "the weights are not known when compiled"
    return why_not_pairs(site.x, site.w, site.per_group, site.target)


def _estimate(site: ConvSite) -> float:
    """An instruction multiplies and adds two channels."""
    return product_cycles(site) / 2


def _build(site: ConvSite) -> Node:
    return conv_of_pairs(site.node, site.values.as_plain(site.x))


conv_pairs = Method("pairs", conv, _applies, _estimate, _build)
