# SPDX-License-Identifier: Apache-2.0
"""Quantised arithmetic as TFLite's reference kernels define it: integers by fixed-point factors.

A real factor is a multiplier of 31 bits and a power of two. A sum of 32 bits is multiplied and
rounded twice: to the bits of the multiplier, and where it is shifted. A sum of 64 bits, of 16-bit
data, is multiplied by the upper 15 bits of the multiplier and rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, element_type, scalar_like
from treadle.frontend.builders.quantize import limits
from treadle.frontend.tflite.model import Quantization
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise
from treadle.ops.fixed_point import fixed_point_multiply

_BITS = 31
_LARGEST_EXPONENT = 30
_FAR = 2.0**30
"""Steps beyond every type's bounds."""

_SHORT_BITS = 15
_SHORT_LIMIT = 0x7FFF0000
"""Multipliers from here on become the largest of 15 bits."""

_BOUNDS = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
"""The bounds that an activation sets, by its name."""


class Factor(NamedTuple):
    """Real factors as multipliers * 2**(exponents - 31), both int64; a factor below 2**-32 is 0."""

    multipliers: np.ndarray
    exponents: np.ndarray

    @property
    def lefts(self) -> np.ndarray:
        """What an integer is multiplied by first: 1 for a factor below 1."""
        return np.asarray(np.int64(1) << np.maximum(self.exponents, 0))

    @property
    def rights(self) -> np.ndarray:
        """How far the product is shifted to the right."""
        return np.asarray(np.maximum(-self.exponents, 0))


def factor_of(reals: np.ndarray | np.floating | float) -> Factor:
    """Return factors of at least 0 in fixed point. Raises ModelError for 2**30 and more."""
    values = np.asarray(reals, "float64")
    if not np.isfinite(values).all() or (values < 0).any():
        raise ModelError("the scales of a quantised operator give no factor: one is 0 or negative")
    fractions, exponents = np.frexp(values)
    wide = np.floor(fractions * 2.0**_BITS + 0.5).astype("int64")
    is_full = wide == 1 << _BITS
    exponents = exponents.astype("int64") + is_full
    if (exponents > _LARGEST_EXPONENT).any():
        raise ModelError(f"the scales of a quantised operator give a factor of {values.max():g}")
    is_tiny = exponents < -_BITS
    multipliers = np.where(is_tiny, 0, np.where(is_full, 1 << (_BITS - 1), wide))
    return Factor(multipliers, np.where(is_tiny, 0, exponents))


def _constant(values: np.ndarray, shape: tuple[int, ...], dtype: str = "int32") -> Constant:
    return Constant.of(values.astype(dtype).reshape(shape if values.size > 1 else ()))


def multiplied(x: Node, factor: Factor, shape: tuple[int, ...] = ()) -> Node:
    """Return int32 times factors, which as `shape` broadcast against them, rounded twice."""
    if (factor.lefts > 1).any():
        x = elementwise.multiply(x, _constant(factor.lefts, shape))
    return fixed_point_multiply(
        x, _constant(factor.multipliers, shape), _constant(factor.rights, shape)
    )


def chosen_multiplied(x: Node, condition: Node, then: Factor, other: Factor) -> Node:
    """Return int32 times one factor where a condition holds and another elsewhere."""

    def either(a: np.ndarray, b: np.ndarray) -> Node:
        if np.array_equal(a, b):
            return _constant(a, ())
        return elementwise.where(condition, _constant(a, ()), _constant(b, ()))

    if (then.lefts > 1).any() or (other.lefts > 1).any():
        x = elementwise.multiply(x, either(then.lefts, other.lefts))
    multipliers = either(then.multipliers, other.multipliers)
    return fixed_point_multiply(x, multipliers, either(then.rights, other.rights))


def multiplied_wide(x: Node, factor: Factor, shape: tuple[int, ...] = ()) -> Node:
    """Return int64 times factors, which as `shape` broadcast against them, rounded once: int32."""
    shifts = _SHORT_BITS - factor.exponents
    rounded = (factor.multipliers + (1 << _SHORT_BITS)) >> (_SHORT_BITS + 1)
    short = np.where(factor.multipliers < _SHORT_LIMIT, rounded, (1 << _SHORT_BITS) - 1)
    product = elementwise.multiply(x, _constant(short, shape, "int64"))
    halves = _constant(np.int64(1) << (shifts - 1), shape, "int64")
    steps = elementwise.shift_right(
        elementwise.add(product, halves), _constant(shifts, shape, "int64")
    )
    return converted(steps, "int32")


def scaled_before_sum(x: Node, factor: Factor, left: int) -> Node:
    """Return x * 2**left times a factor of at most 1, rounded twice, by 32-bit products alone.

    x: int32 of at most 31 - left bits. The multiplier is split where 2**left ends its products.
    """
    shift = _BITS - left
    multiplier = int(factor.multipliers)
    high, low = multiplier >> shift, multiplier & ((1 << shift) - 1)
    made = elementwise.multiply(x, scalar_like(high, x))
    if low:
        below = elementwise.multiply(x, scalar_like(low, x))
        half = scalar_like(1 << (shift - 1), x)
        carried = elementwise.shift_right(elementwise.add(below, half), scalar_like(shift, x))
        made = elementwise.add(made, carried)
    return divided_by_power(made, int(factor.rights))


