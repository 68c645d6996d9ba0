# SPDX-License-Identifier: Apache-2.0
"""Converters of image scaling."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.frontend.builders.basic import dims_of
from treadle.frontend.builders.resize import Sampling, Target, resized
from treadle.frontend.torch.node import AtenNode, aten
from treadle.graph.nodes import Node

Factors = Sequence[float] | None


def _scaled(node: AtenNode, x: Node, sampling: Sampling, scales: Factors) -> Node:
    """Return an image of the size that torch says, by scales where they are given."""
    factors: tuple[float, ...] = ()
    if scales is not None:
        factors = (*(1.0,) * (len(dims_of(x)) - len(scales)), *map(float, scales))
    return resized(x, Target(node.dims(), factors), sampling)


@aten("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def nearest(node: AtenNode, x: Node, size: object, scales: Factors = None) -> Node:
    """Convert the nearest element at or before each place."""
    return _scaled(node, x, Sampling("nearest", "asymmetric", "floor"), scales)


@aten("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def linear(
    node: AtenNode, x: Node, size: object, align_corners: bool, scales: Factors = None
) -> Node:
    """Convert linear interpolation."""
    rule = "align_corners" if align_corners else "half_pixel"
    return _scaled(node, x, Sampling("linear", rule), None if align_corners else scales)


@aten("upsample_bicubic2d.vec")
def cubic(
    node: AtenNode, x: Node, size: object, align_corners: bool, scales: Factors = None
) -> Node:
    """Convert cubic interpolation."""
    rule = "align_corners" if align_corners else "half_pixel"
    return _scaled(node, x, Sampling("cubic", rule), None if align_corners else scales)
