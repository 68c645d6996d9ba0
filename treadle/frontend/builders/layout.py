# SPDX-License-Identifier: Apache-2.0
"""Where channels stand: images of TensorFlow are [n, h, w, c], those of the graph [n, c, h, w].

An image that was made with its channels first is a transpose of that to the graph. What follows
looks through it, so that from one convolution to the next nothing is transposed; the passes choose
how images lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from treadle.frontend.builders.basic import dims_of, reshaped, transposed
from treadle.graph.nodes import Call, Constant, Node, operands
from treadle.ops.reshaping import TransposeAttrs, transpose

_FEW_NODES = 16
"""More than turn stored weights into real numbers."""


def to_last(ndim: int) -> tuple[int, ...]:
    """Return the permutation that brings axis 1 to the end."""
    return (0, *range(2, ndim), 1)


def to_first(ndim: int) -> tuple[int, ...]:
    """Return the permutation that brings the last axis to place 1."""
    return (0, ndim - 1, *range(1, ndim - 1))


def channels_first(x: Node) -> Node:
    """Return an image [n, ..., c] as [n, c, ...]."""
    ndim = len(dims_of(x))
    if isinstance(x, Constant):
        return Constant.of(np.ascontiguousarray(x.value.transpose(to_first(ndim))))
    made = _made_first(x)
    return transposed(x, to_first(ndim)) if made is None else made


def channels_last(x: Node) -> Node:
    """Return an image [n, c, ...] as [n, ..., c]."""
    return transposed(x, to_last(len(dims_of(x))))


def _made_first(x: Node) -> Node | None:
    """Return what an image was made of with its channels first, None for another one."""
    if not isinstance(x, Call) or x.op is not transpose or len(dims_of(x)) < 3:
        return None
    assert isinstance(x.attrs, TransposeAttrs)
    return x.args[0] if x.attrs.perm == to_last(len(dims_of(x))) else None


def in_one_layout(compute: Callable[..., Node], *values: Node) -> Node:
    """Return an element-wise function of values, computed with channels first where they are.

    One of the values must be an image made with channels first; the others too, or known, vectors,
    or of one element.
    """
    if all(_made_first(x) is None for x in values):
        return compute(*values)
    ndim = max(len(dims_of(x)) for x in values)
    first = [_first_of(x, ndim) for x in values]
    made = [f for f in first if f is not None]
    if len(made) < len(values):
        return compute(*values)
    return channels_last(compute(*made))


def _first_of(x: Node, ndim: int) -> Node | None:
    """Return an operand as it broadcasts against images with channels first, None: it cannot."""
    dims = dims_of(x)
    if len(dims) == ndim and _made_first(x) is not None:
        return _made_first(x)
    if all(d == 1 for d in dims):
        return reshaped(x, ())
    if len(dims) == 1:
        return reshaped(x, (*dims, *(1,) * (ndim - 2)))
    if len(dims) == ndim and _is_known(x):
        return channels_first(x)
    is_pooled = len(dims) == ndim and all(d == 1 for d in dims[1:-1])
    return reshaped(x, (dims[0], dims[-1], *dims[1:-1])) if is_pooled else None


def _is_known(x: Node) -> bool:
    """True for a constant, and for what a few operators compute of constants, as real weights."""
    stack = [x]
    for _ in range(_FEW_NODES):
        if not stack:
            return True
        node = stack.pop()
        parts = operands(node)
        if not parts and not isinstance(node, Constant):
            return False
        stack += parts
    return False


def common_first(values: Sequence[Node]) -> list[Node] | None:
    """Return images with channels first where all of them were made so, else None."""
    made = [_made_first(x) for x in values]
    known = [m for m in made if m is not None]
    return known if len(known) == len(values) else None
