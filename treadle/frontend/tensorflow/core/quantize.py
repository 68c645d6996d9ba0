# SPDX-License-Identifier: Apache-2.0
"""Converters of numbers that are rounded to those that few bits can stand for."""

from __future__ import annotations

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import dims_of
from treadle.frontend.builders.layout import in_one_layout
from treadle.frontend.tensorflow.node import TfNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise as ew


@converter("FakeQuantWithMinMaxArgs")
def fake_quantized_by_numbers(node: TfNode) -> Node:
    """Convert a rounding to steps of a range that attributes give."""
    low = np.float32(node.attributes.number("min", -6.0))
    high = np.float32(node.attributes.number("max", 6.0))
    return _rounded(node, np.asarray(low), np.asarray(high))


@converter("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quantized(node: TfNode) -> Node:
    """Convert a rounding to steps of a known range, of every channel one where there are many."""
    low, high = (node.constant(k, "range").astype("float32") for k in (1, 2))
    return _rounded(node, low, high)


def _rounded(node: TfNode, low: np.ndarray, high: np.ndarray) -> Node:
    """Return the nearest of 2^bits steps of a range, which is moved so that 0 is one of them."""
    bits = node.attributes.integer("num_bits", 8)
    first = 1.0 if node.attributes.flag("narrow_range") else 0.0
    if not 2 <= bits <= 16 or (low >= high).any():
        raise ModelError(f"{node.op} has {bits} bits, or an empty range")
    last = float((1 << bits) - 1)
    scale = (high - low) / np.float32(last - first)
    zero = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    bottom = ((first - zero) * scale).astype("float32")
    top = ((last - zero) * scale).astype("float32")

    def compute(x: Node, down: Node, up: Node, step: Node) -> Node:
        inside = ew.subtract(ew.minimum(ew.maximum(x, down), up), down)
        half = Constant.of(0.5, "float32")
        steps = ew.floor(ew.add(ew.divide(inside, step), half))
        return ew.add(ew.multiply(steps, step), down)

    bounds = [Constant.of(b) for b in (bottom, top, scale.astype("float32"))]
    if low.ndim and dims_of(node.input(0))[-1] != low.size:
        raise ModelError(f"{low.size} ranges do not fit the channels of {node.type(0)}")
    return in_one_layout(compute, node.input(0), *bounds)
