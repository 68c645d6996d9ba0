# SPDX-License-Identifier: Apache-2.0
"""Converters between floats and narrower types with a scale."""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    dims_of,
    per_channel,
    reshaped,
    scalar_like,
    shape_of,
)
from treadle.frontend.onnx.core.conv import convolved
from treadle.frontend.onnx.core.matmul import product
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops import elementwise, movement, narrow
from treadle.ops import reduce as reductions

_NARROW = ("int8", "uint8", "int16", "uint16")


@converter("QuantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def quantize_linear(node: OnnxNode) -> Node:
    """Convert round(x / scale) + zero point, clipped to an integer type; floats round later."""
    node.without_effect("precision")
    saturate = node.flag("saturate", True)
    dtype = _output_dtype(node)
    if dtype not in (*_NARROW, *narrow.NARROW_INTEGERS, *narrow.FORMATS):
        raise ModelError(f"QuantizeLinear to {dtype} is not supported")
    x = converted(node.input(0), "float32")
    scale = converted(_along_axis(node, 1), "float32")
    steps: Node = elementwise.divide(x, scale)
    if dtype not in narrow.FORMATS:
        steps = elementwise.round(steps)
    if node.has_input(2):
        steps = elementwise.add(steps, converted(_along_axis(node, 2), "float32"))
    if dtype in narrow.FORMATS:
        return converted(steps, dtype, saturate)
    low, high = limits(dtype)
    return converted(elementwise.clip(steps, min=low, max=high), dtype)


def limits(dtype: str) -> tuple[float, float]:
    """Return the smallest and largest value of an integer type."""
    width = dt.NARROW_BITS.get(dtype, dt.bits(dtype))
    if dtype.startswith("uint"):
        return 0.0, 2.0**width - 1
    return -(2.0 ** (width - 1)), 2.0 ** (width - 1) - 1


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
    exact = "float32" if node.type(0).dtype in narrow.NARROW_FLOATS else "int32"
    steps: Node = converted(node.input(0), exact)
    if node.has_input(2):
        steps = elementwise.subtract(steps, converted(_along_axis(node, 2), exact))
    wide = elementwise.multiply(converted(steps, "float32"), converted(scale, "float32"))
    return converted(wide, dtype)


def _along_axis(node: OnnxNode, index: int) -> Node:
    """Return a scale or zero point shaped so that it broadcasts along the quantised axis."""
    value, shape, ndim = node.input(index), node.shape(index), node.type(0).ndim
    block = node.integer("block_size", 0) if node.version >= 21 else 0
    axis = node.integer("axis", 1)
    if block:
        return _per_block(node, value, node.axis(axis, ndim), block)
    if int(np.prod(shape, dtype=object)) == 1:
        return reshaped(value, ())
    at = node.axis(axis, ndim)
    if len(shape) != 1 or shape[0] != node.dims(0)[at]:
        raise ModelError(f"{value.type} does not fit axis {at} of {node.type(0)}")
    return reshaped(value, (*shape, *(1,) * (ndim - at - 1)))


def _per_block(node: OnnxNode, value: Node, axis: int, block: int) -> Node:
    """Return one scale or zero point per element from one for each block along an axis."""
    shape = node.shape(0)
    blocks = -(-shape[axis] // block) if block > 0 else 0
    if shape_of(value) != (*shape[:axis], blocks, *shape[axis + 1 :]):
        raise ModelError(
            f"{value.type} does not fit blocks of {block} along axis {axis} of {node.type(0)}"
        )
    chosen = np.arange(shape[axis], dtype="int64") // block
    return movement.gather(value, Constant.of(chosen), axis=axis)


@converter("DynamicQuantizeLinear", since=(11,))
def dynamic_quantize_linear(node: OnnxNode) -> list[Node]:
    """Convert a quantisation to uint8 whose scale follows from the data."""
    x = node.input(0)
    axes = tuple(range(node.type(0).ndim))
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


def centred(node: OnnxNode, index: int, zero: int, axis: int) -> Node:
    """Return an 8-bit input as int32 less its zero point, which may be one per entry of `axis`."""
    wide = converted(node.input(index), "int32")
    point = node.optional(zero)
    if point is None:
        return wide
    return elementwise.subtract(wide, converted(_spread(point, wide, axis), "int32"))


def _spread(value: Node, x: Node, axis: int) -> Node:
    """Return a scale or zero point shaped to broadcast against `x`: for all, or along `axis`."""
    shape, full = shape_of(value), dims_of(x)
    if int(np.prod(shape, dtype=object)) == 1:
        return reshaped(value, ())
    if len(shape) == 1 and shape[0] == full[axis]:
        return reshaped(value, [d if k == axis % len(full) else 1 for k, d in enumerate(full)])
    if len(shape) == len(full):
        return value
    raise ModelError(f"{value.type} does not fit axis {axis} of {x.type}")


def _requantized(node: OnnxNode, total: Node, scale: Node, point: Node) -> Node:
    """Return round(total * scale) + zero point in the type of the zero point, clipped to it."""
    dtype = tensor_type(point.type).dtype
    if dtype not in _NARROW:
        raise ModelError(f"{node.op} to {dtype} is not supported")
    steps = elementwise.round(elementwise.multiply(converted(total, "float32"), scale))
    moved = elementwise.add(steps, converted(_spread(point, total, -1), "float32"))
    low, high = limits(dtype)
    return converted(elementwise.clip(moved, min=low, max=high), dtype)


def _output_scale(node: OnnxNode, total: Node, axes: tuple[int, int]) -> Node:
    """Return scale of a * scale of b / scale of the result, in float32."""
    a = _spread(converted(node.input(1), "float32"), total, axes[0])
    b = _spread(converted(node.input(4), "float32"), total, axes[1])
    result = _spread(converted(node.input(6), "float32"), total, -1)
    return elementwise.divide(elementwise.multiply(a, b), result)


@converter("QLinearMatMul", since=(10, 21))
def quantized_product(node: OnnxNode) -> Node:
    """Convert a product of 8-bit matrices with a scale and zero point for each."""
    total = product(centred(node, 0, 2, -2), centred(node, 3, 5, -1))
    return _requantized(node, total, _output_scale(node, total, (-2, -1)), node.input(7))


@converter("MatMulInteger", since=(10,))
def integer_product(node: OnnxNode) -> Node:
    """Convert a product of 8-bit integers, summed in 32 bits."""
    return product(centred(node, 0, 2, -2), centred(node, 1, 3, -1))


@converter("ConvInteger", since=(10,))
def integer_convolution(node: OnnxNode) -> Node:
    """Convert a convolution of 8-bit integers, summed in 32 bits; pads are the zero point."""
    return convolved(node, centred(node, 0, 2, 1), centred(node, 1, 3, 0))


@converter("QLinearConv", since=(10,))
def quantized_convolution(node: OnnxNode) -> Node:
    """Convert a convolution of 8-bit integers with scales and zero points."""
    total = convolved(node, centred(node, 0, 2, 1), centred(node, 3, 5, 0))
    if node.has_input(8):
        total = elementwise.add(total, per_channel(node.input(8), len(dims_of(total))))
    return _requantized(node, total, _output_scale(node, total, (1, 1)), node.input(7))
