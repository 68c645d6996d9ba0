# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators on images whose pixels are one row.

What reads the sums of a convolution stays in its kernel only where it has their shape.
"""

from __future__ import annotations

from treadle.graph.nodes import Call, Node
from treadle.graph.operator import POINTWISE, Operator
from treadle.graph.types import Dim, same_dim, tensor_type
from treadle.optimize.blocked import Values, flat_shape, reshaped


def flat_call(values: Values, node: Call) -> Node | None:
    """Return the result of an element-wise call with its pixels as one row.

    None where no operand is made so, or where one cannot be read so for nothing.
    """
    operator, out = node.op, tensor_type(node.type)
    if not isinstance(operator, Operator) or operator.fusion not in POINTWISE:
        return None
    if hasattr(node.attrs, "axis"):  # it may name rows or columns
        return None
    if not any(_is_flat(values, a, out.shape) for a in node.args):
        return None
    operands = [_operand(values, a, out.shape) for a in node.args]
    made = [a for a in operands if a is not None]
    if len(made) < len(operands):
        return None
    return operator.call(node.attrs, made, origin=node.origin)


def _is_flat(values: Values, x: Node, shape: tuple[Dim, ...]) -> bool:
    """True for a value of a shape that a method has made with its pixels as one row."""
    return x in values.flat and _is_whole(x, shape)


def _is_whole(x: Node, shape: tuple[Dim, ...]) -> bool:
    own = tensor_type(x.type).shape
    return len(own) == len(shape) and all(map(same_dim, own, shape))


def _operand(values: Values, x: Node, shape: tuple[Dim, ...]) -> Node | None:
    """Return an operand that broadcasts with a flat result; None of pixels that are not all read.

    Nor of one that is in blocks: that is for the layout of its readers to say. One of one axis may
    be of channels (a normalisation's) or of the last axis, which no longer is one.
    """
    if values.is_blocked(x):
        return None
    if _is_whole(x, shape):
        return values.as_flat(x)
    own = tensor_type(x.type).shape
    if len(own) < 2:
        return values.as_plain(x) if all(same_dim(d, 1) for d in own) else None
    full = (1,) * (len(shape) - len(own)) + own
    pixels = full[2:]
    if all(same_dim(d, 1) for d in pixels):
        return reshaped(values.as_plain(x), (*full[:2], 1))
    if all(map(same_dim, pixels, shape[2:])):
        return reshaped(values.as_plain(x), flat_shape(full))
    return None
