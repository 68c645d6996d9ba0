# SPDX-License-Identifier: Apache-2.0
"""Rules that fold inference-time scaling into the weights of convolutions and products.

Below, L is a convolution or matrix product with constant floating-point weights that nothing else
uses, b and c are constants that vary along the channel axis only, and L*c is L with its weights
scaled. All arithmetic on constants runs in float64 and is rounded once, to the weights' type.

1. L * c, L / c               -> L*c, L*(1/c)
2. (L + b) * c, (L + b) / c   -> L*c + b*c, L*(1/c) + b/c
3. (L + b) + c                -> L + (b + c)
4. x - c                      -> x + (-c)      which is exact for floating point
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle.graph.nodes import Call, Constant, DeferredConstant, Node
from treadle.graph.types import TensorType, tensor_type
from treadle.limits import DEFERRED_BYTES
from treadle.ops.conv import conv, conv_transpose
from treadle.ops.elementwise import add, divide, multiply, subtract
from treadle.ops.matmul import matmul
from treadle.optimize.rule import Rule, Uses, attrs_of
from treadle.runtime.pages import release_pages

FOLDED_TYPES = frozenset({"float32", "float64"})
"""Where rounding a scaled weight costs no more than rounding a scaled result does. Half-precision
operators compute in float32 and round once, which rounded weights would spoil."""


Vector = np.ndarray[Any, np.dtype[np.float64]]
"""One float64 per channel."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A convolution or product with constant weights, plus `shift` per channel if there is one."""

    call: Call
    shift: Vector | None

    @property
    def type(self) -> TensorType:
        return tensor_type(self.call.type)

    @property
    def axis(self) -> int:
        return _channel_axis(self.call)

    @property
    def channels(self) -> int | None:
        extent = self.type.shape[self.axis]
        return extent if isinstance(extent, int) else None

    def vector_of(self, node: Node) -> Vector | None:
        """Return a constant operand as one value per channel, None where it is anything else."""
        return channel_vector(node, self.type, self.axis)

    def with_affine(self, scale: Vector | None, shift: Vector | None, origin: str) -> Node | None:
        """Return L*scale + shift, or None where that leaves the range of the weights' type."""
        call = self.call if scale is None else _scaled(self.call, scale)
        if call is None:
            return None
        if shift is None:
            return call
        constant = channel_constant(shift, self.type, self.axis)
        return None if constant is None else add(call, constant, origin=origin)


def _channel_axis(call: Call) -> int:
    return tensor_type(call.type).ndim - 1 if call.op is matmul else 1


def _weights(call: Call) -> Constant | None:
    """Return the constant floating-point weights of a linear call, None for any other call."""
    if call.op not in (conv, conv_transpose, matmul):
        return None
    weights = call.args[1]
    if not isinstance(weights, Constant) or weights.type.dtype not in FOLDED_TYPES:
        return None
    is_plain = weights.type.ndim == 2 and tensor_type(call.type).ndim >= 2
    return weights if is_plain or call.op is not matmul else None


