# SPDX-License-Identifier: Apache-2.0
"""The softmax of 16-bit integers, by TFLite's tables of exp and of 1 / (1 + x).

A table has 513 entries over the range of its argument, in steps of 2**-15; between two of them it
is interpolated.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.frontend.builders.basic import converted, dims_of, scalar_like
from treadle.frontend.tflite.fixed_point import factor_of, multiplied
from treadle.graph.nodes import Constant, Node
from treadle.ops import elementwise as ew
from treadle.ops import indexing
from treadle.ops import reduce as reductions
from treadle.ops.bits import bitcast

_STEPS = 512
_LEAST, _MOST = -32768, 32767
_RANGE = _MOST - _LEAST
_LOWEST_EXPONENT = -10.0
"""Where the table of exp begins; what is smaller counts as this."""


def softmax_of_integers(x: Node, scale: float, beta: float) -> Node:
    """Return the softmax over the last axis of x (int16, without a zero point) in steps of 2**-15.

    scale: what a step of x stands for.
    """
    axes = (len(dims_of(x)) - 1,)
    wide = converted(x, "int32")
    below = ew.subtract(wide, reductions.max_(wide, axes=axes, keepdims=True))
    factor = factor_of(np.float64(np.float32(scale) * np.float32(beta)) / (10.0 / _RANGE))
    exponent = ew.add(multiplied(below, factor), scalar_like(_MOST, below))
    powers = _looked_up(_exp_table(), exponent)
    total = reductions.sum_(powers, axes=axes, keepdims=True)
    width = _bits_below(total)
    share = ew.multiply(powers, _reciprocal(total, width))
    one = scalar_like(1, total)
    half = ew.shift_left(one, ew.subtract(width, one))
    steps = ew.shift_right(ew.add(share, half), width)
    return converted(ew.clip(steps, min=0.0, max=float(_MOST)), "int16")


def _exp_table() -> np.ndarray:
    return _table(np.exp, _LOWEST_EXPONENT, 0.0)


def _bits_below(total: Node) -> Node:
    """Return the place of the highest bit of int32 above 0, from 0: the exponent of a float64."""
    word = bitcast(converted(total, "float64"), dtype="int64")
    exponent = ew.shift_right(word, scalar_like(52, word))
    return converted(ew.subtract(exponent, scalar_like(1023, exponent)), "int32")


def _reciprocal(total: Node, width: Node) -> Node:
    """Return 2**width / total in steps of 2**-15: 1 / (1 + x), x the bits below the highest."""
    wide = converted(total, "int64")
    left = ew.subtract(scalar_like(30, width), width)
    full = ew.shift_left(wide, converted(left, "int64"))
    rounded = ew.shift_right(ew.add(full, scalar_like(1 << 13, wide)), scalar_like(14, wide))
    argument = ew.subtract(converted(rounded, "int32"), scalar_like((1 << 15) + (1 << 16), total))
    return _looked_up(_table(lambda x: 1.0 / (1.0 + x), 0.0, 1.0), argument)


def _table(function: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> np.ndarray:
    """Return a function's values over a range, moved by half the error between two: int32[513]."""
    step = (high - low) / _STEPS
    places = low + np.arange(_STEPS + 1) * step
    scaling = (_RANGE + 1) / 2.0  # of results from -1 to 1
    values = function(places) * scaling
    near = _nearest(values)
    between = _nearest((values[1:] + near[:-1]) / 2)
    exact = _nearest(function(places[:-1] + step / 2) * scaling)
    near[:-1] -= _nearest((between - exact) / 2)
    return np.asarray(np.clip(near, _LEAST, _MOST), "int32")


def _nearest(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.trunc(x + np.copysign(0.5, x)))


def _looked_up(table: np.ndarray, x: Node) -> Node:
    """Return a table's value for int32, which stand for its range as int16 do."""
    inside = ew.clip(x, min=float(_LEAST), max=float(_MOST))
    place = ew.add(ew.shift_right(inside, scalar_like(7, x)), scalar_like(_STEPS // 2, x))
    start = indexing.gather(Constant.of(table[:-1]), place, axis=0)
    slope = indexing.gather(Constant.of(np.diff(table).astype("int32")), place, axis=0)
    rest = ew.bitwise_and(inside, scalar_like(127, x))
    rise = ew.add(ew.multiply(slope, rest), scalar_like(64, x))
    return ew.add(start, ew.shift_right(rise, scalar_like(7, x)))
