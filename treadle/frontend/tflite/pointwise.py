# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators of quantised tensors, by the integer arithmetic of TFLite's reference
kernels: sums, differences, products, rescalings, rectifiers and, in 16 bits, sigmoid and tanh.

Functions return None for tensors that are computed through real numbers instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from treadle.frontend.builders.basic import converted, operands, scalar_like
from treadle.frontend.builders.layout import in_one_layout
from treadle.frontend.tflite.fixed_point import (
    Factor,
    chosen_multiplied,
    divided_by_power,
    factor_of,
    multiplied,
    scaled_before_sum,
    stored_steps,
)
from treadle.frontend.tflite.model import Quantization, Tensor
from treadle.frontend.tflite.node import TfliteNode, is_quantized
from treadle.frontend.tflite.quantized import centred_tensor
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise as ew
from treadle.ops import indexing

_SMALL = ("int8", "uint8", "int16")
_LEFT = {"int8": 20, "uint8": 20, "int16": 15}
"""The bits that the terms of a sum are shifted to the left by, per type."""

Steps = Callable[..., Node]
"""steps(*centred int32 values) -> int32 about the zero point of the result."""


class _Scaled(NamedTuple):
    """How operands and result are quantised, all of them with one scale, and the result's type."""

    inputs: tuple[Quantization, ...]
    result: Quantization
    dtype: str

    def scale(self, index: int) -> np.float32:
        """Return the scale of an operand."""
        return np.float32(self.inputs[index].scales[0])

    @property
    def result_scale(self) -> np.float32:
        """The scale of the result."""
        return np.float32(self.result.scales[0])


def _scaled(node: TfliteNode, count: int, *, one_type: bool = True) -> _Scaled | None:
    """Return how the first inputs and the result are quantised, None where one is not."""
    tensors: list[Tensor] = [*(node.tensor(k) for k in range(count)), node.result()]
    how = [t.quantization for t in tensors if is_quantized(t) and t.dtype in _SMALL]
    known = [h for h in how if h is not None and _is_usual(h)]
    if len(known) < len(tensors) or (one_type and len({t.dtype for t in tensors}) > 1):
        return None
    return _Scaled(tuple(known[:-1]), known[-1], node.result().dtype)


def _is_usual(how: Quantization) -> bool:
    """True for one scale, of a size that quotients of some of them do not overflow."""
    return not how.is_per_channel and bool(2.0**-40 < how.scales[0] < 2.0**20)


def _stored(node: TfliteNode, how: _Scaled, steps: Steps, activation: str) -> Node:
    """Return what a function makes of the centred integers of the inputs, as stored."""

    def compute(*values: Node) -> Node:
        centred = [centred_tensor(v, q) for v, q in zip(values, how.inputs, strict=True)]
        made = steps(*operands(*centred))
        return stored_steps(made, how.result, how.dtype, activation)

    return in_one_layout(compute, *(node.input(k) for k in range(len(how.inputs))))


# Sums and products.


def sum_of_integers(node: TfliteNode) -> Node | None:
    """Return a sum or difference: terms in a common scale of more bits, rescaled once."""
    how = _scaled(node, 2)
    if how is None:
        return None
    combine = ew.add if node.op == "ADD" else ew.subtract
    powers = _powers(node, how)
    if powers is not None:
        return _stored(
            node,
            how,
            lambda a, b: combine(divided_by_power(a, powers[0]), divided_by_power(b, powers[1])),
            node.activation,
        )
    left, twice = _LEFT[how.dtype], 2 * np.float64(max(how.scale(0), how.scale(1)))
    terms = [factor_of(np.float64(how.scale(k)) / twice) for k in (0, 1)]
    whole = factor_of(twice / (2.0**left * np.float64(how.result_scale)))

    def steps(a: Node, b: Node) -> Node:
        first, second = (scaled_before_sum(x, f, left) for x, f in zip((a, b), terms, strict=True))
        return multiplied(combine(first, second), whole)

    return _stored(node, how, steps, node.activation)


def _powers(node: TfliteNode, how: _Scaled) -> tuple[int, int] | None:
    """Return the shifts to the right of 16-bit terms whose scales are all powers of two."""
    if how.dtype != "int16" or not node.options.flag("pot_scale_int16"):
        return None
    logs = [log_of_two(float(s)) for s in (how.scale(0), how.scale(1), how.result_scale)]
    if None in logs:
        return None
    a, b, result = (int(v) for v in logs if v is not None)
    return (result - a, result - b) if a <= result and b <= result else None