def _scaled(call: Call, scale: Vector) -> Call | None:
    weights = _weights(call)
    if weights is None:
        return None
    shape = weights.type.static_shape
    factor = scale.reshape(_weight_shape(call, shape, scale))
    if call.op is conv_transpose:
        factor = np.repeat(factor, shape[0] // factor.shape[0], axis=0)
    if weights.type.nbytes < DEFERRED_BYTES:
        product = _product(weights, factor)
        if not np.isfinite(product).all():
            return None
        return _same_call(call, (call.args[0], Constant.of(product, origin=weights.origin)))
    if not _is_bounded(weights, factor) and not np.isfinite(_product(weights, factor)).all():
        return None
    later = DeferredConstant(partial(_product, weights, factor), weights.type, weights.origin)
    return _same_call(call, (call.args[0], later))


def _product(weights: Constant, factor: Vector) -> np.ndarray:
    """Return weights times a factor, some of the first axis at a time."""
    value = weights.value
    product = np.empty(value.shape, value.dtype)
    count = max(1, DEFERRED_BYTES * value.shape[0] // max(1, value.nbytes))
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, value.shape[0], count):
            some = slice(k, k + count)
            own = factor[some] if factor.shape[0] > 1 else factor
            product[some] = value[some].astype(np.float64) * own
    release_pages(value)
    return product


def _is_bounded(weights: Constant, factor: Vector) -> bool:
    """True where no product can overflow: not that of the largest weight and the largest factor."""
    value = weights.value
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.maximum(value.max(initial=0), -value.min(initial=0)).astype(np.float64)
        bound = (largest * np.abs(factor).max(initial=0)).astype(value.dtype)
    release_pages(value)
    return bool(np.isfinite(bound))


def _same_call(call: Call, args: tuple[Node, ...]) -> Call:
    return Call(call.op, args, call.attrs, call.type, call.origin)


def _weight_shape(call: Call, shape: tuple[int, ...], scale: Vector) -> tuple[int, ...]:
    """Return the shape in which a vector per output channel multiplies the weights."""
    if call.op is matmul:
        return (1, scale.size)
    ones = (1,) * (len(shape) - 2)
    if call.op is conv_transpose:  # [c, oc/groups, *k]: the rows of a group share its channels
        return (attrs_of(call).groups, shape[1], *ones)
    return (scale.size, 1, *ones)


def channel_constant(vector: Vector, type_: TensorType, axis: int) -> Constant | None:
    """Return `vector` as a constant along `axis` of `type_`; None if it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        array = vector.astype(dt.to_numpy(type_.dtype))
    if not np.isfinite(array).all():
        return None
    shape = [1] * type_.ndim
    shape[axis] = vector.size
    return Constant.of(array.reshape(shape))


def channel_vector(node: Node, type_: TensorType, axis: int) -> Vector | None:
    """Return a constant that varies along `axis` of `type_` only as one value per channel."""
    channels = type_.shape[axis]
    if not isinstance(node, Constant) or not isinstance(channels, int):
        return None
    if node.type.ndim > type_.ndim:
        return None
    shape = (1,) * (type_.ndim - node.type.ndim) + node.type.static_shape
    if any(d != 1 for k, d in enumerate(shape) if k != axis):
        return None
    flat = node.value.astype(np.float64).reshape(-1)
    if flat.size not in (1, channels):
        return None
    return np.ascontiguousarray(np.broadcast_to(flat, (channels,)))


def linear_of(node: Node, uses: Uses) -> Linear | None:
    """Return `node` as L or L + b, None where it is neither or is used elsewhere too."""
    if not isinstance(node, Call) or not uses.is_single(node):
        return None
    if _weights(node) is not None:
        return Linear(node, None)
    if node.op is not add:
        return None
    for value, other in (node.args, node.args[::-1]):
        if isinstance(value, Call) and uses.is_single(value) and _weights(value) is not None:
            shift = Linear(value, None).vector_of(other)
            if shift is not None and value.type == node.type:
                return Linear(value, shift)
    return None


def _fold_multiply(call: Call, uses: Uses) -> Node | None:
    for value, other in (call.args, call.args[::-1]):
        linear = linear_of(value, uses)
        if linear is None or value.type != call.type:
            continue
        scale = linear.vector_of(other)
        if scale is not None and np.isfinite(scale).all():
            shift = None if linear.shift is None else linear.shift * scale
            return linear.with_affine(scale, shift, call.origin)
    return None


def _fold_divide(call: Call, uses: Uses) -> Node | None:
    value, other = call.args
    linear = linear_of(value, uses)
    if linear is None or value.type != call.type:
        return None
    divisor = linear.vector_of(other)
    if divisor is None or not np.isfinite(divisor).all() or not divisor.all():
        return None
    shift = None if linear.shift is None else linear.shift / divisor
    return linear.with_affine(1.0 / divisor, shift, call.origin)


def _merge_shifts(call: Call, uses: Uses) -> Node | None:
    for value, other in (call.args, call.args[::-1]):
        linear = linear_of(value, uses)
        if linear is None or linear.shift is None or value.type != call.type:
            continue
        shift = linear.vector_of(other)
        if shift is not None:
            return linear.with_affine(None, linear.shift + shift, call.origin)
    return None


def _subtract_to_add(call: Call, uses: Uses) -> Node | None:
    value, other = call.args
    if isinstance(other, Constant) and dt.is_float(other.type.dtype):
        return add(value, Constant.of(-other.value, origin=other.origin), origin=call.origin)
    return None


RULES = (
    Rule("fold_multiply", (multiply,), _fold_multiply),
    Rule("fold_divide", (divide,), _fold_divide),
    Rule("merge_shifts", (add,), _merge_shifts),
    Rule("subtract_to_add", (subtract,), _subtract_to_add),
)
