# SPDX-License-Identifier: Apache-2.0
"""Converters of quantisation as programs of pt2e and torchao write it, and of its inverse."""

from __future__ import annotations

from treadle import dtype as dt
from treadle.frontend.builders.basic import element_type, reshaped
from treadle.frontend.builders.quantize import along_axis, dequantized, limits, quantized
from treadle.frontend.torch.node import AtenNode, Operand, operand, quantized_decomposed
from treadle.graph.nodes import Constant, Node


@quantized_decomposed("quantize_per_tensor", "quantize_per_tensor.tensor")
def quantize(
    node: AtenNode, x: Node, scale: Operand, zero: Operand, low: int, high: int, dtype: str
) -> Node:
    """Convert rounding to integers of one scale; it counts from `zero` and is clipped."""
    parameters = _single(scale, "float32"), _zero_point(_single(zero, "int64"), dtype)
    return _quantized(x, parameters, (low, high), dtype)


@quantized_decomposed("dequantize_per_tensor", "dequantize_per_tensor.tensor")
def dequantize(
    node: AtenNode,
    x: Node,
    scale: Operand,
    zero: Operand,
    low: int,
    high: int,
    dtype: str,
    *,
    out_dtype: str | None = None,
) -> Node:
    """Convert integers of one scale to numbers."""
    start = _zero_point(_single(zero, "int64"), element_type(x))
    return dequantized(x, _single(scale, "float32"), start, node.dtype())


@quantized_decomposed("quantize_per_channel")
def quantize_channels(
    node: AtenNode, x: Node, scale: Node, zero: Node, axis: int, low: int, high: int, dtype: str
) -> Node:
    """Convert rounding to integers of a scale per entry of an axis."""
    return _quantized(x, _per_entry(node, x, scale, zero, (axis, dtype)), (low, high), dtype)


@quantized_decomposed("dequantize_per_channel")
def dequantize_channels(
    node: AtenNode,
    x: Node,
    scale: Node,
    zero: Node | None,
    axis: int,
    low: int,
    high: int,
    dtype: str,
    *,
    out_dtype: str | None = None,
) -> Node:
    """Convert integers of a scale per entry of an axis to numbers."""
    return dequantized(x, *_per_entry(node, x, scale, zero, (axis, element_type(x))), node.dtype())


def _per_entry(
    node: AtenNode, x: Node, scale: Node, zero: Node | None, kind: tuple[int, str]
) -> tuple[Node, Node | None]:
    """Return scale and zero point that broadcast against `x` along an axis, of an integer type."""
    axis, dtype = node.axis(kind[0], x), kind[1]
    start = None if zero is None else _zero_point(zero, dtype)
    return along_axis(scale, x, axis), start if start is None else along_axis(start, x, axis)


def _quantized(
    x: Node, parameters: tuple[Node, Node | None], bounds: tuple[int, int], dtype: str
) -> Node:
    low, high = limits(dtype)
    narrow = (max(float(bounds[0]), low), min(float(bounds[1]), high))
    return quantized(x, *parameters, dtype, bounds=narrow)


def _single(value: Operand, dtype: str) -> Node:
    """Return a scale or zero point of all elements as a scalar."""
    made = operand(value, element_type(value) if isinstance(value, Node) else dtype)
    return reshaped(made, ())


def _zero_point(value: Node, dtype: str) -> Node | None:
    """Return a zero point, which torch keeps in int64, in the type of the integers if it fits.

    Integer products are recognised by factors that are bytes less bytes. None where it is 0.
    """
    if not isinstance(value, Constant):
        return value
    if not value.value.any():
        return None
    low, high = limits(dtype)
    fits = low <= value.value.min() and value.value.max() <= high
    return Constant.of(value.value.astype(dt.to_numpy(dtype))) if fits else value
