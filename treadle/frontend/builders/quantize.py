# SPDX-License-Identifier: Apache-2.0
"""Builders of quantised arithmetic: between real numbers and integers with a scale and zero point.

A real number is (integer - zero point) * scale (Jacob et al., "Quantization and training of neural
networks for efficient integer-arithmetic-only inference", 2018).
"""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of, reshaped, scalar_like, shape_of
from treadle.frontend.builders.matmul import product
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops import elementwise, indexing, low_precision
from treadle.ops import reduce as reductions

INTEGERS = ("int8", "uint8", "int16", "uint16")
"""The integer types that values are requantised to."""


def limits(dtype: str) -> tuple[float, float]:
    """Return the smallest and largest value of an integer type."""
    width = dt.NARROW_BITS.get(dtype, dt.bits(dtype))
    if dtype.startswith("uint"):
        return 0.0, 2.0**width - 1
    return -(2.0 ** (width - 1)), 2.0 ** (width - 1) - 1


def quantized(
    x: Node,
    scale: Node,
    zero_point: Node | None,
    dtype: str,
    saturate: bool = True,
    bounds: tuple[float, float] | None = None,
) -> Node:
    """Return round(x / scale) + zero point, clipped to an integer type; floats round later.

    Scale and zero point broadcast against `x`: see `along_axis` and `per_block`. Integers are
    clipped to `bounds` where these are narrower than the type.
    """
    if dtype not in (*INTEGERS, *low_precision.NARROW_INTEGERS, *low_precision.FORMATS):
        raise ModelError(f"quantising to {dtype} is not supported")
    steps: Node = elementwise.divide(converted(x, "float32"), converted(scale, "float32"))
    if dtype not in low_precision.FORMATS:
        steps = elementwise.round(steps)
    if zero_point is not None:
        steps = elementwise.add(steps, converted(zero_point, "float32"))
    if dtype in low_precision.FORMATS:
        return converted(steps, dtype, saturate)
    low, high = bounds or limits(dtype)
    return converted(elementwise.clip(steps, min=low, max=high), dtype)


def dequantized(x: Node, scale: Node, zero_point: Node | None, dtype: str = "") -> Node:
    """Return (x - zero point) * scale, computed in float32, of type `dtype` or that of the scale.

    Scale and zero point broadcast against `x`: see `along_axis` and `per_block`.
    """
    exact = "float32" if tensor_type(x.type).dtype in low_precision.NARROW_FLOATS else "int32"
    steps: Node = converted(x, exact)
    if zero_point is not None:
        steps = elementwise.subtract(steps, converted(zero_point, exact))
    wide = elementwise.multiply(converted(steps, "float32"), converted(scale, "float32"))
    return converted(wide, dtype or tensor_type(scale.type).dtype)


def is_single(value: Node) -> bool:
    """True for a scale or zero point that holds for all elements, of whatever rank it is."""
    return int(np.prod(shape_of(value), dtype=object)) == 1


def along_axis(value: Node, x: Node, axis: int) -> Node:
    """Return a scale or zero point, one or one per entry of an axis, so that it broadcasts."""
    if is_single(value):
        return reshaped(value, ())
    shape, dims = shape_of(value), dims_of(x)
    if len(shape) != 1 or shape[0] != dims[axis]:
        raise ModelError(f"{value.type} does not fit axis {axis} of {x.type}")
    return reshaped(value, (*shape, *(1,) * (len(dims) - axis - 1)))


