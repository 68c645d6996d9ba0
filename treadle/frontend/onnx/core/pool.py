# SPDX-License-Identifier: Apache-2.0
"""Converters of pools over windows and over whole images."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.pool import (
    average_pooled,
    global_average_pooled,
    global_lp_pooled,
    global_max_pooled,
    lp_pooled,
    max_pooled,
    max_pooled_with_indices,
)
from treadle.frontend.onnx.core.window import read_window
from treadle.frontend.onnx.node import OnnxNode, Result, converter
from treadle.graph.nodes import Node


@converter("MaxPool", since=(1, 8, 10, 11, 12, 22))
def max_pool(node: OnnxNode) -> Result:
    """Convert a pool of the largest value, and of its position where that is wanted."""
    x = node.input(0)
    window, ceil_mode = read_window(node, x), node.flag("ceil_mode")
    column_major = node.flag("storage_order") if node.version >= 8 else False
    if not node.wants(1):
        return max_pooled(x, window, ceil_mode=ceil_mode)
    return max_pooled_with_indices(x, window, ceil_mode=ceil_mode, column_major=column_major)


@converter("AveragePool", since=(1, 7, 10, 11, 19, 22))
def average_pool(node: OnnxNode) -> Node:
    """Convert a pool of the mean; the padding counts only with `count_include_pad`."""
    x = node.input(0)
    return average_pooled(
        x,
        read_window(node, x),
        ceil_mode=node.flag("ceil_mode"),
        count_include_pad=node.flag("count_include_pad"),
    )


@converter("LpPool", since=(1, 2, 11, 18, 22))
def lp_pool(node: OnnxNode) -> Node:
    """Convert a pool of the p-norm."""
    x = node.input(0)
    ceil_mode = node.flag("ceil_mode")
    return lp_pooled(x, read_window(node, x), _norm_order(node), ceil_mode=ceil_mode)


@converter("GlobalAveragePool", since=(1, 22))
def global_average_pool(node: OnnxNode) -> Node:
    """Convert the mean of every channel."""
    return global_average_pooled(node.input(0))


@converter("GlobalMaxPool", since=(1, 22))
def global_max_pool(node: OnnxNode) -> Node:
    """Convert the maximum of every channel."""
    return global_max_pooled(node.input(0))


@converter("GlobalLpPool", since=(1, 2, 22))
def global_lp_pool(node: OnnxNode) -> Node:
    """Convert the p-norm of every channel."""
    return global_lp_pooled(node.input(0), _norm_order(node))


def _norm_order(node: OnnxNode) -> float:
    p = node.number("p", 2.0) if node.version == 1 else float(node.integer("p", 2))
    if p < 1:
        raise ModelError(f"the p of {node.op} is {p}, at least 1 is needed")
    return p
