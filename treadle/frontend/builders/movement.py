# SPDX-License-Identifier: Apache-2.0
"""Builders of what moves elements: slices, parts, padding, repetition, choice by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from treadle.errors import ModelError
from treadle.expr.intervals import FAR
from treadle.expr.nodes import convert, int_value, maximum, minimum
from treadle.frontend.builders.basic import (
    broadcast,
    checked,
    converted,
    dims_of,
    reshaped,
    transposed,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.indices import checked_indices
from treadle.graph.nodes import Constant, Node, TupleItem
from treadle.graph.types import (
    Dim,
    known_sizes,
    known_true,
    may_agree,
    normal_size,
    same_dim,
    tensor_type,
)
from treadle.ops import elementwise, indexing, movement, sizes

PAD_MODES = ("constant", "reflect", "edge", "wrap")

BlockOrder: TypeAlias = Literal["DCR", "CRD"]
"""How channels are blocks of pixels: depth-column-row or column-row-depth (pixel shuffle)."""


def concatenated(values: Sequence[Node], axis: int) -> Node:
    """Return values one behind the other along an axis, empty ones left out."""
    parts = [v for v in values if axis >= len(dims_of(v)) or int_value(dims_of(v)[axis]) != 0]
    if len(parts) < 2:
        return parts[0] if parts else values[0]
    return movement.concat(*parts, axis=axis)


def equal_parts(extent: Dim, count: int, *, uneven: bool) -> tuple[Dim, ...]:
    """Return the sizes of `count` equal parts of an axis; if `uneven` the last may be smaller.

    Raises: ModelError when equal parts do not add up to the axis.
    """
    if count < 1:
        raise ModelError(f"a split into {count} parts is none, at least 1 is needed")
    if isinstance(extent, int) and extent % count and not uneven:
        raise ModelError(f"{extent} elements do not split into {count} equal parts")
    if not uneven:
        return (normal_size(convert(extent) // count),) * count
    part = normal_size((convert(extent) + (count - 1)) // count)
    return (*(part,) * (count - 1), normal_size(extent - part * (count - 1)))


def split_at(x: Node, axis: int, sections: Sequence[Dim]) -> list[Node]:
    """Return the parts of an axis, which have the sizes `sections`; a run checks symbolic ones."""
    extent = dims_of(x)[axis]
    known = tuple(s for s in sections if isinstance(s, int))
    if not isinstance(extent, int) or len(known) < len(sections):
        return _split_symbolic(x, axis, sections)
    if any(s < 0 for s in known) or sum(known) != extent:
        raise ModelError(f"the parts {list(known)} do not add up to {extent} on axis {axis}")
    if len(known) == 1:
        return [x]
    parts = movement.split(x, axis=axis, sections=known)
    return [TupleItem.of(parts, k) for k in range(len(known))]


def _split_symbolic(x: Node, axis: int, sections: Sequence[Dim]) -> list[Node]:
    """Return parts of an axis where its extent, or theirs, is known only to a run."""
    total = normal_size(sum(sections[1:], convert(sections[0]))) if sections else 0
    x = checked(x, "equal", total, dims_of(x)[axis], axis)
    parts: list[Node] = []
    begin: Dim = 0
    for part in sections:
        parts.append(
            sizes.dynamic_slice(x, begin=(begin,), sizes=(part,), strides=(1,), axes=(axis,))
        )
        begin = normal_size(begin + part)
    return parts


def sliced(x: Node, ranges: Sequence[AxisRange]) -> Node:
    """Return a slice whose bounds are known or symbolic; itself where that is everything.

    Raises: ModelError for a bound of which it is not known which end it counts from.
    """
    shape = dims_of(x)
    fixed: list[tuple[int, int]] = []
    for part in ranges:
        extent, begin, end = shape[part.axis], _known(part.start), _known(part.end)
        if not isinstance(extent, int) or begin is None or end is None:
            return _cut_symbolic(x, ranges)
        fixed.append(slice_bounds(extent, begin, end, part.step))
    return cut(x, fixed, [part.step for part in ranges], [part.axis for part in ranges])


def _known(bound: Dim | Node) -> int | None:
    assert not isinstance(bound, Node)  # `sliced_at_run` takes those
    return int_value(bound)


def _cut_symbolic(x: Node, ranges: Sequence[AxisRange]) -> Node:
    """Return a slice with symbolic extents or bounds."""
    begins, counts = [], []
    for part in ranges:
        begin, count = _symbolic_range(dims_of(x)[part.axis], part)
        begins.append(begin)
        counts.append(count)
    whole = all(
        begin == 0 and same_dim(count, dims_of(x)[part.axis]) and part.step == 1
        for part, begin, count in zip(ranges, begins, counts, strict=True)
    )
    if whole:
        return x
    steps = tuple(max(-FAR, min(part.step, FAR)) for part in ranges)
    axes = tuple(part.axis for part in ranges)
    return sizes.dynamic_slice(
        x, begin=tuple(begins), sizes=tuple(counts), strides=steps, axes=axes
    )


def _symbolic_range(extent: Dim, part: AxisRange) -> tuple[Dim, Dim]:
    """Return the first position and the number of elements of a slice, clamped to the axis."""
    assert not isinstance(part.start, Node)
    assert not isinstance(part.end, Node)
    low, high = (0, extent) if part.step > 0 else (-1, extent - 1)
    first = _clamped(_from_front(part.start, extent), 0, high)
    last = _clamped(_from_front(part.end, extent), low, high)
    span = normal_size(last - first if part.step > 0 else first - last)
    stride = min(abs(part.step), FAR)
    count = (convert(span) + (stride - 1)) // stride
    return first, normal_size(maximum(count, 0))


def _from_front(position: Dim, extent: Dim) -> Dim:
    """Return a position that counts from the end where it is negative as one from the front."""
    if isinstance(position, int) and position <= -FAR:
        return position  # before the front of any axis
    negative = known_true(convert(position) < 0)
    if negative is None:
        raise ModelError(
            f"the position {position} of a slice may count from the front or from the end",
            hint="give the sizes with --input-shapes",
        )
    return normal_size(position + extent) if negative else position


def _clamped(position: Dim, low: Dim, high: Dim) -> Dim:
    return normal_size(minimum(maximum(convert(position), low), high))


def slice_bounds(extent: int, start: int, end: int, step: int) -> tuple[int, int]:
    """Return start and end clamped to the axis; negative ones count from its end.

    A range that walks backwards to the front ends at -1.
    """
    if step > 0:
        low, high = 0, extent
    else:
        low, high = -1, extent - 1
    begin = start + extent if start < 0 else start
    stop = end + extent if end < 0 else end
    first = min(max(begin, 0), high if step < 0 else extent)
    return first, min(max(stop, low), high)


def cut(
    x: Node,
    bounds: Sequence[tuple[int, int]],
    strides: Sequence[int],
    axes: Sequence[int],
) -> Node:
    """Return a slice of `x`; itself where the slice is everything."""
    shape = tensor_type(x.type).shape
    whole = all(
        (b, e, s) == ((0, shape[a], 1)) for a, (b, e), s in zip(axes, bounds, strides, strict=True)
    )
    if whole:
        return x
    return movement.slice_(
        x,
        begin=tuple(b for b, _ in bounds),
        end=tuple(e for _, e in bounds),
        strides=tuple(strides),
        axes=tuple(axes),
    )


def padded(
    x: Node, before: Sequence[int], after: Sequence[int], mode: str = "constant", value: float = 0.0
) -> Node:
    """Return `x` padded on every axis; negative amounts cut elements off."""
    if not any(before) and not any(after):
        return x
    return movement.pad(x, before=tuple(before), after=tuple(after), mode=mode, value=float(value))


def padded_with(x: Node, before: Sequence[int], after: Sequence[int], value: Node) -> Node:
    """Return `x` padded on every axis with a number that only a run knows."""
    zeros = padded(x, before, after)
    ones = broadcast(Constant.of(1, "uint8"), dims_of(x))
    inside = converted(padded(ones, before, after), "bool")
    return elementwise.where(inside, zeros, reshaped(value, ()))


def taken(data: Node, indices: Node, axis: int, op: str = "the operator") -> Node:
    """Return the slices of `data` along `axis` that indices of any shape choose (an embedding).

    Negative indices count from the end. Raises: ModelError, about `op`, for a known one outside.
    """
    return indexing.gather(data, checked_indices(data, indices, axis, op=op), axis=axis)


def taken_per_batch(
    data: Node, indices: Node, axis: int, batch: int, op: str = "the operator"
) -> Node:
    """Return slices along `axis` that each entry of the first `batch` axes chooses for itself.

    Raises: ModelError, about `op`, for a known index outside, or more batch axes than there are.
    """
    dims, places = dims_of(data), dims_of(indices)
    if not 0 < batch <= axis or batch > len(places):
        raise ModelError(f"{batch} batch axes of {op} do not fit axis {axis}")
    order = (*range(batch), axis, *range(batch, axis), *range(axis + 1, len(dims)))
    x = transposed(data, order)
    index = checked_indices(x, reshaped(indices, (*places, 1)), batch, op=op)
    made = indexing.gather_nd(x, index, batch_dims=batch)
    count, rest = len(places) - batch, axis - batch
    perm = (
        *range(batch),
        *range(batch + count, batch + count + rest),
        *range(batch, batch + count),
        *range(batch + count + rest, len(dims_of(made))),
    )
    return transposed(made, perm)


def mirrored(x: Node, before: Sequence[int], after: Sequence[int], *, repeats_border: bool) -> Node:
    """Return `x` padded with what lies mirrored behind its border, which repeats or not."""
    if not repeats_border:
        return padded(x, before, after, "reflect")
    for axis, (front, back) in enumerate(zip(before, after, strict=True)):
        if not front and not back:
            continue
        (extent,) = known_sizes(dims_of(x)[axis : axis + 1])
        if max(front, back) > extent:
            raise ModelError(f"a padding of {max(front, back)} mirrors {extent} elements")
        places = [
            *range(front - 1, -1, -1),
            *range(extent),
            *range(extent - 1, extent - 1 - back, -1),
        ]
        x = indexing.gather(x, Constant.of(np.array(places, "int64")), axis=axis)
    return x


def tiled(x: Node, repeats: Sequence[int]) -> Node:
    """Return `x` repeated along every axis."""
    if len(repeats) != len(dims_of(x)) or any(r < 0 for r in repeats):
        raise ModelError(f"the repeats {list(repeats)} do not fit {x.type}")
    if all(r == 1 for r in repeats):
        return x
    return movement.tile(x, repeats=tuple(repeats))


def depth_to_space(x: Node, block: int, order: BlockOrder) -> Node:
    """Return [n, c * block * block, h, w] as [n, c, h * block, w * block]."""
    n, c, h, w = _image(x, block)
    if c % (block * block):
        raise ModelError(f"{c} channels are not a multiple of {block} * {block}")
    depth = c // (block * block)
    if order == "DCR":
        parts, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = transposed(reshaped(x, parts), perm)
    return reshaped(moved, (n, depth, h * block, w * block))


def space_to_depth(x: Node, block: int, order: BlockOrder) -> Node:
    """Return [n, c, h * block, w * block] as [n, c * block * block, h, w]."""
    n, c, h, w = _image(x, block)
    if any(known_true(convert(d) % block != 0) for d in (h, w)):
        raise ModelError(f"{h} x {w} pixels do not divide into blocks of {block}")
    parts = reshaped(x, (n, c, h // block, block, w // block, block))
    perm = (0, 3, 5, 1, 2, 4) if order == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshaped(transposed(parts, perm), (n, c * block * block, h // block, w // block))


def _image(x: Node, block: int) -> tuple[Dim, int, Dim, Dim]:
    if block < 1:
        raise ModelError(f"the blocksize is {block}, at least 1 is needed")
    shape = dims_of(x)
    if len(shape) != 4:
        raise ModelError(f"a tensor [n, c, h, w] is expected, not {x.type}")
    n, c, h, w = shape
    if not isinstance(c, int):
        raise ModelError(f"the channels of {x.type} must be a known number")
    return n, c, h, w


def sequences_reversed(x: Node, lengths: Node, time: int, op: str = "the operator") -> Node:
    """Return `x` with the first `lengths[b]` steps of every sequence in reverse order.

    Axes 0 and 1 of `x` are time and batch in the order that `time` says; `lengths` is [batch].
    """
    shape = dims_of(x)
    steps, count = shape[time], shape[1 - time]
    if isinstance(lengths, Constant) and isinstance(steps, int):
        known = [int(v) for v in lengths.value.reshape(-1)]
        if not may_agree(len(known), count) or not all(0 <= n <= steps for n in known):
            raise ModelError(f"the sequence lengths {known[:8]} do not fit {x.type}")
    is_known = isinstance(lengths, Constant) and isinstance(steps, int)
    lens = reshaped(converted(lengths, "int64"), tuple(1 if k == time else count for k in (0, 1)))
    count_up = sizes.arange(start=0, step=1, size=steps)
    place = reshaped(count_up, tuple(steps if k == time else 1 for k in (0, 1)))
    mirrored = elementwise.subtract(elementwise.subtract(lens, Constant.of(1, "int64")), place)
    order: Node = elementwise.where(elementwise.less(place, lens), mirrored, place)
    if not is_known:  # lengths beyond the axis read outside of it
        order = checked_indices(x, order, time, op=op)
    spread = reshaped(order, (*shape[:2], *(1,) * (len(shape) - 2)))
    return indexing.gather_elements(x, broadcast(spread, shape), axis=time)