def divided_by_power(x: Node, shift: int) -> Node:
    """Return int32 divided by 2**shift, the nearest; of two the one farther from zero."""
    if not shift:
        return x
    mask = (1 << shift) - 1
    threshold = elementwise.subtract(
        scalar_like(mask >> 1, x), elementwise.shift_right(x, scalar_like(_BITS, x))
    )
    is_above = elementwise.greater(elementwise.bitwise_and(x, scalar_like(mask, x)), threshold)
    floor = elementwise.shift_right(x, scalar_like(shift, x))
    return elementwise.add(floor, converted(is_above, "int32"))


def stored_steps(steps: Node, how: Quantization, dtype: str, activation: str = "NONE") -> Node:
    """Return int32 about a zero point as a type stores it, after an activation that sets bounds."""
    low, high = bounds_of(activation, how, dtype)
    point = int(how.zero_points[0])
    if not limits(dtype)[0] <= point <= limits(dtype)[1]:
        raise ModelError(f"a zero point is outside of {dtype}")
    moved = elementwise.add(steps, scalar_like(point, steps)) if point else steps
    return converted(elementwise.clip(moved, min=float(low), max=float(high)), dtype)


def bounds_of(activation: str, how: Quantization, dtype: str) -> tuple[int, int]:
    """Return the smallest and largest stored integer. Raises ModelError for what is no bound."""
    if activation not in _BOUNDS:
        raise ModelError(f"the fused activation {activation} of integers is not supported")
    least, most = (int(v) for v in limits(dtype))
    low, high = (None if b is None else _stored(b, how) for b in _BOUNDS[activation])
    lowest = least if low is None else min(max(low, least), most)
    return lowest, most if high is None else max(min(high, most), least)


def _stored(value: float, how: Quantization) -> int:
    """Return a real number in steps, of two the one farther from zero, about the zero point."""
    scale = how.scales.astype("float32")[0]
    if not scale > 0:
        raise ModelError(f"a result is quantised with a scale of {scale}")
    with np.errstate(over="ignore"):
        steps = np.float32(value) / scale
    near = np.clip(steps + np.copysign(np.float32(0.5), steps), -_FAR, _FAR)
    return int(np.trunc(near)) + int(how.zero_points[0])


def requantized_total(
    total: Node,
    scales: np.ndarray,
    shape: tuple[int, ...],
    result: Quantization,
    dtype: str,
    activation: str = "NONE",
) -> Node:
    """Return a sum of products of integers as a result stores it, after a fused activation.

    total: int32, or int64 as 16-bit data have it. `scales` (float64) are those of the products, as
    `shape` broadcasts against the total.
    """
    factor = factor_of(_in_steps(scales, result))
    scale = multiplied_wide if element_type(total) == "int64" else multiplied
    return stored_steps(scale(total, factor, shape), result, dtype, activation)


def _in_steps(scales: np.ndarray, result: Quantization) -> np.ndarray:
    """Return scales as parts of that of a result. Raises ModelError where it is not above 0."""
    if not result.scales[0] > 0:
        raise ModelError(f"a result is quantised with a scale of {result.scales[0]}")
    with np.errstate(over="ignore"):
        return np.asarray(scales / np.float64(result.scales[0]))


def requantized_by_float64(
    total: Node, scales: np.ndarray, result: Quantization, dtype: str, activation: str
) -> Node:
    """Return a sum as a result stores it, multiplied in float64: fully connected layers are so."""
    reals = _in_steps(scales, result)
    factor = Constant.of(reals.reshape(-1 if reals.size > 1 else ()))
    steps = nearest(elementwise.multiply(converted(total, "float64"), factor))
    return stored_steps(converted(steps, "int32"), result, dtype, activation)


def nearest(x: Node) -> Node:
    """Return the nearest whole numbers, of the middle between two the one farther from zero.

    It is how TFLite rounds; the graph's own operator takes the even one.
    """
    half = scalar_like(0.5, x)
    above = elementwise.floor(elementwise.add(x, half))
    below = elementwise.ceil(elementwise.subtract(x, half))
    return elementwise.where(elementwise.less(x, scalar_like(0.0, x)), below, above)


def halves_of(x: Node) -> tuple[Node, Node]:
    """Return 16-bit integers as int8 and uint8, which have fast products: upper * 256 + lower."""
    upper = elementwise.shift_right(x, scalar_like(8, x))
    lower = elementwise.bitwise_and(x, scalar_like(255, x))
    return converted(upper, "int8"), converted(lower, "uint8")


def joined_total(upper: Node, lower: Node, *, is_wide: bool) -> Node:
    """Return int32 sums over the halves of 16-bit integers as those over the integers themselves.

    They are int64 where `is_wide`, else int32, in which they must fit.
    """
    parts = [converted(x, "int64") for x in (upper, lower)] if is_wide else [upper, lower]
    return elementwise.add(elementwise.multiply(parts[0], scalar_like(256, parts[0])), parts[1])
