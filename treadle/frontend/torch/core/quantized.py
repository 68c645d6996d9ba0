# SPDX-License-Identifier: Apache-2.0
"""Converters of quantisation as programs of pt2e and torchao write it, and of its inverse."""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.frontend.builders.basic import broadcast, converted, dims_of, element_type, reshaped
from treadle.frontend.builders.quantize import along_axis, dequantized, limits, quantized
from treadle.frontend.torch.node import AtenNode, Operand, operand, quantized_decomposed
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import product_of
from treadle.ops import elementwise as ew
from treadle.ops import reduce as reductions


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


@quantized_decomposed("quantize_per_token")
def quantize_tokens(
    node: AtenNode, x: Node, scales: Node, zeros: Node, low: int, high: int, dtype: str
) -> Node:
    """Convert rounding to integers of a scale per vector of the last axis."""
    return _quantized(x, (scales, _zero_point(zeros, dtype)), (low, high), dtype)


@quantized_decomposed("dequantize_per_token")
def dequantize_tokens(
    node: AtenNode,
    x: Node,
    scales: Node,
    zeros: Node,
    low: int,
    high: int,
    dtype: str,
    out_dtype: str = "float32",
) -> Node:
    """Convert integers of a scale per vector of the last axis to numbers."""
    return dequantized(x, scales, _zero_point(zeros, element_type(x)), node.dtype())


@quantized_decomposed("quantize_per_channel_group")
def quantize_groups(
    node: AtenNode,
    x: Node,
    scales: Node,
    zeros: Node,
    low: int,
    high: int,
    dtype: str,
    group_size: int = 128,
) -> Node:
    """Convert rounding of a matrix to integers of a scale per group of a row's elements."""
    rows, parameters = _groups(x, scales, _zero_point(zeros, dtype), group_size)
    return reshaped(_quantized(rows, parameters, (low, high), dtype), dims_of(x))


@quantized_decomposed("dequantize_per_channel_group")
def dequantize_groups(
    node: AtenNode,
    x: Node,
    scales: Node,
    zeros: Node | None,
    low: int,
    high: int,
    dtype: str,
    group_size: int = 128,
    out_dtype: str = "float32",
) -> Node:
    """Convert a matrix of integers of a scale per group of a row's elements to numbers."""
    start = None if zeros is None else _zero_point(zeros, element_type(x))
    rows, parameters = _groups(x, scales, start, group_size)
    return reshaped(dequantized(rows, *parameters, node.dtype()), dims_of(x))


def _groups(
    x: Node, scales: Node, zeros: Node | None, size: int
) -> tuple[Node, tuple[Node, Node | None]]:
    """Return a matrix with a row per group, and scale and zero point of each as columns."""
    columns = dims_of(x)[-1]
    if isinstance(columns, int) and size > columns and dims_of(scales)[-1] == 1:
        size = columns
    count = product_of(dims_of(scales))
    starts = None if zeros is None else reshaped(zeros, (count, 1))
    return reshaped(x, (count, size)), (reshaped(scales, (count, 1)), starts)


# ---- scales and zero points that follow from a tensor --------------------------------------------


@quantized_decomposed("choose_qparams.tensor")
def choose_affine(
    node: AtenNode, x: Node, low: int, high: int, eps: float, dtype: str
) -> list[Node]:
    """Convert the scale and zero point by which integers cover the range of a tensor, and 0."""
    least, most = _range(x, None)
    scale = ew.maximum(_over(ew.subtract(most, least), high - low), _float(eps))
    start = ew.subtract(_float(low), ew.round(ew.divide(least, scale)))
    return _parameters(node, scale, ew.clip(start, min=float(low), max=float(high)))


@quantized_decomposed("choose_qparams_symmetric.tensor")
def choose_symmetric(
    node: AtenNode, x: Node, low: int, high: int, eps: float, dtype: str
) -> list[Node]:
    """Convert the scale by which integers cover the range of a tensor as far on both sides of 0."""
    least, most = _range(x, None)
    far = ew.maximum(ew.negative(least), most)
    scale = ew.maximum(_over(far, (high - low) / 2), _float(eps))
    return _parameters(node, scale, _float(128 if dtype == "uint8" else 0))


@quantized_decomposed("choose_qparams_per_token")
def choose_per_token(node: AtenNode, x: Node, dtype: str) -> list[Node]:
    """Convert scales by which integers reach the largest element of each vector, around 0."""
    least, most = _range(x, -1)
    far = ew.maximum(ew.maximum(ew.negative(least), most), _float(_LEAST_REACH))
    scale = _over(far, limits("int8")[1])
    return _parameters(node, scale, ew.multiply(scale, _float(0)))


@quantized_decomposed(
    "choose_qparams_per_token_asymmetric", "_choose_qparams_per_token_asymmetric_impl"
)
def choose_affine_per_token(node: AtenNode, x: Node, dtype: str) -> list[Node]:
    """Convert scales and zero points by which int8 covers the range of each vector, and 0.

    The zero point is that of the end of the range which it represents with the smaller error.
    """
    low, high = limits("int8")
    least, most = _range(x, -1)
    eps = float(np.finfo(np.float32).eps)
    scale = ew.maximum(_over(ew.subtract(most, least), high - low), _float(eps))
    bottom, top = ew.divide(least, scale), ew.divide(most, scale)
    error = ew.add(ew.add(bottom, _float(low)), ew.add(top, _float(high)))
    from_bottom, from_top = (ew.subtract(_float(a), b) for a, b in ((low, bottom), (high, top)))
    start = ew.where(ew.greater(error, _float(0)), from_bottom, from_top)
    return _parameters(node, scale, ew.round(ew.clip(start, min=low, max=high)))


_LEAST_REACH = 1e-5
"""What the largest element of a vector counts as at least (torch's choose_qparams_per_token)."""


def _range(x: Node, axis: int | None) -> tuple[Node, Node]:
    """Return the least and the largest element and 0, of all or along the last axis."""
    wide = converted(x, "float32")
    axes = tuple(range(len(dims_of(x)))) if axis is None else (len(dims_of(x)) - 1,)
    keeps = axis is not None
    least = reductions.min_(wide, axes=axes, keepdims=keeps)
    most = reductions.max_(wide, axes=axes, keepdims=keeps)
    return ew.minimum(least, _float(0)), ew.maximum(most, _float(0))


def _over(x: Node, steps: float) -> Node:
    return ew.divide(x, _float(steps))


def _float(value: float) -> Node:
    return Constant.of(float(value), "float32")


def _parameters(node: AtenNode, scale: Node, start: Node) -> list[Node]:
    """Return a scale and a zero point in the types and shapes that torch says they have."""
    pair = ((scale, 0), (start, 1))
    return [broadcast(converted(v, node.dtype(k)), node.dims(k)) for v, k in pair]


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
