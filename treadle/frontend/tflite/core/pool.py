# SPDX-License-Identifier: Apache-2.0
"""Converters of pools; bounds of a fused activation are set on what they give."""

from __future__ import annotations

from collections.abc import Callable

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of
from treadle.frontend.builders.layout import channels_first, channels_last
from treadle.frontend.builders.pool import average_pooled, max_pooled
from treadle.frontend.builders.windows import Window, padded_to_same, window_of
from treadle.frontend.tflite.node import TfliteNode, converter
from treadle.frontend.tflite.quantized import clipped_integers, on_integers
from treadle.graph.nodes import Node
from treadle.ops import elementwise


@converter("MAX_POOL_2D")
def max_pool(node: TfliteNode) -> Node:
    """Convert the largest element of every window; integers are compared as they are."""
    made = channels_last(_pooled(node, node.input(0), max_pooled))
    how = node.result().quantization
    if node.is_quantized(0) and how is not None:
        return clipped_integers(node.moved(made), node.activation, how, node.result().dtype)
    return node.activated(made)


@converter("AVERAGE_POOL_2D")
def average_pool(node: TfliteNode) -> Node:
    """Convert the mean of every window, padding not counted."""
    how = node.result().quantization
    if how is None or not node.keeps_scale():
        made = channels_last(_pooled(node, node.real(0), average_pooled))
        return node.stored(node.activated(made))
    means = on_integers(lambda x: _pooled(node, x, average_pooled), node.input(0))
    return channels_last(clipped_integers(means, node.activation, how, node.result().dtype))


@converter("L2_POOL_2D")
def l2_pool(node: TfliteNode) -> Node:
    """Convert the root of the mean square of every window, padding not counted."""

    def root_mean_square(x: Node, window: Window) -> Node:
        return elementwise.sqrt(average_pooled(elementwise.multiply(x, x), window))

    return node.stored(node.activated(channels_last(_pooled(node, node.real(0), root_mean_square))))


def _pooled(node: TfliteNode, x: Node, pool: Callable[[Node, Window], Node]) -> Node:
    if node.rank(0) != 4:
        raise ModelError(f"{node.op} takes images [n, h, w, c], not {node.type(0)}")
    images = channels_first(x)
    kernel = (node.options.integer("filter_height"), node.options.integer("filter_width"))
    if min(kernel) < 1:
        raise ModelError(f"the window of {node.op} is {list(kernel)}")
    window = window_of(kernel, [node.options.integer(f"stride_{a}") for a in "hw"])
    if node.padding == "SAME":
        window = padded_to_same(window, dims_of(images)[2:], odd_first=False)
    return pool(images, window)
