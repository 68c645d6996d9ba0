# SPDX-License-Identifier: Apache-2.0
"""Converters between floats and 8-bit or 16-bit integers with a scale."""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.onnx.build import converted, reshaped, scalar_like, shape_of
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops import elementwise
from treadle.ops import reduce as reductions

_NARROW = ("int8", "uint8", "int16", "uint16")


@converter("QuantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def quantize_linear(node: OnnxNode) -> Node:
    """Convert round(x / scale) + zero point, clipped to the integer type."""
    node.without_effect("saturate", "precision")
    dtype = _output_dtype(node)
    if dtype not in _NARROW:
        raise ModelError(f"QuantizeLinear to {dtype} is not supported")
    x = converted(node.input(0), "float32")
    scale = converted(_along_axis(node, 1), "float32")
    steps: Node = elementwise.round(elementwise.divide(x, scale))
    if node.has_input(2):
        steps = elementwise.add(steps, converted(_along_axis(node, 2), "float32"))
    low, high = float(dt.min_value(dtype)), float(dt.max_value(dtype))
    return converted(elementwise.clip(steps, min=low, max=high), dtype)


def _output_dtype(node: OnnxNode) -> str:
    number = node.integer("output_dtype", 0) if node.version >= 21 else 0
    if number:
        return dtype_of(number)
    return node.type(2).dtype if node.has_input(2) else "uint8"


@converter("DequantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def dequantize_linear(node: OnnxNode) -> Node:
    """Convert (x - zero point) * scale."""
    scale = _along_axis(node, 1)
    number = node.integer("output_dtype", 0) if node.version >= 23 else 0
    dtype = dtype_of(number) if number else tensor_type(scale.type).dtype
    steps: Node = converted(node.input(0), "int32")
    if node.has_input(2):
        steps = elementwise.subtract(steps, converted(_along_axis(node, 2), "int32"))
    wide = elementwise.multiply(converted(steps, "float32"), converted(scale, "float32"))
    return converted(wide, dtype)


def _along_axis(node: OnnxNode, index: int) -> Node:
    """Return a scale or zero point shaped so that it broadcasts along the quantised axis."""
    value, shape, ndim = node.input(index), node.shape(index), node.type(0).ndim
    if node.version >= 21 and node.integer("block_size", 0):
        raise ModelError(f"{node.op} with blocks along an axis is not supported")
    axis = node.integer("axis", 1) if node.version >= 13 else 1
    if int(np.prod(shape, dtype=object)) == 1:
        return reshaped(value, ())
    at = node.axis(axis, ndim)
    if len(shape) != 1 or shape[0] != node.shape(0)[at]:
        raise ModelError(f"{value.type} does not fit axis {at} of {node.type(0)}")
    return reshaped(value, (*shape, *(1,) * (ndim - at - 1)))


@converter("DynamicQuantizeLinear", since=(11,))
def dynamic_quantize_linear(node: OnnxNode) -> list[Node]:
    """Convert a quantisation to uint8 whose scale follows from the data."""
    x = node.input(0)
    axes = tuple(range(len(shape_of(x))))
    zero = scalar_like(0.0, x)
    low = elementwise.minimum(reductions.min_(x, axes=axes, keepdims=False), zero)
    high = elementwise.maximum(reductions.max_(x, axes=axes, keepdims=False), zero)
    spread = elementwise.divide(elementwise.subtract(high, low), scalar_like(255.0, x))
    is_flat = elementwise.equal(spread, zero)
    scale = elementwise.where(is_flat, Constant.of(1.0, "float32"), spread)
    point = elementwise.round(elementwise.divide(elementwise.negative(low), scale))
    point = elementwise.clip(point, min=0.0, max=255.0)
    steps = elementwise.add(elementwise.round(elementwise.divide(x, scale)), point)
    quantized = converted(elementwise.clip(steps, min=0.0, max=255.0), "uint8")
    return [quantized, spread, converted(point, "uint8")]
