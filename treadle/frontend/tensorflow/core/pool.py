# SPDX-License-Identifier: Apache-2.0
"""Converters of pools."""

from __future__ import annotations

from collections.abc import Callable

from treadle.errors import ModelError
from treadle.frontend.builders.images import images_pooled
from treadle.frontend.builders.pool import average_pooled, max_pooled
from treadle.frontend.builders.windows import Window
from treadle.frontend.tensorflow.core.conv import sliding_of
from treadle.frontend.tensorflow.node import TfNode, converter
from treadle.graph.nodes import Node


@converter("MaxPool", "MaxPool3D")
def max_pool(node: TfNode) -> Node:
    """Convert the largest element of every window."""
    return _pooled(node, max_pooled)


@converter("AvgPool", "AvgPool3D")
def average_pool(node: TfNode) -> Node:
    """Convert the mean of every window, padding not counted."""
    return _pooled(node, average_pooled)


def _pooled(node: TfNode, pool: Callable[[Node, Window], Node]) -> Node:
    axes = 3 if node.op.endswith("3D") else 2
    sliding = sliding_of(node, axes)
    sizes = node.attributes.integers("ksize")
    if len(sizes) != axes + 2:
        raise ModelError(f"the window {list(sizes)} of {node.op} does not fit {axes + 2} axes")
    inside = sizes[2:] if sliding.is_channels_first else sizes[1:-1]
    others = sizes[:2] if sliding.is_channels_first else (sizes[0], sizes[-1])
    if others != (1, 1):
        raise ModelError(f"the window {list(sizes)} of {node.op} spans images or channels")
    return images_pooled(node.input(0), inside, sliding, pool)
