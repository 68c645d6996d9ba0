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

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from treadle.graph.nodes import Call, Constant, DeferredConstant, Function, Node, rewrite
from treadle.limits import DEFERRED_BYTES
from treadle.ops.conv import conv
from treadle.ops.elementwise import multiply
from treadle.ops.matmul import matmul
from treadle.optimize.affine import Linear, channel_constant
from treadle.optimize.rule import with_arguments
from treadle.runtime.pages import release_pages

Weights = npt.NDArray[np.float32]

_SMALL = 2.0**-60
"""Below it a filter is scaled; above, float32 rounds its sums by more than a subnormal weight."""
_NORMAL = np.finfo(np.float32).smallest_normal


def keep_sums_normal(function: Function) -> Function:
    """Return `function` with weights whose products with values around 1 are normal numbers."""
    made = rewrite(function, _with_normal_weights)
    return function if made.body is function.body else made


def _with_normal_weights(node: Node) -> Node | None:
    if not isinstance(node, Call) or node.op not in (conv, matmul):
        return None
    weights = node.args[1]
    if not isinstance(weights, Constant) or weights.type.dtype != "float32":
        return None
    if node.op is matmul and weights.type.ndim != 2:
        return None
    w = weights.value  # once: of a deferred constant it is computed each time
    exponents, has_subnormal = _look(w, axis=0 if node.op is conv else 1)
    release_pages(w)
    linear = Linear(node, None)
    scaled = None if exponents is None else linear.with_affine(np.ldexp(1.0, exponents), None, "")
    made = node if scaled is None else scaled
    assert isinstance(made, Call)
    if has_subnormal:
        made = with_arguments(made, (made.args[0], _flushed(made.args[1]))) or made
    if exponents is None or scaled is None:
        return None if made is node else made
    units = channel_constant(np.ldexp(1.0, -exponents), linear.type, linear.axis)
    return None if units is None else multiply(made, units, origin=node.origin)


def _look(w: Weights, axis: int) -> tuple[npt.NDArray[np.intc] | None, bool]:
    """Return by which power of two each filter is to be multiplied, and if a weight is subnormal.

    None where no filter is: they are multiplied to a largest weight in [1, 2), the smallest of them
    to less, so that the inverse is a normal number too.
    """
    if not w.size or not _any(w, lambda part: ~(np.min(np.abs(part)) >= _SMALL)):
        return None, False
    others = tuple(k for k in range(w.ndim) if k != axis)
    largest = np.maximum(np.max(w, axis=others), -np.min(w, axis=others))
    is_small = (largest > 0) & (largest < _SMALL)
    exponents = np.where(is_small, np.minimum(1 - np.frexp(largest)[1], 126), 0).astype(np.intc)
    return exponents if is_small.any() else None, _any(w, lambda part: np.any(_is_subnormal(part)))


def _any(w: Weights, holds: Callable[[Any], np.bool_]) -> bool:
    """True where something holds for a part of the weights, of which no copy is made."""
    return any(bool(holds(part)) for part in np.nditer(w, ["external_loop", "buffered"], order="K"))


def _is_subnormal(w: Weights) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (np.abs(w) < _NORMAL) & (w != 0)
    return found


def _flushed(weights: Node) -> Constant:
    """Return weights with zeros for subnormal ones; large ones are made where they are packed."""
    assert isinstance(weights, Constant)
    make = partial(_without_subnormals, weights)
    if weights.type.nbytes < DEFERRED_BYTES:
        return Constant.of(make(), origin=weights.origin)
    return DeferredConstant(make, weights.type, weights.origin)


def _without_subnormals(weights: Constant) -> Weights:
    w = weights.value
    made = np.where(_is_subnormal(w), np.copysign(np.float32(0), w), w)
    release_pages(w)
    return made
