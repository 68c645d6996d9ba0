# SPDX-License-Identifier: Apache-2.0
"""Converters between real numbers and integers with a scale."""

from __future__ import annotations

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, scalar_like
from treadle.frontend.builders.layout import in_one_layout
from treadle.frontend.tflite.node import TfliteNode, converter, is_quantized
from treadle.frontend.tflite.pointwise import rescaled_integers
from treadle.graph.nodes import Node
from treadle.ops import elementwise


@converter("QUANTIZE")
def quantize(node: TfliteNode) -> Node:
    """Convert real numbers, or integers of another scale, to integers."""
    if not is_quantized(node.result()):
        raise ModelError("the result of QUANTIZE has no scale")
    integers = rescaled_integers(node)
    return node.stored(node.real(0)) if integers is None else integers


@converter("DEQUANTIZE")
def dequantize(node: TfliteNode) -> Node:
    """Convert integers, or half-precision numbers, to float32."""
    return in_one_layout(lambda x: converted(x, node.result().dtype), node.real(0))


@converter("FAKE_QUANT")
def fake_quant(node: TfliteNode) -> Node:
    """Convert a rounding to the numbers that a quantisation to some bits has."""
    low, high = node.options.number("min"), node.options.number("max")
    least = 1 if node.options.flag("narrow_range") else 0
    most = (1 << min(max(node.options.integer("num_bits"), 2), 16)) - 1
    if not low < high:
        raise ModelError(f"FAKE_QUANT has the range from {low} to {high}")
    scale = (high - low) / (most - least)
    point = min(max(round(least - low / scale), least), most)
    first, last = (least - point) * scale, (most - point) * scale

    def rounded(x: Node) -> Node:
        shifted = elementwise.subtract(
            elementwise.clip(x, min=first, max=last), scalar_like(first, x)
        )
        half_up = elementwise.add(
            elementwise.divide(shifted, scalar_like(scale, x)), scalar_like(0.5, x)
        )
        steps = elementwise.floor(half_up)
        return elementwise.add(
            elementwise.multiply(steps, scalar_like(scale, x)), scalar_like(first, x)
        )

    return in_one_layout(rounded, node.input(0))


@converter("DENSIFY")
def densify(node: TfliteNode) -> Node:
    """Convert sparse weights, which the reader has written out."""
    return node.input(0)
