# SPDX-License-Identifier: Apache-2.0
"""Weights whose products are not subnormal numbers.

A CPU takes a hundred cycles and more for a multiply-add that reads or makes a subnormal number, and
trained networks hold them by the thousand: weight decay drives filters that nothing needs towards
zero. Of the known float32 weights of a convolution or product,

1. a filter whose largest weight is below 2^-60 is multiplied by a power of two, its results by the
   inverse, which is exact;
2. a subnormal weight of another filter becomes zero.

The second departs by less than 2^-126 |x|. It is less than the sum's own rounding unless the values
that it meets are 2^42 times as large as those that the filter's largest weight meets; an infinity
that only meets such weights gives NaN. At level 0 of optimisation all weights stay as they are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.graph.types import tensor_type
from treadle.ops.conv import conv
from treadle.ops.elementwise import multiply
from treadle.ops.matmul import matmul
from treadle.optimize.affine import channel_constant
from treadle.optimize.rule import Rule, Uses, apply_rules, with_arguments

Weights = npt.NDArray[np.float32]

_SMALL = np.float32(2.0**-60)
_NORMAL = np.finfo(np.float32).smallest_normal


def keep_sums_normal(function: Function) -> Function:
    """Return `function` with weights whose products with values around 1 are normal numbers."""
    return apply_rules(function, RULES)


def _with_normal_weights(call: Call, uses: Uses) -> Node | None:
    x, w = call.args
    if not isinstance(w, Constant) or w.type.dtype != "float32" or not w.value.size:
        return None
    if call.op is matmul and w.value.ndim != 2:
        return None
    if not _has_small(w.value):
        return None
    axis = 0 if call.op is conv else 1
    exponents = _exponents(w.value, axis)
    weights = _flushed(_scaled(w.value, exponents, axis))
    if np.array_equal(weights, w.value, equal_nan=True):
        return None
    made = with_arguments(call, (x, Constant.of(weights, origin=w.origin)))
    if made is None:
        return None
    if not exponents.any():
        return made
    type_ = tensor_type(call.type)
    place = 1 if call.op is conv else type_.ndim - 1
    units = channel_constant(np.ldexp(1.0, -exponents), type_, place)
    return None if units is None else multiply(made, units, origin=call.origin)


def _has_small(w: Weights) -> bool:
    """True where a weight is below 2^-60, zeros too, or NaN; without a copy of them all."""
    parts = np.nditer(w, ["external_loop", "buffered"], order="K")
    return not all(np.min(np.abs(part)) >= _SMALL for part in parts)


def _exponents(w: Weights, axis: int) -> npt.NDArray[np.intc]:
    """Return by which power of two each filter is multiplied: to a largest weight in [1, 2).

    The inverse must be a normal number too, so the smallest of filters stay below.
    """
    largest = np.max(np.abs(w), axis=tuple(k for k in range(w.ndim) if k != axis))
    is_small = (largest > 0) & (largest < _SMALL)
    return np.where(is_small, np.minimum(1 - np.frexp(largest)[1], 126), 0).astype(np.intc)


def _scaled(w: Weights, exponents: npt.NDArray[np.intc], axis: int) -> Weights:
    sizes = [len(exponents) if k == axis else 1 for k in range(w.ndim)]
    return np.ldexp(w, exponents.reshape(sizes)) if exponents.any() else w


def _flushed(w: Weights) -> Weights:
    return np.where(np.abs(w) < _NORMAL, np.copysign(np.float32(0), w), w)


RULES = (Rule("normal_weights", (conv, matmul), _with_normal_weights),)