def log_of_two(scale: float) -> int | None:
    """Return the logarithm of what is within 1/1000 of a power of two, None for another number."""
    log = float(np.log2(scale)) if scale > 0 else 0.5
    return round(log) if abs(log - round(log)) < 1e-3 else None


def product_of_integers(node: TfliteNode) -> Node | None:
    """Return a product of integers, rescaled."""
    how = _scaled(node, 2)
    if how is None:
        return None
    factor = factor_of(how.scale(0) * how.scale(1) / how.result_scale)
    return _stored(node, how, lambda a, b: multiplied(ew.multiply(a, b), factor), node.activation)


# One operand.


def rescaled_integers(node: TfliteNode) -> Node | None:
    """Return integers in another scale or type."""
    how = _scaled(node, 1, one_type=False)
    if how is None:
        return None
    factor = factor_of(np.float64(how.scale(0)) / np.float64(how.result_scale))
    return _stored(node, how, lambda x: multiplied(x, factor), "NONE")


def bounded_integers(node: TfliteNode) -> Node | None:
    """Return a rectifier of integers, which sets bounds: RELU and those with an upper bound."""
    how = _scaled(node, 1)
    if how is None:
        return None
    factor = factor_of(how.scale(0) / how.result_scale)
    return _stored(node, how, lambda x: multiplied(x, factor), node.op)


def leaky_integers(node: TfliteNode) -> Node | None:
    """Return integers, times alpha where they are negative."""
    how, alpha = _scaled(node, 1), np.float32(node.options.number("alpha"))
    if how is None or not 0 <= alpha <= 1:
        return None
    plain = factor_of(how.scale(0) / how.result_scale)
    below = factor_of(how.scale(0) * alpha / how.result_scale)
    return _stored(node, how, lambda x: _leaky(x, plain, below), "NONE")


def _leaky(x: Node, plain: Factor, below: Factor) -> Node:
    return chosen_multiplied(x, ew.less(x, scalar_like(0, x)), below, plain)


def prelu_integers(node: TfliteNode) -> Node | None:
    """Return integers, times their slopes where they are negative."""
    how = _scaled(node, 2)
    if how is None or how.dtype == "int16":
        return None
    plain = factor_of(how.scale(0) / how.result_scale)
    below = factor_of(how.scale(0) * how.scale(1) / how.result_scale)

    def steps(x: Node, slope: Node) -> Node:
        is_below = ew.less(x, scalar_like(0, x))
        sloped = ew.where(is_below, ew.multiply(x, slope), x)
        return chosen_multiplied(sloped, is_below, below, plain)

    return _stored(node, how, steps, "NONE")


# Functions of 16 bits: interpolations in a table of the sigmoid, of which tanh is a part.

_TABLE_SIZE = 256
_TABLE_STEP = 24.0
"""Entries of the table to a unit of its argument."""

_LAST = 255
"""From this entry on functions have their limit, in 16 bits."""


def _sigmoid_table() -> np.ndarray:
    """Return sigmoid(k / 24) in steps of 2**-16, int32, moved by half the error of its chords.

    A chord of a curve of second derivative c errs by c * step**2 / 8 in its middle; lines between
    entries that are moved by half of that err as much at the entries, and nowhere more.
    """
    value = 1.0 / (1.0 + np.exp(-np.arange(_TABLE_SIZE) / _TABLE_STEP))
    curvature = value * (1.0 - value) * (1.0 - 2.0 * value)
    moved = value - curvature / _TABLE_STEP**2 / 16.0
    table = np.floor(65536.0 * moved + 0.5).astype("int32")
    table[_LAST] = 65535
    return table


def sigmoid_integers(node: TfliteNode) -> Node | None:
    """Return the sigmoid of 16-bit integers in steps of 2**-15."""
    return _interpolated(node, 9, _sigmoid_steps, largest_power=0)


def tanh_integers(node: TfliteNode) -> Node | None:
    """Return the hyperbolic tangent of 16-bit integers in steps of 2**-15."""
    return _interpolated(node, 8, _tanh_steps, largest_power=1)