def per_block(value: Node, x: Node, axis: int, block: int) -> Node:
    """Return one scale or zero point per element from one for each block along an axis."""
    shape = shape_of(x)
    blocks = -(-shape[axis] // block) if block > 0 else 0
    if shape_of(value) != (*shape[:axis], blocks, *shape[axis + 1 :]):
        raise ModelError(
            f"{value.type} does not fit blocks of {block} along axis {axis} of {x.type}"
        )
    chosen = np.arange(shape[axis], dtype="int64") // block
    return indexing.gather(value, Constant.of(chosen), axis=axis)


def dynamically_quantized(x: Node) -> tuple[Node, Node, Node]:
    """Return x as uint8 by a scale that follows from its range, that scale, and its zero point."""
    axes = tuple(range(len(dims_of(x))))
    zero = scalar_like(0.0, x)
    low = elementwise.minimum(reductions.min_(x, axes=axes, keepdims=False), zero)
    high = elementwise.maximum(reductions.max_(x, axes=axes, keepdims=False), zero)
    spread = elementwise.divide(elementwise.subtract(high, low), scalar_like(255.0, x))
    is_flat = elementwise.equal(spread, zero)
    scale = elementwise.where(is_flat, Constant.of(1.0, "float32"), spread)
    point = elementwise.round(elementwise.divide(elementwise.negative(low), scale))
    point = elementwise.clip(point, min=0.0, max=255.0)
    steps = elementwise.add(elementwise.round(elementwise.divide(x, scale)), point)
    bytes_ = converted(elementwise.clip(steps, min=0.0, max=255.0), "uint8")
    return bytes_, spread, converted(point, "uint8")


def centred(x: Node, zero_point: Node | None, axis: int) -> Node:
    """Return 8-bit values as int32 less their zero point, one or one per entry of `axis`."""
    wide = converted(x, "int32")
    if zero_point is None:
        return wide
    return elementwise.subtract(wide, converted(_spread(zero_point, wide, axis), "int32"))


def _spread(value: Node, x: Node, axis: int) -> Node:
    """Return a scale or zero point shaped to broadcast against `x`: for all, or along `axis`."""
    if is_single(value):
        return reshaped(value, ())
    shape, full = shape_of(value), dims_of(x)
    if len(shape) == 1 and shape[0] == full[axis]:
        return reshaped(value, [d if k == axis % len(full) else 1 for k, d in enumerate(full)])
    if len(shape) == len(full):
        return value
    raise ModelError(f"{value.type} does not fit axis {axis} of {x.type}")


def scaled_product(total: Node, scales: tuple[Node, Node], bias: Node | None = None) -> Node:
    """Return an int32 product as float32 by the scales of its factors, with a bias.

    A scale is one number, or one per column of the product.
    """
    return _scaled(total, elementwise.multiply(*map(per_column, scales)), bias)


def _scaled(total: Node, scale: Node, bias: Node | None) -> Node:
    result = elementwise.multiply(converted(total, "float32"), scale)
    return result if bias is None else elementwise.add(result, bias)


def per_column(scale: Node) -> Node:
    """Return a scale that broadcasts along the last axis, whatever rank one value has."""
    return reshaped(scale, ()) if is_single(scale) else scale


def dynamically_quantized_product(
    x: Node, weights: Node, scale: Node, zero_point: Node | None, bias: Node | None = None
) -> Node:
    """Return x by 8-bit weights in float32, where x is quantised by its own range first."""
    rows, row_scale, row_zero = dynamically_quantized(x)
    total = product(centred(rows, row_zero, -2), centred(weights, zero_point, -1))
    return _scaled(total, elementwise.multiply(row_scale, per_column(scale)), bias)


def requantized(total: Node, scale: Node, zero_point: Node) -> Node:
    """Return round(total * scale) + zero point in the type of the zero point, clipped to it."""
    dtype = tensor_type(zero_point.type).dtype
    if dtype not in INTEGERS:
        raise ModelError(f"a quantised result of {dtype} is not supported")
    steps = elementwise.round(elementwise.multiply(converted(total, "float32"), scale))
    moved = elementwise.add(steps, converted(_spread(zero_point, total, -1), "float32"))
    low, high = limits(dtype)
    return converted(elementwise.clip(moved, min=low, max=high), dtype)


def output_scale(
    total: Node, scales: tuple[Node, Node], result: Node, axes: tuple[int, int]
) -> Node:
    """Return scale of a * scale of b / scale of the result, in float32.

    A scale of a factor may have a value per entry of the axis of the total that `axes` gives it.
    """
    a, b = (
        _spread(converted(s, "float32"), total, axis) for s, axis in zip(scales, axes, strict=True)
    )
    return elementwise.divide(
        elementwise.multiply(a, b), _spread(converted(result, "float32"), total, -1)
    )
