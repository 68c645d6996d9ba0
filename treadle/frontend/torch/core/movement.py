# SPDX-License-Identifier: Apache-2.0
"""Converters of views and of what moves elements: shapes, slices, joins, repetition, padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.expr.intervals import FAR
from treadle.expr.nodes import convert, maximum
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    element_type,
    reshaped,
    transposed,
)
from treadle.frontend.builders.dynamic_operands import AxisRange, padded_at_run, sliced_at_run
from treadle.frontend.builders.movement import concatenated, padded, sliced, split_at, taken
from treadle.frontend.builders.shapes import unsqueezed
from treadle.frontend.torch.node import AtenNode, aten
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import (
    Dim,
    known_sizes,
    known_true,
    normal_size,
    product_of,
    same_dim,
)
from treadle.ops import movement


@aten("view", "_unsafe_view", "reshape", "view_copy", "unsqueeze", "squeeze", "squeeze.dim",
      "squeeze.dims", "flatten.using_ints", "unflatten.int", "squeeze_copy", "unsqueeze_copy",
      "_reshape_copy", "expand_as", "view_as", "reshape_as")  # fmt: skip
def view(node: AtenNode, x: Node, *_shape: object, **_named: object) -> Node:
    """Convert a change of shape, to that which torch says the result has."""
    return reshaped(x, node.dims())


@aten("expand", "expand_copy")
def expand(node: AtenNode, x: Node, size: Sequence[Dim], implicit: bool = False) -> Node:
    """Convert a broadcast."""
    return broadcast(x, node.dims())


@aten("permute", "permute_copy")
def permute(node: AtenNode, x: Node, dims: Sequence[int]) -> Node:
    """Convert a permutation of axes."""
    return transposed(x, node.axes(list(dims), x))


@aten("transpose.int", "transpose_copy.int", "t")
def transpose(node: AtenNode, x: Node, dim0: int = 0, dim1: int = 1) -> Node:
    """Convert an exchange of two axes."""
    perm = list(range(len(dims_of(x))))
    if len(perm) < 2:
        return x
    a, b = node.axis(dim0, x), node.axis(dim1, x)
    perm[a], perm[b] = perm[b], perm[a]
    return transposed(x, perm)


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(
    node: AtenNode,
    x: Node,
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: int = 1,
) -> Node:
    """Convert every `step`-th position of an axis from `start` to before `end`."""
    bounds = (0 if start is None else start, FAR if end is None else end)
    part = AxisRange(node.axis(dim, x), *bounds, step)
    if any(known_true(convert(b) < 0) is None for b in bounds):  # the run tells where it begins
        made = sliced_at_run(x, [part], node.measure)
        node.bind_dims(dims_of(made))
        return reshaped(made, node.dims())
    made = sliced(x, [part])
    node.bind_dims(dims_of(made))
    return made


@aten("select.int", "select_copy.int")
def select(node: AtenNode, x: Node, dim: int, index: Dim) -> Node:
    """Convert one position of an axis, which the result lacks."""
    end: Dim = FAR if index == -1 else normal_size(index + 1)
    return reshaped(sliced(x, [AxisRange(node.axis(dim, x), index, end)]), node.dims())


@aten("cat", "concat")
def cat(node: AtenNode, tensors: Sequence[Node], dim: int = 0) -> Node:
    """Convert tensors one behind the other; empty vectors among others are left out."""
    rank = max(len(dims_of(t)) for t in tensors)
    parts = [t for t in tensors if len(dims_of(t)) == rank]
    return concatenated([converted(t, node.dtype()) for t in parts], node.axis(dim, parts[0]))


@aten("stack")
def stack(node: AtenNode, tensors: Sequence[Node], dim: int = 0) -> Node:
    """Convert tensors along a new axis."""
    axis = dim % len(node.dims())
    return concatenated([unsqueezed(converted(t, node.dtype()), [axis]) for t in tensors], axis)


@aten("split_with_sizes", "split_with_sizes_copy", "split.Tensor", "chunk", "unsafe_split.Tensor")
def split(node: AtenNode, x: Node, sizes: object, dim: int = 0) -> list[Node]:
    """Convert parts of an axis, of the sizes that torch says they have."""
    axis = node.axis(dim, x)
    return split_at(x, axis, [node.dims(k)[axis] for k in range(len(node.result))])


@aten("unbind.int", "unbind_copy.int")
def unbind(node: AtenNode, x: Node, dim: int = 0) -> list[Node]:
    """Convert the positions of an axis one by one."""
    parts = split_at(x, node.axis(dim, x), [1] * len(node.result))
    return [reshaped(p, node.dims(k)) for k, p in enumerate(parts)]


@aten("repeat")
def repeat(node: AtenNode, x: Node, repeats: Sequence[Dim]) -> Node:
    """Convert a tensor repeated along its axes, of which there may be new ones in front."""
    whole: tuple[Dim, ...] = (*(1,) * (len(repeats) - len(dims_of(x))), *dims_of(x))
    apart = reshaped(x, [d for extent in whole for d in (1, extent)])
    wide = [d for times, extent in zip(repeats, whole, strict=True) for d in (times, extent)]
    return reshaped(broadcast(apart, wide), node.dims())


@aten("flip")
def flip(node: AtenNode, x: Node, dims: Sequence[int]) -> Node:
    """Convert axes in reverse order."""
    if not dims:
        return x
    axes = node.axes(dims, x)
    return sliced(x, [AxisRange(a, -1, -FAR, -1) for a in axes]) if dims_of(x) else x


@aten("roll")
def roll(node: AtenNode, x: Node, shifts: Sequence[Dim], dims: Sequence[int] = ()) -> Node:
    """Convert axes that are rolled: what leaves at the end comes in at the front.

    Without axes the elements are one axis in row-major order.
    """
    if not dims:
        flat = reshaped(x, (product_of(dims_of(x)),))
        return reshaped(roll(node, flat, shifts, (0,)), dims_of(x))
    for shift, axis in zip(shifts, node.axes(dims, x), strict=True):
        extent = maximum(convert(dims_of(x)[axis]), 1)
        at = normal_size((convert(0) - shift) % extent)
        if not same_dim(at, 0):
            parts = [AxisRange(axis, at, FAR), AxisRange(axis, 0, at)]
            x = concatenated([sliced(x, [p]) for p in parts], axis)
    return x


@aten("constant_pad_nd")
def constant_pad_nd(node: AtenNode, x: Node, pad: Sequence[int], value: float = 0) -> Node:
    """Convert padding with a number; amounts below 0 cut elements off."""
    if _is_symbolic(pad):
        return _padded_to(node, x, pad, "constant", Constant.of(value, element_type(x)))
    return padded(x, *_amounts(x, pad), value=value)


_PADDING = {"reflection": "reflect", "replication": "edge"}


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
      "replication_pad2d", "replication_pad3d")  # fmt: skip
def pad_nd(node: AtenNode, x: Node, pad: Sequence[int]) -> Node:
    """Convert padding with mirrored or repeated elements."""
    mode = _PADDING[node.op.removeprefix("aten.").partition("_")[0]]
    if _is_symbolic(pad):
        return _padded_to(node, x, pad, mode)
    before, after = _amounts(x, pad)
    if mode == "edge":
        for axis, extent in enumerate(dims_of(x)):
            if isinstance(extent, int) and min(before[axis], after[axis]) <= -extent < 0:
                x = _edges(x, axis, before[axis], after[axis])
                before[axis] = after[axis] = 0
    return padded(x, before, after, mode=mode)


def _edges(x: Node, axis: int, before: int, after: int) -> Node:
    """Return an axis padded where every element is cut off: the edge is still what it was."""
    (extent,) = known_sizes(dims_of(x)[axis : axis + 1], "a padded axis")
    places = np.clip(np.arange(extent + before + after) - before, 0, extent - 1)
    return taken(x, Constant.of(places), axis)


def _is_symbolic(pad: Sequence[Dim]) -> bool:
    return not all(isinstance(amount, int) for amount in pad)


def _padded_to(
    node: AtenNode, x: Node, pad: Sequence[Dim], mode: str, value: Constant | None = None
) -> Node:
    """Return `x` padded by amounts of which some are symbolic, to the shape that torch says."""
    ends = len(pad) // 2
    rank = len(dims_of(x))
    pads = [(rank - 1 - k, pad[2 * k], pad[2 * k + 1]) for k in range(ends)]
    return reshaped(padded_at_run(x, pads, node.measure, mode, value), node.dims())


def _amounts(x: Node, pad: Sequence[Dim]) -> tuple[list[int], list[int]]:
    """Return how much is padded before and after each axis; torch lists the last axis first."""
    before, after = [0] * len(dims_of(x)), [0] * len(dims_of(x))
    for k in range(len(pad) // 2):
        low, high = pad[2 * k], pad[2 * k + 1]
        before[-1 - k], after[-1 - k] = known_sizes((low, high), "an amount of padding")
    return before, after


@aten("tril", "triu")
def triangle(node: AtenNode, x: Node, diagonal: int = 0) -> Node:
    """Convert the triangle below or above a diagonal, zeros elsewhere."""
    return movement.trilu(x, upper=node.op.startswith("aten.triu"), k=diagonal)


@aten("pixel_shuffle")
def pixel_shuffle(node: AtenNode, x: Node, upscale_factor: int) -> Node:
    """Convert channels to blocks of pixels."""
    *lead, _, h, w = dims_of(x)
    r = upscale_factor
    depth = node.dims()[-3]
    apart = reshaped(x, (*lead, depth, r, r, h, w))
    n = len(lead)
    moved = transposed(apart, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshaped(moved, node.dims())
