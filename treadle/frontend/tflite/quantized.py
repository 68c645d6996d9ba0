# SPDX-License-Identifier: Apache-2.0
"""Integers with a scale, as TFLite quantises: per tensor, per channel, and weights alone.

Products of quantised tensors are sums of integers, to which the bias is added before one
multiplication by scales (Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", 2018). TFLite multiplies by a 32-bit fixed-point number, the
graph by a float32: they agree but where a product lies within 1e-5 of the middle between integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of, element_type, scalar_like
from treadle.frontend.builders.quantize import along_axis, dequantized, limits
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


def nearest(x: Node) -> Node:
    """Return the nearest whole numbers, of the middle between two the one farther from zero.

    It is how TFLite rounds; the graph's own operator takes the even one.
    """
    half = scalar_like(0.5, x)
    above = elementwise.floor(elementwise.add(x, half))
    below = elementwise.ceil(elementwise.subtract(x, half))
    return elementwise.where(elementwise.less(x, scalar_like(0.0, x)), below, above)


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


def requantized_total(
    total: Node, scales: np.ndarray, shape: tuple[int, ...], result: Quantization, dtype: str
) -> Node:
    """Return round(total * scale / scale of the result) + zero point, within the limits of a type.

    `scales` are those of the factors multiplied, as `shape` broadcasts against the total.
    """
    if (result.scales == 0).any():
        raise ModelError("a result is quantised with a scale of 0")
    factors = scales.astype("float64") / np.float64(result.scales[0])
    factor = Constant.of(factors.astype("float32").reshape(shape if factors.size > 1 else ()))
    steps = nearest(elementwise.multiply(converted(total, "float32"), factor))
    point = float(_points(result, dtype)[0])
    moved = elementwise.add(steps, scalar_like(point, steps)) if point else steps
    return converted(_limited(moved, dtype), dtype)


def clipped_integers(x: Node, activation: str, how: Quantization, dtype: str) -> Node:
    """Return stored integers after a fused activation that only sets bounds."""
    bounds = {
        "NONE": (None, None),
        "RELU": (0.0, None),
        "RELU6": (0.0, 6.0),
        "RELU_N1_TO_1": (-1.0, 1.0),
    }
    if activation not in bounds:
        raise ModelError(f"the fused activation {activation} of integers is not supported")
    least, most = limits(dtype)
    scale, point = float(how.scales[0]), int(how.zero_points[0])
    low, high = (None if b is None else round(b / scale) + point for b in bounds[activation])
    low = None if low is None or low <= least else min(low, int(most))
    high = None if high is None or high >= most else max(high, int(least))
    if low is None and high is None:
        return x
    return elementwise.clip(x, min=low, max=high)


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
