# SPDX-License-Identifier: Apache-2.0
"""Rules that turn inference-time batch normalisation into weights, or a product and a sum.

Below, s = scale / sqrt(var + epsilon) and t = bias - mean*s, computed in float64; L and L*s are
those of treadle.optimize.affine, b is a constant per channel.

1. batch_norm(L)      -> L*s + t
2. batch_norm(L + b)  -> L*s + (b*s + t)
3. batch_norm(x)      -> x * s + t
"""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops.elementwise import add, multiply
from treadle.ops.norm import batch_norm
from treadle.optimize.affine import Vector, channel_constant, linear_of
from treadle.optimize.rule import Rule, Uses, attrs_of


def _constants(nodes: tuple[Node, ...]) -> list[Vector] | None:
    arrays = [n.value.astype(np.float64) for n in nodes if isinstance(n, Constant)]
    return arrays if len(arrays) == len(nodes) else None


def _fold_batch_norm(call: Call, uses: Uses) -> Node | None:
    factors = _batch_norm_factors(call)
    if factors is None:
        return None
    scale, shift = factors
    linear = linear_of(call.args[0], uses)
    if linear is not None and linear.axis == 1 and linear.channels == scale.size:
        before = 0.0 if linear.shift is None else linear.shift * scale
        folded = linear.with_affine(scale, shift + before, call.origin)
        if folded is not None:
            return folded
    return _scale_and_shift(call, scale, shift)


def _batch_norm_factors(call: Call) -> tuple[Vector, Vector] | None:
    values = _constants(call.args[1:])
    if values is None or not dt.is_float(tensor_type(call.type).dtype):
        return None
    scale, bias, mean, var = values
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + attrs_of(call).epsilon)
        return factor, bias - mean * factor


def _scale_and_shift(call: Call, scale: Vector, shift: Vector) -> Node | None:
    type_ = tensor_type(call.type)
    a, b = channel_constant(scale, type_, 1), channel_constant(shift, type_, 1)
    if a is None or b is None:
        return None
    product = multiply(call.args[0], a, origin=call.origin)
    return add(product, b, origin=call.origin)


RULES = (Rule("fold_batch_norm", (batch_norm,), _fold_batch_norm),)
