# SPDX-License-Identifier: Apache-2.0
"""Rules that run products of tokens as 1x1 convolutions, where tokens and images meet.

Feed-forward layers with a convolution in their middle (PVT v2, SegFormer) turn tokens [n, h * w, c]
into an image [n, c, h, w] and back where they have the most channels. The product before or after
it is a 1x1 convolution as well, and tokens are moved where they have the fewest. Below, T takes the
channels of tokens to the front, T' those of an image to the end; both may reshape.

1. conv(T(matmul(x, w) + b), v)                 -> conv(conv(T(x), w') + b', v)
2. matmul(T'(f), w), f made by a convolution    -> T'(conv(f, w'))
3. T'(conv(f, w')) + b, w' 1x1                  -> T'(conv(f, w') + b')

The first is done where x has at most half as many channels as the product, the second where the
product has at most half as many as f. b are numbers, one or one for each channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle.graph.nodes import Call, Constant, DeferredConstant, Function, Node
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import TensorType, same_dim, tensor_type
from treadle.ops.conv import conv
from treadle.ops.elementwise import add
from treadle.ops.matmul import matmul
from treadle.ops.reshaping import reshape, transpose
from treadle.optimize.layout_rules import moved_channels
from treadle.optimize.methods.convolution import FLOATS
from treadle.optimize.movement_rules import reshaped, shape_of
from treadle.optimize.rule import Rule, Uses, apply_rules, attrs_of
from treadle.passes import decided
from treadle.target.base import Target


def convolve_tokens(function: Function, target: Target) -> Function:
    """Return `function` with products next to images as convolutions, for CPUs.

    Threads of a GPU read channels that lie apart at no cost.
    """
    return function if target.gpu is not None else apply_rules(function, RULES)


@dataclass(frozen=True, slots=True)
class _Move:
    """Channels moved between the end and the front, with the shapes before and after.

    `source` is what is moved, `call` the transpose, `result` what is made. The channels are axis
    `axis` of the operand of the transpose; they go `to_front`, or from there to the end.
    """

    source: Node
    call: Call
    result: Node
    axis: int
    to_front: bool

    def of(self, value: Node) -> Node:
        """Return another value of as many tokens or pixels, and its channels, moved so."""
        given, made = (-1, 1) if self.to_front else (1, -1)
        before, after = list(shape_of(self.call.args[0])), list(shape_of(self.result))
        before[self.axis] = after[made] = shape_of(value)[given]
        cut = reshaped(value, tuple(before), self.source.origin)
        moved = transpose(cut, perm=attrs_of(self.call).perm, origin=self.call.origin)
        return reshaped(moved, tuple(after), self.result.origin)


def _before(node: Node, uses: Uses) -> Node:
    """Return what a reshape with one use is of, or the value itself."""
    if isinstance(node, Call) and node.op is reshape and uses.is_single(node):
        return node.args[0]
    return node


def _move(result: Node, uses: Uses, *, to_front: bool) -> _Move | None:
    """Return how tokens [..., c] became an image [n, c, *spatial], `result`, or an image tokens."""
    moved = _before(result, uses)
    if not isinstance(moved, Call) or moved.op is not transpose or not uses.is_single(moved):
        return None
    source = _before(moved.args[0], uses)
    image, tokens = (result, source) if to_front else (source, result)
    if tensor_type(image.type).ndim < 3 or not shape_of(tokens):
        return None
    axis = moved_channels(moved, image, to_front=to_front)
    if axis is None or not same_dim(shape_of(tokens)[-1], shape_of(image)[1]):
        return None
    return _Move(source, moved, result, axis, to_front)


def _convolve_before(call: Call, uses: Uses) -> Node | None:
    move = _move(call.args[0], uses, to_front=True)
    if move is None or not uses.is_single(call.args[0]) or not uses.is_single(move.source):
        return None
    channels = tensor_type(move.source.type).shape[-1]
    product, bias = _with_bias(move.source, uses)
    if not _is_product(product) or not isinstance(channels, int):
        return None
    assert isinstance(product, Call)
    x, w = product.args
    assert isinstance(w, Constant)
    if 2 * w.type.static_shape[0] > channels:
        return None
    _tell(product, w.type.static_shape[0], channels)
    rank = tensor_type(call.args[0].type).ndim
    made: Node = conv(move.of(x), _filters(w, rank), origin=product.origin)
    if bias is not None:
        made = add(made, _per_channel(bias, rank), origin=move.source.origin)
    return conv.call(call.attrs, (made, *call.args[1:]), origin=call.origin)


def _convolve_after(call: Call, uses: Uses) -> Node | None:
    if not _is_product(call):
        return None
    tokens, w = call.args
    assert isinstance(w, Constant)
    k, n = w.type.static_shape
    if 2 * n > k or not uses.is_single(tokens):
        return None
    move = _move(tokens, uses, to_front=False)
    if move is None or not _is_convolved(move.source, uses):
        return None
    _tell(call, n, k)
    rank = tensor_type(move.source.type).ndim
    return move.of(conv(move.source, _filters(w, rank), origin=call.origin))


def _tell(product: Call, few: int, many: int) -> None:
    reason = f"tokens are moved to or from an image with {few} channels instead of {many}"
    decided(product.origin, "form", "1x1 convolution", reason)


def _add_before(call: Call, uses: Uses) -> Node | None:
    tokens, bias = _with_bias(call, uses)
    move = _move(tokens, uses, to_front=False) if bias is not None else None
    if move is None or bias is None or not uses.is_single(tokens):
        return None
    made = move.source
    if not isinstance(made, Call) or made.op is not conv or not uses.is_single(made):
        return None
    if not all(same_dim(d, 1) for d in tensor_type(made.args[1].type).shape[2:]):
        return None
    total = add(made, _per_channel(bias, tensor_type(made.type).ndim), origin=call.origin)
    return move.of(total)


def _with_bias(node: Node, uses: Uses) -> tuple[Node, Constant | None]:
    """Return a and b of a + b, b a number or one for each element of the last axis; else itself."""
    shape = shape_of(node)
    if not isinstance(node, Call) or node.op is not add or not shape:
        return node, None
    for value, bias in (node.args, node.args[::-1]):
        if not isinstance(bias, Constant) or value.type != node.type or not uses.is_single(value):
            continue
        size = bias.type.size
        if size == 1 or (size == shape[-1] and bias.type.static_shape[-1] == size):
            return value, bias
    return node, None


def _is_product(node: Node) -> bool:
    """True for a product of values of any number of axes and one constant matrix, of one type."""
    if not isinstance(node, Call) or node.op is not matmul:
        return False
    x, w = node.args
    dtype = tensor_type(node.type).dtype
    is_matrix = isinstance(w, Constant) and w.type.ndim == 2 and w.type.dtype == dtype
    return is_matrix and tensor_type(x.type).dtype == dtype and dtype in FLOATS


def _is_convolved(image: Node, uses: Uses) -> bool:
    """True for what a convolution and element-wise operators after it make, for one reader."""
    while isinstance(image, Call) and uses.is_single(image) and isinstance(image.op, Operator):
        if image.op is conv:
            return True
        if image.op.fusion not in POINTWISE:
            return False
        image = next((a for a in image.args if a.type == image.type), image.args[0])
    return False


def _filters(w: Constant, rank: int) -> Constant:
    """Return a matrix [k, n] as weights [n, k, 1, ...] of a convolution."""
    k, n = w.type.static_shape
    type_ = TensorType((n, k, *(1,) * (rank - 2)), w.type.dtype)

    def moved() -> np.ndarray:
        return w.value.T.reshape(type_.static_shape)

    if isinstance(w, DeferredConstant):
        return DeferredConstant(moved, type_, w.origin)
    return Constant(moved(), type_, w.origin)


def _per_channel(bias: Constant, rank: int) -> Constant:
    """Return numbers as an operand of an image [n, c, *spatial]."""
    return Constant.of(bias.value.reshape(1, -1, *(1,) * (rank - 2)), origin=bias.origin)


RULES = (
    Rule("convolve_before", (conv,), _convolve_before),
    Rule("convolve_after", (matmul,), _convolve_after),
    Rule("add_before", (add,), _add_before),
)
