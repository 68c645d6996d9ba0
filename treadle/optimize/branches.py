# SPDX-License-Identifier: Apache-2.0
"""Rules that make one convolution of parallel ones whose results are added.

Networks that are trained with several branches run with one: structural re-parameterisation (Ding
et al., RepVGG, 2021). Below, C is a convolution with constant floating-point weights that nothing
else uses, plus a constant per channel if there is one; S(x) is x times a constant per channel plus
another, either of which may be missing, or an inference-time batch normalisation of x.

1. C(x) + C'(x), C(x) - C'(x)     -> C"(x)
2. C(x) + S(x), C(x) - S(x), S(x) - C(x) -> C"(x)

One of both must read all that the other reads: its window has the other's taps, in places of the
image, and each of its groups has whole groups of the other. Weights are added in float64 and
rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.operator import Operator
from treadle.graph.types import TensorType, tensor_type
from treadle.ops.conv import ConvAttrs, conv, conv_axes
from treadle.ops.elementwise import add, multiply, subtract
from treadle.ops.norm import batch_norm
from treadle.optimize.affine import (
    FOLDED_TYPES,
    Linear,
    Vector,
    channel_vector,
    linear_of,
)
from treadle.optimize.batch_norm import factors_of
from treadle.optimize.rule import Rule, Uses, attrs_of

Weights = np.ndarray[Any, np.dtype[np.float64]]
"""[oc, c/groups, *window]."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """A linear function of `x`: a convolution, plus `shift` per channel if there is one.

    `taps` are the places of the image, per spatial axis, that the window of the first result reads.
    A branch that scales x is a convolution of one tap, each channel a group, that has no `call`:
    its `factors`, else weights, are one per channel. `sign` is that of the factors.
    """

    x: Node
    factors: Constant | Vector
    taps: tuple[tuple[int, ...], ...]
    strides: tuple[int, ...]
    groups: int
    shift: Vector | None
    call: Call | None
    sign: int = 1

    def weights(self) -> Weights:
        """Return the weights: of a convolution in an array of their own.

        To be asked for last: large ones that are scaled are computed each time.
        """
        if isinstance(self.factors, Constant):
            given: Weights = self.factors.value.astype(np.float64)
        else:
            given = self.factors.reshape(-1, 1, *(1,) * len(self.taps))
        return given if self.sign == 1 else -given

    def reads_all_of(self, other: _Branch) -> bool:
        """True where this convolution's weights can hold the other's."""
        if self.call is None or self.x is not other.x or self.strides != other.strides:
            return False
        pairs = zip(self.taps, other.taps, strict=True)
        return other.groups % self.groups == 0 and all(set(b) <= set(a) for a, b in pairs)


def _branch_of(node: Node, uses: Uses) -> _Branch | None:
    linear = linear_of(node, uses)
    if linear is None or linear.call.op is not conv:
        return _scaling_of(node)
    x, weights = linear.call.args
    if not isinstance(weights, Constant):
        return None
    attrs: ConvAttrs = attrs_of(linear.call)
    window = conv_axes(attrs, tensor_type(x.type).shape[2:], weights.type.static_shape[2:])
    return _Branch(
        x,
        weights,
        tuple(tuple(t * a.dilation - a.before for t in range(a.kernel)) for a in window),
        tuple(a.stride for a in window),
        attrs.groups,
        linear.shift,
        linear.call,
    )


def _scaling_of(node: Node) -> _Branch | None:
    """Return what scales a value per channel and shifts it; at the least it is the value itself."""
    type_ = node.type
    if not isinstance(type_, TensorType) or type_.ndim < 3 or type_.dtype not in FOLDED_TYPES:
        return None
    channels, axes = type_.shape[1], type_.ndim - 2
    if not isinstance(channels, int):
        return None
    factors = factors_of(node) if isinstance(node, Call) and node.op is batch_norm else None
    shift: Vector | None
    if isinstance(node, Call) and factors is not None:
        x, scale, shift = node.args[0], *factors
    else:
        value, shift = _without_constant(node, add)
        x, given = _without_constant(value, multiply)
        scale = np.ones(channels) if given is None else given
    return _Branch(x, scale, ((0,),) * axes, (1,) * axes, channels, shift, None)


def _without_constant(node: Node, op: Operator[Any]) -> tuple[Node, Vector | None]:
    """Return the other operand of `op` with a constant per channel, and that; else the node."""
    if isinstance(node, Call) and node.op is op:
        for value, other in (node.args, node.args[::-1]):
            vector = channel_vector(other, tensor_type(node.type), 1)
            if vector is not None and value.type == node.type:
                return value, vector
    return node, None


def _merge_added(call: Call, uses: Uses) -> Node | None:
    return _merged(call, uses, sign=1)


def _merge_subtracted(call: Call, uses: Uses) -> Node | None:
    return _merged(call, uses, sign=-1)


def _merged(call: Call, uses: Uses, sign: int) -> Node | None:
    """Return the sum of both operands, the second times `sign`, as one convolution."""
    if any(a.type != call.type for a in call.args):
        return None
    first, second = (_branch_of(a, uses) for a in call.args)
    if first is None or second is None or (first.call is None and second.call is None):
        return None
    second = _times(second, sign)
    for wide, narrow in ((first, second), (second, first)):
        if wide.reads_all_of(narrow):
            return _sum(wide, narrow, call.origin)
    return None


def _times(branch: _Branch, sign: int) -> _Branch:
    if sign == 1:
        return branch
    shift = None if branch.shift is None else -branch.shift
    return replace(branch, sign=sign, shift=shift)


def _sum(wide: _Branch, narrow: _Branch, origin: str) -> Node | None:
    """Return both as one convolution; None where its weights leave the range of their type."""
    call, own = wide.call, wide.factors
    if call is None or not isinstance(own, Constant):
        return None
    total = wide.weights()
    places = [[a.index(t) for t in b] for a, b in zip(wide.taps, narrow.taps, strict=True)]
    with np.errstate(over="ignore", invalid="ignore"):
        total[np.ix_(*map(range, total.shape[:2]), *places)] += _in_groups(narrow, wide.groups)
        weights = total.astype(dt.to_numpy(own.type.dtype))
    if not np.isfinite(weights).all():
        return None
    shifts = [b.shift for b in (wide, narrow) if b.shift is not None]
    operands = (wide.x, Constant.of(weights, origin=own.origin))
    # Of the node whose result it gives.
    made = Call(conv, operands, call.attrs, call.type, call.origin if shifts else origin)
    shift = sum(shifts[1:], shifts[0]) if shifts else None
    return Linear(made, None).with_affine(None, shift, origin)


def _in_groups(branch: _Branch, groups: int) -> Weights:
    """Return weights for fewer groups: zero between channels that the branch's own keep apart."""
    weights = branch.weights()
    filters, channels, *window = weights.shape
    ratio = branch.groups // groups
    spread = np.zeros((filters, ratio, channels, *window))
    own = np.arange(filters) * branch.groups // filters % ratio
    spread[np.arange(filters), own] = weights
    return spread.reshape(filters, ratio * channels, *window)


RULES = (
    Rule("merge_added_branches", (add,), _merge_added),
    Rule("merge_subtracted_branches", (subtract,), _merge_subtracted),
)
