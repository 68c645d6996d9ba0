# SPDX-License-Identifier: Apache-2.0
"""Frames that step along an axis, and the sum of frames where they overlap."""

from __future__ import annotations

import numpy as np

from treadle.frontend.builders.basic import counted, dims_of, reshaped
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.movement import padded, sliced
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, normal_size, same_dim
from treadle.ops import elementwise, indexing, sizes


def framed(x: Node, axis: int, count: Dim, size: int, step: int) -> Node:
    """Return `count` frames of `size` elements, `step` apart: [..., count, size, ...]."""
    return indexing.gather(x, _places(count, size, step), axis=axis)


def _places(count: Dim, size: int, step: int) -> Node:
    if isinstance(count, int):
        return Constant.of(np.arange(count)[:, None] * step + np.arange(size))
    starts = elementwise.multiply(counted(count), Constant.of(step, "int64"))
    return elementwise.add(reshaped(starts, (count, 1)), counted(size))


def overlap_added(x: Node, length: Dim, step: int) -> Node:
    """Return [..., length] to which each frame of [..., frames, size] is added, `step` apart.

    A frame is cut into pieces of `step` elements: piece j of frame k belongs to place k + j.
    """
    *lead, frames, size = dims_of(x)
    assert isinstance(size, int)
    pieces, rank = -(-size // step), len(lead) + 2
    x = _padded(x, rank - 1, 0, pieces * step - size)
    apart = reshaped(x, (*lead, frames, pieces, step))
    whole: Node | None = None
    for j in range(pieces):
        piece = reshaped(sliced(apart, [AxisRange(rank - 1, j, j + 1)]), (*lead, frames, step))
        placed = _padded(piece, rank - 2, j, pieces - 1 - j)
        whole = placed if whole is None else elementwise.add(whole, placed)
    assert whole is not None
    extent = normal_size((frames + (pieces - 1)) * step)
    return _as_long(reshaped(whole, (*lead, extent)), length, step)


def _as_long(x: Node, length: Dim, step: int) -> Node:
    """Return the last axis cut, or extended by fewer than `step` zeros, to a length."""
    axis = len(dims_of(x)) - 1
    extent = dims_of(x)[axis]
    if same_dim(extent, length):
        return x
    if isinstance(extent, int) and isinstance(length, int):
        long = _padded(x, axis, 0, max(length - extent, 0))
        return sliced(long, [AxisRange(axis, 0, length)])
    return sizes.dynamic_slice(
        _padded(x, axis, 0, step), begin=(0,), sizes=(length,), strides=(1,), axes=(axis,)
    )


def _padded(x: Node, axis: int, before: int, after: int) -> Node:
    rank = len(dims_of(x))
    first, last = ([n if k == axis else 0 for k in range(rank)] for n in (before, after))
    return padded(x, first, last)
