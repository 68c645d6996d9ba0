# SPDX-License-Identifier: Apache-2.0
"""Converters of the quantised operators of onnxruntime's own domain (com.microsoft).

Most are an operator on real numbers between integers with a scale and a zero point each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    converted,
    cut_columns,
    dims_of,
    known_width,
    reshaped,
    shape_of,
    transposed,
)
from treadle.frontend.builders.matmul import product
from treadle.frontend.builders.movement import taken
from treadle.frontend.builders.quantize import (
    centred,
    dynamically_quantized_product,
    limits,
    per_column,
    scaled_product,
)
from treadle.frontend.onnx.core.norm import softmax
from treadle.frontend.onnx.core.pool import average_pool, global_average_pool
from treadle.frontend.onnx.core.quantize import (
    dequantize_linear,
    quantize_linear,
    quantized_convolution,
)
from treadle.frontend.onnx.microsoft.transformer import DOMAIN
from treadle.frontend.onnx.node import ConvertFn, OnnxNode, Result, converter
from treadle.graph.nodes import Constant, Node
from treadle.ops import activation, elementwise, indexing, movement
from treadle.ops import reduce as reductions
from treadle.ops.lowered.matmul_blocks import dense_blocks

_PANEL = 64
"""Columns of weights that lie side by side: a line of memory of bytes."""

converter("QuantizeLinear", since=(1,), domain=DOMAIN)(quantize_linear)
converter("DequantizeLinear", since=(1,), domain=DOMAIN)(dequantize_linear)


def _results(result: Result) -> Sequence[Node]:
    """Return what another converter makes as a list."""
    return result if isinstance(result, Sequence) else [result]


def _real(x: Node, scale: Node, zero: Node | None) -> Node:
    """Return (x - zero point) * scale of per-tensor parameters in float32."""
    steps = converted(x, "int32")
    if zero is not None:
        steps = elementwise.subtract(steps, converted(reshaped(zero, ()), "int32"))
    return elementwise.multiply(converted(steps, "float32"), reshaped(scale, ()))


def _stored(value: Node, scale: Node, zero: Node | None, dtype: str) -> Node:
    """Return round(value / scale) + zero point, clipped to `dtype`."""
    steps: Node = elementwise.round(elementwise.divide(value, reshaped(scale, ())))
    if zero is not None:
        steps = elementwise.add(steps, converted(reshaped(zero, ()), "float32"))
    low, high = limits(dtype)
    return converted(elementwise.clip(steps, min=low, max=high), dtype)


def _input(node: OnnxNode, at: int) -> Node:
    return _real(node.input(at), node.input(at + 1), node.optional(at + 2))


def _output(node: OnnxNode, value: Node, at: int) -> Node:
    return _stored(value, node.input(at), node.optional(at + 1), node.type(0).dtype)


@converter("QLinearAdd", since=(1,), domain=DOMAIN)
def quantized_sum(node: OnnxNode) -> Node:
    """Convert a sum of quantised tensors."""
    return _output(node, elementwise.add(_input(node, 0), _input(node, 3)), 6)


@converter("QLinearMul", since=(1,), domain=DOMAIN)
def quantized_multiple(node: OnnxNode) -> Node:
    """Convert an element-wise product of quantised tensors."""
    return _output(node, elementwise.multiply(_input(node, 0), _input(node, 3)), 6)


@converter("QLinearSigmoid", since=(1,), domain=DOMAIN)
def quantized_sigmoid(node: OnnxNode) -> Node:
    """Convert a sigmoid of a quantised tensor."""
    return _output(node, elementwise.sigmoid(_input(node, 0)), 3)


@converter("QLinearLeakyRelu", since=(1,), domain=DOMAIN)
def quantized_leaky_relu(node: OnnxNode) -> Node:
    """Convert a leaky rectifier of a quantised tensor."""
    alpha = node.number("alpha", 0.01)
    return _output(node, activation.leaky_relu(_input(node, 0), alpha=alpha), 3)


@converter("QLinearSoftmax", since=(1,), domain=DOMAIN)
def quantized_softmax(node: OnnxNode) -> Node:
    """Convert a softmax of a quantised tensor, by the rules of the opset that is an attribute."""
    version = 13 if node.integer("opset", 13) >= 13 else 11
    inner = replace(node, version=version, inputs=(_input(node, 0),))
    return _output(node, _results(softmax(inner))[0], 3)


@converter("QLinearGlobalAveragePool", since=(1,), domain=DOMAIN)
def quantized_global_average(node: OnnxNode) -> Node:
    """Convert the mean of every channel of a quantised tensor."""
    return _output(node, _channels_first(node, _input(node, 0), global_average_pool), 3)


@converter("QLinearAveragePool", since=(1,), domain=DOMAIN)
def quantized_average_pool(node: OnnxNode) -> Node:
    """Convert a pool of the mean of a quantised tensor."""
    return _output(node, _channels_first(node, _input(node, 0), average_pool), 3)


def _channels_first(node: OnnxNode, x: Node, convert: ConvertFn) -> Node:
    """Apply a converter to data [n, c, ...], transposed where the node has [n, ..., c]."""
    ndim = len(dims_of(x))
    if not node.flag("channels_last"):
        return _results(convert(replace(node, inputs=(x,))))[0]
    first = transposed(x, (0, ndim - 1, *range(1, ndim - 1)))
    made = _results(convert(replace(node, inputs=(first,))))[0]
    return transposed(made, (0, *range(2, ndim), 1))


@converter("QLinearReduceMean", since=(1,), domain=DOMAIN)
def quantized_mean(node: OnnxNode) -> Node:
    """Convert a mean over axes of a quantised tensor."""
    ndim = node.type(0).ndim
    axes = node.axes(node.integers("axes") or tuple(range(ndim)), ndim)
    keep = node.flag("keepdims", True)
    return _output(node, reductions.mean(_input(node, 0), axes=axes, keepdims=keep), 3)


@converter("QLinearConcat", since=(1,), domain=DOMAIN)
def quantized_concat(node: OnnxNode) -> Node:
    """Convert a concatenation of tensors with a scale and zero point each."""
    if len(node.inputs) % 3 != 2 or len(node.inputs) < 5:
        raise ModelError(f"QLinearConcat takes three inputs per tensor, not {len(node.inputs)}")
    parts = [_input(node, k) for k in range(2, len(node.inputs), 3)]
    axis = node.axis(node.integer("axis"), len(dims_of(parts[0])))
    whole = movement.concat(*parts, axis=axis)
    return _stored(whole, node.input(0), node.input(1), node.type(1).dtype)


@converter("QLinearWhere", since=(1,), domain=DOMAIN)
def quantized_where(node: OnnxNode) -> Node:
    """Convert a choice between quantised tensors."""
    chosen = elementwise.where(node.input(0), _input(node, 1), _input(node, 4))
    return _stored(chosen, node.input(7), node.input(8), node.type(1).dtype)


@converter("QLinearConv", since=(1,), domain=DOMAIN)
def quantized_conv(node: OnnxNode) -> Node:
    """Convert a quantised convolution of data with the channels in second place."""
    if node.flag("channels_last"):
        raise ModelError("QLinearConv with channels_last is not supported")
    return _results(quantized_convolution(node))[0]


def _centred(node: OnnxNode, index: int, zero: int, axis: int) -> Node:
    return centred(node.input(index), node.optional(zero), axis)


@converter("MatMulIntegerToFloat", since=(1,), domain=DOMAIN)
def integer_product_to_float(node: OnnxNode) -> Node:
    """Convert a product of 8-bit matrices, brought to float32."""
    total = product(_centred(node, 0, 4, -2), _centred(node, 1, 5, -1))
    return scaled_product(total, (node.input(2), node.input(3)), node.optional(6))


@converter("DynamicQuantizeMatMul", since=(1,), domain=DOMAIN)
def dynamic_product(node: OnnxNode) -> Node:
    """Convert a product whose left side is quantised by its own range first."""
    x, weights, scale = (node.input(k) for k in range(3))
    return dynamically_quantized_product(x, weights, scale, node.optional(3), node.optional(4))


@converter("QGemm", since=(1,), domain=DOMAIN)
def quantized_gemm(node: OnnxNode) -> Node:
    """Convert alpha * A' B' + C of 8-bit matrices, as float32 or quantised again."""
    a, b = _centred(node, 0, 2, -2), _centred(node, 3, 5, 0 if node.flag("transB") else -1)
    a = transposed(a, (1, 0)) if node.flag("transA") else a
    b = transposed(b, (1, 0)) if node.flag("transB") else b
    total = product(a, b)
    if node.has_input(6):
        total = elementwise.add(total, node.input(6))
    scale = elementwise.multiply(per_column(node.input(1)), per_column(node.input(4)))
    alpha = Constant.of(node.number("alpha", 1.0), "float32")
    value = elementwise.multiply(converted(total, "float32"), elementwise.multiply(scale, alpha))
    return _output(node, value, 7) if node.has_input(7) else value


@converter("MatMulNBits", since=(1,), domain=DOMAIN)
def blockwise_product(node: OnnxNode) -> Node:
    """Convert a product with weights [columns, rows] of 2, 4 or 8 bits, scaled by blocks.

    The weights stay packed: they are most of what a model of this kind reads.
    """
    node.without_effect("accuracy_level")
    if node.has_input(4) or node.integer("weight_prepacked", 0):
        raise ModelError("MatMulNBits with g_idx or prepacked weights is not supported")
    bits, size = node.integer("bits", 4), node.integer("block_size")
    rows, columns = node.integer("K"), node.integer("N")
    if bits not in (2, 4, 8) or size < 8 or min(rows, columns) < 1:
        raise ModelError(f"MatMulNBits of {bits} bits in blocks of {size} is not supported")
    blocks = -(-rows // size)
    stored = (columns, blocks, size * bits // 8)
    if int(np.prod(node.shape(1), dtype=object)) != int(np.prod(stored)):
        raise ModelError(f"the weights {node.type(1)} are not {list(stored)} bytes")
    dtype = node.type(0).dtype
    scales = converted(reshaped(node.input(2), (columns, blocks)), dtype)
    made = dense_blocks(
        _whole_blocks(node.input(0), rows, blocks * size),
        _in_panels(reshaped(node.input(1), stored)),
        _in_panels(scales),
        _zero_points(node, bits, columns, blocks, dtype),
        n=columns,
        bits=bits,
    )
    return elementwise.add(made, node.input(5)) if node.has_input(5) else made


def _whole_blocks(x: Node, rows: int, padded: int) -> Node:
    """Return the values with zeros for what the last block of weights has beyond them."""
    ndim = len(dims_of(x))
    if dims_of(x)[-1] != rows or ndim < 2:
        raise ModelError(f"MatMulNBits with K = {rows} takes [..., {rows}] values, not {x.type}")
    if rows == padded:
        return x
    none = (0,) * ndim
    return movement.pad(x, before=none, after=(*none[:-1], padded - rows))


def _in_panels(x: Node) -> Node:
    """Return [columns, blocks, ...] as [panels, blocks, ..., width], padded by zeros."""
    columns, *rest = shape_of(x)
    panels = -(-columns // _PANEL)
    if columns % _PANEL:
        none = (0,) * (len(rest) + 1)
        x = movement.pad(x, before=none, after=(panels * _PANEL - columns, *none[1:]))
    apart = reshaped(x, (panels, _PANEL, *rest))
    return transposed(apart, (0, *range(2, len(rest) + 2), 1))


def _zero_points(node: OnnxNode, bits: int, columns: int, blocks: int, dtype: str) -> Node:
    """Return one zero for all, or one per block and column in panels."""
    if not node.has_input(3):
        return Constant.of(np.full((1, 1, 1), 1 << (bits - 1), "uint8"))
    if dt.is_float(node.type(3).dtype):
        return _in_panels(converted(reshaped(node.input(3), (columns, blocks)), dtype))
    packed = reshaped(node.input(3), (columns, -(-blocks * bits // 8)))
    return _in_panels(cut_columns(_unpacked(packed, bits), 0, blocks))


def _unpacked(x: Node, bits: int) -> Node:
    """Return bytes [..., n] as [..., n * 8 / bits] smaller numbers, the lowest bits first."""
    if bits == 8:
        return x
    lead, width = dims_of(x)[:-1], known_width(x)
    shifts = np.arange(0, 8, bits, dtype="uint8")
    apart = elementwise.shift_right(reshaped(x, (*lead, width, 1)), Constant.of(shifts))
    low = elementwise.bitwise_and(apart, Constant.of((1 << bits) - 1, "uint8"))
    return reshaped(low, (*lead, width * len(shifts)))


@converter("GatherBlockQuantized", since=(1,), domain=DOMAIN)
def gather_blocks(node: OnnxNode) -> Node:
    """Convert a choice of rows of a table whose numbers are scaled by blocks of the last axis."""
    ndim, packed = node.type(0).ndim, node.type(0).dtype == "uint8"
    bits, size = node.integer("bits", 4), node.integer("block_size", 128)
    axis = node.axis(node.integer("gather_axis", 0), ndim)
    if node.axis(node.integer("quantize_axis", 1), ndim) != ndim - 1 or axis == ndim - 1:
        raise ModelError("GatherBlockQuantized that scales along another axis is not supported")

    def rows(index: int) -> Node:
        return taken(node.input(index), node.input(1), axis, node.op)

    values = _unpacked(rows(0), bits) if packed else rows(0)
    width = known_width(values)
    dtype = node.type(2).dtype
    spread = Constant.of(np.arange(width) // size)
    steps = converted(values, dtype)
    if node.has_input(3):
        zeros = _unpacked(rows(3), bits) if packed else rows(3)
        steps = elementwise.subtract(steps, converted(_along(zeros, spread), dtype))
    elif packed:
        steps = elementwise.subtract(steps, Constant.of(1 << (bits - 1), dtype))
    return elementwise.multiply(steps, _along(rows(2), spread))


def _along(x: Node, places: Node) -> Node:
    return indexing.gather(x, places, axis=len(dims_of(x)) - 1)
