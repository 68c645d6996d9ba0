# SPDX-License-Identifier: Apache-2.0
"""Convolutions of integers that are bytes or 16-bit numbers: several channels at a time."""

from __future__ import annotations

from collections.abc import Callable

from treadle.graph.nodes import Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops.conv import conv
from treadle.ops.lowered.dot import steps_in_word
from treadle.optimize.dots import Factors, conv_factors, conv_of_steps
from treadle.optimize.methods.conv_plain import product_cycles
from treadle.optimize.methods.convolution import ConvSite
from treadle.optimize.methods.method import Method


def _factors(site: ConvSite, x: Node) -> Factors | None:
    """Return the small factors of a convolution of `x`, whatever their type."""
    return conv_factors(site.node, x, site.target)


def why_not_small(found: Factors | None, name: str) -> str | None:
    """Return why products are not those of small factors as the method `name` takes them."""
    if found is None:
        return "no instruction of the target sums products of such numbers"
    return None if found.method == name else f"the factors are {found.method}"


def _applies_by(name: str) -> Callable[[ConvSite], str | None]:
    def applies(site: ConvSite) -> str | None:
        if tensor_type(site.node.type).dtype != "int32" or not isinstance(site.w, Constant):
            return "it is for int32 results and weights known when compiled"
        return why_not_small(_factors(site, site.x), name)

    return applies


def _estimate_by(steps: int) -> Callable[[ConvSite], float]:
    """An instruction multiplies and adds so many channels."""
    return lambda site: product_cycles(site) / steps


def _build(site: ConvSite) -> Node:
    found = _factors(site, site.values.as_plain(site.x))
    assert found is not None
    return conv_of_steps(site.node, found)


conv_bytes = Method(
    "bytes", conv, _applies_by("bytes"), _estimate_by(steps_in_word("int8")), _build
)
conv_pairs = Method(
    "pairs", conv, _applies_by("pairs"), _estimate_by(steps_in_word("int16")), _build
)
