# SPDX-License-Identifier: Apache-2.0
"""Rules that turn inference-time batch normalisation into weights, or a product and a sum.

Below, s = scale / sqrt(var + epsilon) and t = bias - mean*s, computed in float64; L and L*s are
those of treadle.optimize.affine, b is a constant per channel.

1. batch_norm(L)        -> L*s + t
2. batch_norm(L + b)    -> L*s + (b*s + t)
3. batch_norm(x) * b    -> batch_norm(x) with another scale and bias
4. batch_norm(x) + b    -> batch_norm(x) with another bias
5. batch_norm(x)        -> x * s + t, once nothing else applies
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle import dtype as dt
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops.elementwise import add, multiply
from treadle.ops.norm import batch_norm
from treadle.optimize.affine import (
    FOLDED_TYPES,
    Vector,
    channel_constant,
    channel_vector,
    linear_of,
)
from treadle.optimize.rule import Rule, Uses, attrs_of


def _fold_into_linear(call: Call, uses: Uses) -> Node | None:
    factors = factors_of(call)
    linear = linear_of(call.args[0], uses)
    if factors is None or linear is None:
        return None
    scale, shift = factors
    if linear.axis != 1 or linear.channels != scale.size:
        return None
    before = 0.0 if linear.shift is None else linear.shift * scale
    return linear.with_affine(scale, shift + before, call.origin)


def _parameters(call: Call) -> list[Vector] | None:
    """Return scale, bias, mean and variance in float64; None unless all of them are constants."""
    type_ = tensor_type(call.type)
    if type_.ndim < 2 or type_.dtype not in FOLDED_TYPES:
        return None
    arrays = [a.value.astype(np.float64) for a in call.args[1:] if isinstance(a, Constant)]
    return arrays if len(arrays) == len(call.args) - 1 else None


def factors_of(call: Call) -> tuple[Vector, Vector] | None:
    """Return s and t of a batch normalisation; None unless its parameters are constants."""
    values = _parameters(call)
    if values is None:
        return None
    scale, bias, mean, variance = values
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + attrs_of(call).epsilon)
        return factor, bias - mean * factor


def _expand(call: Call, uses: Uses) -> Node | None:
    factors = factors_of(call)
    if factors is None:
        return None
    type_ = tensor_type(call.type)
    scale, shift = (channel_constant(v, type_, 1) for v in factors)
    if scale is None or shift is None:
        return None
    product = multiply(call.args[0], scale, origin=call.origin)
    return add(product, shift, origin=call.origin)


def _absorb_multiply(call: Call, uses: Uses) -> Node | None:
    return _absorb(call, uses, lambda scale, bias, c: (scale * c, bias * c))


def _absorb_add(call: Call, uses: Uses) -> Node | None:
    return _absorb(call, uses, lambda scale, bias, c: (scale, bias + c))


def _absorb(
    call: Call, uses: Uses, change: Callable[[Vector, Vector, Vector], tuple[Vector, Vector]]
) -> Node | None:
    """Return the batch normalisation that does the work of the call after it too."""
    for value, other in (call.args, call.args[::-1]):
        if not isinstance(value, Call) or value.op is not batch_norm or value.type != call.type:
            continue
        values = _parameters(value) if uses.is_single(value) else None
        type_ = tensor_type(value.type)
        factor = None if values is None else channel_vector(other, type_, 1)
        if values is None or factor is None:
            continue
        changed = change(values[0], values[1], factor)
        with np.errstate(over="ignore", invalid="ignore"):
            scale, bias = (v.astype(dt.to_numpy(type_.dtype)) for v in changed)
        if not (np.isfinite(scale).all() and np.isfinite(bias).all()):
            continue
        rest = (Constant.of(scale), Constant.of(bias), *value.args[3:])
        return batch_norm.call(value.attrs, (value.args[0], *rest), origin=call.origin)
    return None


RULES = (
    Rule("batch_norm_into_linear", (batch_norm,), _fold_into_linear),
    Rule("batch_norm_absorbs_factor", (multiply,), _absorb_multiply),
    Rule("batch_norm_absorbs_term", (add,), _absorb_add),
)

EXPANSION = (Rule("expand_batch_norm", (batch_norm,), _expand),)
"""Applied after all other rules have seen the normalisation as one call."""
