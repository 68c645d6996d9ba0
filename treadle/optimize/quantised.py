# SPDX-License-Identifier: Apache-2.0
"""Multiply quantised matrices, and convolve quantised images, as the integers they are.

Quantised models say in floats what they mean in integers: bytes less a zero point, times a scale.
The sum of a product's integers is exact and several fit into one instruction, so the scales are
multiplied afterwards:

    matmul((a - z) * s, (b - y) * t)  ->  matmul(a - z, b - y) * (s * t)
    conv((a - z) * s, (b - y) * t)    ->  conv(a - z, b - y) * (s * t)

`a` and `b` are bytes, `b` is known, `s` is one number and `t` one or one per column or filter.
Convolutions of one channel in each group have nothing to multiply together and stay as they are.
This goes before constants are folded: `(b - y) * t` is one then.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from treadle.graph import nodes as g
from treadle.graph.nodes import Call, Constant, Function, Node
from treadle.graph.operator import Operator
from treadle.graph.types import same_dim, tensor_type
from treadle.ops.conv import conv
from treadle.ops.elementwise import cast, multiply, subtract
from treadle.ops.matmul import matmul
from treadle.ops.reshaping import reshape, transpose
from treadle.passes import decided
from treadle.target.base import Target
from treadle.target.intrinsics.dots import dot_for

_BYTES = ("int8", "uint8")
_MOST_STEPS = (1 << 31) // (255 * 255) - 1
"""Products of two bytes less zero points whose sum an int32 holds for certain."""


def multiply_quantised(function: Function, target: Target) -> Function:
    """Return `function` with products of dequantised bytes and known weights as integer products.

    Unchanged for targets that multiply 16-bit integers no faster than floats.
    """
    if dot_for("int16", "int16", target) is None:
        return function
    known: dict[Node, bool] = {}

    def rule(node: Node) -> Node | None:
        known[node] = isinstance(node, Constant) or (
            isinstance(node, Call) and bool(node.args) and all(known[a] for a in node.args)
        )
        if not isinstance(node, Call) or node.op not in (matmul, conv):
            return None
        if not known[node.args[1]]:
            return None
        made = None if known[node.args[0]] else _integer_product(node)
        if made is not None:
            known[made] = False
        return made

    made = g.rewrite(function, rule)
    return function if made.body is function.body else made


@dataclass(frozen=True, slots=True, eq=False)
class _Dequantised:
    """A float32 value as int32 `integers`, which are bytes less a zero point, times `scale`."""

    integers: Node
    scale: Node

    @property
    def has_one_scale(self) -> bool:
        return tensor_type(self.scale.type).size == 1


def _steps(node: Call) -> int:
    """Return how many products are summed for an element, those of several channels; 0: unknown."""
    weights = tensor_type(node.args[1].type)
    if node.op is matmul:
        steps = weights.shape[-2]
        return steps if isinstance(steps, int) else 0
    has_several = weights.is_static and weights.shape[1] != 1
    return prod(weights.static_shape[1:]) if has_several else 0


def _integer_product(node: Call) -> Node | None:
    if not 1 < _steps(node) <= _MOST_STEPS:
        return None
    data, weights = (_dequantised(a) for a in node.args)
    if data is None or weights is None or not data.has_one_scale:
        return None
    scale = _per_column(weights) if node.op is matmul else _per_filter(weights)
    if scale is None:
        return None
    reason = "both factors are bytes less zero points"
    decided(node.origin, "method", "integers", reason)
    operator = node.op
    assert isinstance(operator, Operator)
    total = operator.call(node.attrs, (data.integers, weights.integers), origin=node.origin)
    one = reshape(data.scale, shape=(), origin=node.origin)
    scales = multiply(one, scale, origin=node.origin)
    return multiply(cast(total, dtype="float32", origin=node.origin), scales, origin=node.origin)


def _per_column(weights: _Dequantised) -> Node | None:
    """Return the scale of weights [k, n] as one of the product's last axis; None: it has none."""
    if weights.has_one_scale:
        return reshape(weights.scale, shape=())
    shape = tensor_type(weights.scale.type).shape
    columns = tensor_type(weights.integers.type).shape[-1]
    is_row = same_dim(shape[-1], columns) and all(same_dim(d, 1) for d in shape[:-1])
    return reshape(weights.scale, shape=(columns,)) if is_row else None


def _per_filter(weights: _Dequantised) -> Node | None:
    """Return the scale of weights [oc, c, *kernel] as one of the channels; None: it has none."""
    if weights.has_one_scale:
        return reshape(weights.scale, shape=())
    full = tensor_type(weights.integers.type).shape
    shape = tensor_type(weights.scale.type).shape
    is_column = len(shape) == len(full) and same_dim(shape[0], full[0])
    if not is_column or not all(same_dim(d, 1) for d in shape[1:]):
        return None
    return reshape(weights.scale, shape=(full[0], *(1,) * (len(full) - 2)))


def _dequantised(x: Node) -> _Dequantised | None:
    """Return the parts of a float32 value that was made of bytes, through moves of its elements."""
    if not isinstance(x, Call):
        return None
    if x.op is reshape or x.op is transpose:
        inner = _dequantised(x.args[0])
        return None if inner is None else _moved(x, inner)
    if x.op is not multiply or tensor_type(x.type).dtype != "float32":
        return None
    wide, scale = x.args
    if not isinstance(wide, Call) or wide.op is not cast or not _are_bytes(wide.args[0]):
        return None
    integers = wide.args[0]
    is_whole = tensor_type(integers.type).shape == tensor_type(x.type).shape
    return _Dequantised(integers, scale) if is_whole else None


def _moved(move: Call, inner: _Dequantised) -> _Dequantised | None:
    """Return the parts of a moved value: its scale is one, or moves along."""
    integers = g.with_operands(move, [inner.integers, *move.args[1:]])
    if inner.has_one_scale:
        return _Dequantised(integers, inner.scale)
    ndim = tensor_type(inner.integers.type).ndim
    shape = tensor_type(inner.scale.type).shape
    if move.op is not transpose or len(move.args) > 1:
        return None
    full = reshape(inner.scale, shape=((1,) * (ndim - len(shape)) + shape))
    return _Dequantised(integers, g.with_operands(move, [full]))


def _are_bytes(x: Node) -> bool:
    """True for int32 values that are bytes, or bytes less bytes."""
    if not isinstance(x, Call) or tensor_type(x.type).dtype != "int32":
        return False
    if x.op is cast:
        return tensor_type(x.args[0].type).dtype in _BYTES
    return x.op is subtract and all(_are_bytes(a) or _is_byte(a) for a in x.args)


def _is_byte(x: Node) -> bool:
    """True for zero points: bytes as int32, reshaped to broadcast."""
    if isinstance(x, Constant):
        return x.type.size > 0 and bool(x.value.min() >= -128) and bool(x.value.max() <= 255)
    return (
        isinstance(x, Call) and x.op is reshape and (_is_byte(x.args[0]) or _are_bytes(x.args[0]))
    )
