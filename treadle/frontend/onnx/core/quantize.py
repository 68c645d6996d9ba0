# SPDX-License-Identifier: Apache-2.0
"""Converters between floats and narrower types with a scale."""

from __future__ import annotations

from treadle.frontend.builders.conv import with_bias
from treadle.frontend.builders.matmul import product
from treadle.frontend.builders.quantize import (
    along_axis,
    centred,
    dequantized,
    dynamically_quantized,
    is_single,
    output_scale,
    per_block,
    quantized,
    requantized,
)
from treadle.frontend.onnx.core.conv import convolved_as_read
from treadle.frontend.onnx.node import OnnxNode, Result, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Node


@converter("QuantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def quantize_linear(node: OnnxNode) -> Node:
    """Convert round(x / scale) + zero point, clipped to an integer type; floats round later."""
    node.without_effect("precision")
    saturate = node.flag("saturate", True)
    zero_point = _along_axis(node, 2) if node.has_input(2) else None
    return quantized(node.input(0), _along_axis(node, 1), zero_point, _output_dtype(node), saturate)


def _output_dtype(node: OnnxNode) -> str:
    number = node.integer("output_dtype", 0) if node.version >= 21 else 0
    if number:
        return dtype_of(number)
    return node.type(2).dtype if node.has_input(2) else "uint8"


@converter("DequantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def dequantize_linear(node: OnnxNode) -> Node:
    """Convert (x - zero point) * scale."""
    number = node.integer("output_dtype", 0) if node.version >= 23 else 0
    dtype = dtype_of(number) if number else ""
    zero_point = _along_axis(node, 2) if node.has_input(2) else None
    return dequantized(node.input(0), _along_axis(node, 1), zero_point, dtype)


def _along_axis(node: OnnxNode, index: int) -> Node:
    """Return a scale or zero point shaped so that it broadcasts along the quantised axis."""
    value, ndim = node.input(index), node.type(0).ndim
    block = node.integer("block_size", 0) if node.version >= 21 else 0
    axis = node.integer("axis", 1)
    if block:
        return per_block(value, node.input(0), node.axis(axis, ndim), block)
    at = 0 if is_single(value) else node.axis(axis, ndim)  # one value needs no axis that exists
    return along_axis(value, node.input(0), at)


@converter("DynamicQuantizeLinear", since=(11,))
def dynamic_quantize_linear(node: OnnxNode) -> Result:
    """Convert a quantisation to uint8 whose scale follows from the data."""
    return dynamically_quantized(node.input(0))


@converter("QLinearMatMul", since=(10, 21))
def quantized_product(node: OnnxNode) -> Node:
    """Convert a product of 8-bit matrices with a scale and zero point for each."""
    total = product(_centred(node, 0, 2, -2), _centred(node, 3, 5, -1))
    return _requantized(node, total, (-2, -1))


def _centred(node: OnnxNode, index: int, zero: int, axis: int) -> Node:
    return centred(node.input(index), node.optional(zero), axis)


def _requantized(node: OnnxNode, total: Node, axes: tuple[int, int]) -> Node:
    """Return a total by the scales 1, 4 (of the factors) and 6, with zero point 7."""
    scale = output_scale(total, (node.input(1), node.input(4)), node.input(6), axes)
    return requantized(total, scale, node.input(7))


@converter("MatMulInteger", since=(10,))
def integer_product(node: OnnxNode) -> Node:
    """Convert a product of 8-bit integers, summed in 32 bits."""
    return product(_centred(node, 0, 2, -2), _centred(node, 1, 3, -1))


@converter("ConvInteger", since=(10,))
def integer_convolution(node: OnnxNode) -> Node:
    """Convert a convolution of 8-bit integers, summed in 32 bits; pads are the zero point."""
    return convolved_as_read(node, _centred(node, 0, 2, 1), _centred(node, 1, 3, 0))


@converter("QLinearConv", since=(10,))
def quantized_convolution(node: OnnxNode) -> Node:
    """Convert a convolution of 8-bit integers with scales and zero points."""
    total = convolved_as_read(node, _centred(node, 0, 2, 1), _centred(node, 3, 5, 0))
    return _requantized(node, with_bias(total, node.optional(8)), (1, 1))