def _interpolated(
    node: TfliteNode, bits: int, steps: Callable[[Node, Node], Node], largest_power: int
) -> Node | None:
    """Return a function of 16-bit integers; `bits` lie below the entries of the table."""
    how = _scaled(node, 1)
    if how is None or how.dtype != "int16" or how.scale(0) > 1:
        return None
    multiplier, shift = _argument_scale(how.scale(0), largest_power)

    def compute(x: Node) -> Node:
        product = ew.multiply(x, scalar_like(multiplier, x))
        half = scalar_like((1 << shift) >> 1, x)
        argument = ew.shift_right(ew.add(product, half), scalar_like(shift, x))
        return steps(argument, _interpolation(ew.abs(argument), bits))

    return _stored(node, how, compute, "NONE")


def _argument_scale(scale: np.float32, largest_power: int) -> tuple[int, int]:
    """Return what an argument is multiplied by and shifted to the right, for steps of 1/12288."""
    log = log_of_two(float(scale))
    if log is not None and 0 <= log + 12 <= largest_power:
        return 3 << (log + 12), 0
    multiplier, shift = float(scale) * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        multiplier, shift = multiplier * 2.0, shift + 1
    return int(multiplier), shift


def _interpolation(size: Node, bits: int) -> Node:
    """Return the sigmoid of an argument of at least 0, in steps of 2**-(16 + bits)."""
    table = _sigmoid_table()
    rises = np.append(np.diff(table), 0).astype("int32")
    place = ew.minimum(ew.shift_right(size, scalar_like(bits, size)), scalar_like(_LAST, size))
    rest = ew.bitwise_and(size, scalar_like((1 << bits) - 1, size))
    start = indexing.gather(Constant.of(table), place, axis=0)
    rise = indexing.gather(Constant.of(rises), place, axis=0)
    return ew.add(ew.multiply(start, scalar_like(1 << bits, start)), ew.multiply(rest, rise))


def _sigmoid_steps(argument: Node, value: Node) -> Node:
    """Return sigmoid(-x) as 1 - sigmoid(x), rounded to steps of 2**-15."""
    is_last = ew.greater_equal(ew.abs(argument), scalar_like(_LAST << 9, argument))
    value = ew.where(is_last, scalar_like(0x7FFF << 10, value), value)
    above = ew.add(value, scalar_like(1 << 9, value))
    below = ew.subtract(scalar_like((1 << 25) + (1 << 9) - 1, value), value)
    negative = ew.less(argument, scalar_like(0, argument))
    return ew.shift_right(ew.where(negative, below, above), scalar_like(10, value))


def _tanh_steps(argument: Node, value: Node) -> Node:
    """Return 2 * sigmoid(2 * x) - 1, rounded to steps of 2**-15."""
    is_last = ew.greater_equal(ew.abs(argument), scalar_like(_LAST << 8, argument))
    value = ew.where(is_last, scalar_like(0xFFFF << 8, value), value)
    one, half = 1 << 23, 1 << 7
    above = ew.add(value, scalar_like(half - one, value))
    below = ew.subtract(scalar_like(one + half - 1, value), value)
    negative = ew.less(argument, scalar_like(0, argument))
    return ew.shift_right(ew.where(negative, below, above), scalar_like(8, value))


# Means.


def sum_in_steps(node: TfliteNode, count: int, reduced: Callable[[Node], Node]) -> Node | None:
    """Return a mean (a sum, for SUM) of `count` integers each, which `reduced` adds up as int32."""
    how = _scaled(node, 1, one_type=False)
    if how is None:
        return None
    factor = factor_of(np.float64(how.scale(0)) / np.float64(how.result_scale))
    if node.op != "SUM":
        factor = _divided(factor, count)
    given = how.inputs[0]
    centred = in_one_layout(lambda x: centred_tensor(x, given), node.input(0))
    total = converted(reduced(centred), "int32")
    return stored_steps(multiplied(total, factor), how.result, how.dtype)


def _divided(factor: Factor, count: int) -> Factor:
    """Return a factor divided by a count, of as many bits as a multiplier has."""
    exponent = int(factor.exponents)
    shift = min(count.bit_length() - 1, 32, 31 + exponent)
    return Factor((factor.multipliers << shift) // count, np.asarray(exponent - shift))
