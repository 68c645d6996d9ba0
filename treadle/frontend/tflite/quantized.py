# SPDX-License-Identifier: Apache-2.0
"""Integers with a scale, as TFLite quantises: per tensor, per channel, and weights alone.

A tensor of integers stands for real numbers (Jacob et al., "Quantization and training of neural
networks for efficient integer-arithmetic-only inference", 2018). What is computed of integers
without real numbers is in `fixed_point.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of, element_type, scalar_like
from treadle.frontend.builders.quantize import along_axis, dequantized, limits
from treadle.frontend.tflite.fixed_point import bounds_of, halves_of, nearest
from treadle.frontend.tflite.model import Quantization
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise
from treadle.ops import reduce as reductions


def _along(value: np.ndarray, x: Node, how: Quantization) -> Node:
    return along_axis(Constant.of(value), x, how.axis if value.size > 1 else 0)


def _points(how: Quantization, dtype: str) -> np.ndarray:
    """Return zero points in the type of the integers. Raises ModelError for one it cannot hold."""
    low, high = limits(dtype)
    if how.zero_points.min() < low or how.zero_points.max() > high:
        raise ModelError(f"a zero point is outside of {dtype}")
    return how.zero_points.astype(dtype)


def dequantized_tensor(x: Node, how: Quantization) -> Node:
    """Return integers as the float32 numbers they stand for."""
    points = _points(how, element_type(x))
    zero = _along(points, x, how) if points.any() else None
    return dequantized(x, _along(how.scales, x, how), zero)


def quantized_tensor(x: Node, how: Quantization, dtype: str) -> Node:
    """Return real numbers as integers of a type, the nearest ones, within its limits."""
    points = _points(how, dtype)
    if (how.scales == 0).any():
        raise ModelError("a result is quantised with a scale of 0")
    wide = converted(x, "float32")
    steps = nearest(elementwise.divide(wide, _along(how.scales, x, how)))
    if points.any():
        steps = elementwise.add(steps, _along(points.astype("float32"), x, how))
    return converted(_limited(steps, dtype), dtype)


def _limited(steps: Node, dtype: str) -> Node:
    """Return whole numbers within the limits of an integer type, as far as float32 has them."""
    low, high = limits(dtype)
    if dtype in ("int32", "int64"):  # the largest float32 below the limit
        high = float(np.nextafter(np.float32(high), np.float32(0)))
    return elementwise.clip(steps, min=low, max=high)


def centred_tensor(x: Node, how: Quantization) -> Node:
    """Return 8- or 16-bit integers as int32 less their zero points."""
    wide = converted(x, "int32")
    points = _points(how, element_type(x)).astype("int32")
    return elementwise.subtract(wide, _along(points, x, how)) if points.any() else wide


def clipped_integers(x: Node, activation: str, how: Quantization, dtype: str) -> Node:
    """Return stored integers after a fused activation that only sets bounds."""
    least, most = limits(dtype)
    low, high = bounds_of(activation, how, dtype)
    if low <= least and high >= most:
        return x
    return elementwise.clip(
        x, min=float(low) if low > least else None, max=float(high) if high < most else None
    )


def product_scales(a: Quantization, b: Quantization, *, is_float: bool) -> np.ndarray:
    """Return the scales of products of a and b, in float64; `is_float` if rounded to float32."""
    dtype = "float32" if is_float else "float64"
    with np.errstate(over="ignore"):
        product: np.ndarray = a.scales[:1].astype(dtype) * b.scales.astype(dtype)
    return product.astype("float64")


def centred_halves(x: Node, how: Quantization) -> list[Node]:
    """Return 16-bit integers as int32 of their upper and their lower 8 bits. Raises ModelError for
    a zero point: TFLite has none in 16 bits."""
    if how.zero_points.any():
        raise ModelError("16-bit integers have a zero point")
    return [converted(half, "int32") for half in halves_of(x)]


def rows_quantized(x: Node, first: int, *, asymmetric: bool) -> tuple[Node, Node]:
    """Return float rows as centred int32 by the range of each, and the scale of each.

    A row is what lies behind the axes before `first`, whose scales broadcast against `x`. Symmetric
    integers are from -127 to 127; asymmetric ones from -128 to 127 about a zero point, which is
    subtracted again.
    """
    axes = tuple(range(first, len(dims_of(x))))
    zero, one = scalar_like(0.0, x), scalar_like(1.0, x)
    low = elementwise.minimum(reductions.min_(x, axes=axes, keepdims=True), zero)
    high = elementwise.maximum(reductions.max_(x, axes=axes, keepdims=True), zero)
    if not asymmetric:
        spread = elementwise.maximum(elementwise.negative(low), high)
        scale = elementwise.divide(spread, scalar_like(127.0, x))
        safe = elementwise.where(elementwise.equal(scale, zero), one, scale)
        steps = elementwise.round(elementwise.divide(x, safe))
        return converted(converted(steps, "int8"), "int32"), scale
    scale = elementwise.divide(elementwise.subtract(high, low), scalar_like(255.0, x))
    safe = elementwise.where(elementwise.equal(scale, zero), one, scale)
    lowest = scalar_like(-128.0, x)
    point = elementwise.round(elementwise.subtract(lowest, elementwise.divide(low, safe)))
    steps = elementwise.add(elementwise.round(elementwise.divide(x, safe)), point)
    stored = converted(elementwise.clip(steps, min=-128.0, max=127.0), "int8")
    return elementwise.subtract(converted(stored, "int32"), converted(point, "int32")), scale


def on_integers(compute: Callable[[Node], Node], x: Node) -> Node:
    """Return a mean of integers as they are stored, rounded: their scale does not matter."""
    return converted(nearest(compute(converted(x, "float32"))), element_type(x))
