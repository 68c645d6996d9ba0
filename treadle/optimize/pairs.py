# SPDX-License-Identifier: Apache-2.0
"""Products of int32 factors that are 16-bit numbers: which they are, and their words of pairs.

Quantised models multiply bytes less their zero points: int32 by type, 9 bits and a sign by value.
The operators of `treadle.ops.lowered.pairs` give the same sums with half the instructions.
"""

from __future__ import annotations

import numpy as np

from treadle.dtype import is_integer, max_value, min_value
from treadle.graph.nodes import Call, Constant, Node
from treadle.graph.types import tensor_type
from treadle.ops import elementwise as ew
from treadle.ops.lowered.pairs import conv_pairs, pair_words
from treadle.ops.movement import broadcast_to, pad, reshape, slice_, transpose
from treadle.optimize.channels import packed_constant
from treadle.target.base import Target

LOW, HIGH = -(1 << 15), (1 << 15) - 1

_MOVES = (reshape, transpose, slice_, broadcast_to)
_DEPTH = 16
"""How many operators back a value's range is looked for."""


def why_not_pairs(x: Node, w: Node, steps: int, target: Target) -> str | None:
    """Return why a sum of `steps` products of `x` and `w` cannot be one of pairs; None: it can.

    The target must have an instruction for it, and both factors must be 16-bit numbers for certain.
    """
    if tensor_type(x.type).dtype != "int32" or steps < 2:
        return "pairs are of int32 values, at least two in a sum"
    if not target.pair_lanes:
        return "the target has no instruction that multiplies and adds pairs"
    if not _is_small(w) or not _is_small(x):
        return "the values are not known to be 16-bit numbers"
    return None


def paired(x: Node, axis: int, extent: int, origin: str) -> Node:
    """Return int32 numbers of 16 bits with neighbours along an axis of `extent` in one word."""
    if extent % 2:
        none = (0,) * tensor_type(x.type).ndim
        after = tuple(int(k == axis) for k in range(len(none)))
        x, extent = pad(x, before=none, after=after, origin=origin), extent + 1

    def every_second(first: int) -> Node:
        return slice_(x, begin=(first,), end=(extent,), strides=(2,), axes=(axis,), origin=origin)

    low = ew.bitwise_and(every_second(0), Constant.of(0xFFFF, "int32"), origin=origin)
    high = ew.shift_left(every_second(1), Constant.of(16, "int32"), origin=origin)
    return ew.bitwise_or(low, high, origin=origin)


def conv_of_pairs(node: Call, x: Node) -> Node:
    """Return the convolution `node` of the data `x` with two channels in a word."""
    w = node.args[1]
    assert isinstance(w, Constant)
    words = paired(x, 1, w.value.shape[1], node.origin)
    weights = packed_constant(pair_words(w.value, 1), w)
    return conv_pairs.call(node.attrs, (words, weights), origin=node.origin)


def _is_small(x: Node) -> bool:
    found = _range(x, _DEPTH)
    return found is not None and found[0] >= LOW and found[1] <= HIGH


def _range(x: Node, depth: int) -> tuple[int, int] | None:
    """Return numbers between which all elements of an integer value are; None: not known."""
    dtype = tensor_type(x.type).dtype
    if not is_integer(dtype) or not depth:
        return None
    if isinstance(x, Constant):
        values = np.asarray(x.value)
        return (int(values.min()), int(values.max())) if values.size else (0, 0)
    limits = int(min_value(dtype)), int(max_value(dtype))
    found = _call_range(x, depth - 1) if isinstance(x, Call) else None
    if found is None or found[0] < limits[0] or found[1] > limits[1]:
        return limits
    return found


def _call_range(x: Call, depth: int) -> tuple[int, int] | None:
    if x.op is ew.cast or x.op in _MOVES:
        return _range(x.args[0], depth)
    if x.op is not ew.subtract:
        return None
    a, b = (_range(arg, depth) for arg in x.args)
    return None if a is None or b is None else (a[0] - b[1], a[1] - b[0])
