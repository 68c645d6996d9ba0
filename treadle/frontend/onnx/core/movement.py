# SPDX-License-Identifier: Apache-2.0
"""Converters of operators that move elements: transpose, slice, pad, concat, split, gather, …"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.expr.bounds import FAR
from treadle.expr.nodes import convert, int_value, maximum, minimum
from treadle.frontend.builders.basic import (
    broadcast,
    checked,
    converted,
    dims_of,
    reshaped,
    transposed,
)
from treadle.frontend.onnx.core.dynamic_operands import (
    elements,
    is_computed,
    pad_computed,
    slice_computed,
    tile_computed,
)
from treadle.frontend.onnx.core.indices import checked_indices
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.symbolic import is_sizes
from treadle.graph.broadcasting import common_dim, is_literal_one, taken_dim
from treadle.graph.nodes import Constant, Node, TupleItem
from treadle.graph.types import (
    Dim,
    known_true,
    may_agree,
    normal_size,
    same_dim,
    tensor_type,
)
from treadle.ops import elementwise, movement, sizes

_DIAGONALS = 1 << 40
"""More than any tensor has."""

_PAD_MODES = ("constant", "reflect", "edge", "wrap")


@converter("Transpose", since=(1, 13, 21, 23, 24, 25))
def transpose(node: OnnxNode) -> Node:
    """Convert a permutation of the axes; without `perm` they are reversed."""
    ndim = node.type(0).ndim
    perm = node.integers("perm")
    if perm is None:
        return transposed(node.input(0), tuple(reversed(range(ndim))))
    if sorted(node.axes(perm, ndim)) != list(range(ndim)):
        raise ModelError(f"perm {list(perm)} is no permutation of {ndim} axes")
    return transposed(node.input(0), node.axes(perm, ndim))


@converter("Concat", since=(1, 4, 11, 13))
def concat(node: OnnxNode) -> Node:
    """Convert a concatenation (empty parts left out); the axis defaults to 1 before opset 4."""
    values = node.all_inputs()
    axis = node.integer("axis", 1 if node.version == 1 else None)
    if node.type(0).ndim == 0:
        raise ModelError("scalars cannot be concatenated")
    at = node.axis(axis, node.type(0).ndim)
    parts = [v for v in values if at >= len(dims_of(v)) or int_value(dims_of(v)[at]) != 0]
    if len(parts) < 2:
        return parts[0] if parts else values[0]
    return movement.concat(*parts, axis=at)


@converter("Split", since=(1, 2, 11, 13, 18))
def split(node: OnnxNode) -> list[Node]:
    """Convert a split into parts of given sizes, or of (nearly) equal ones."""
    x = node.input(0)
    axis = node.axis(node.integer("axis", 0), node.type(0).ndim)
    extent = node.dims(0)[axis]
    if not isinstance(extent, int) or is_computed(node, 1) or _has_sizes(node, 1):
        return _split_symbolic(node, x, axis, extent)
    sections = _sections(node, extent)
    if any(s < 0 for s in sections) or sum(sections) != extent:
        raise ModelError(f"the parts {list(sections)} do not add up to {extent} on axis {axis}")
    if len(node.outputs) > len(sections):
        raise ModelError(f"{len(node.outputs)} outputs for {len(sections)} parts")
    if len(sections) == 1:
        return [x]
    parts = movement.split(x, axis=axis, sections=sections)
    return [TupleItem.of(parts, k) for k in range(len(sections))]


def _has_sizes(node: OnnxNode, index: int) -> bool:
    given = node.optional(index)
    return given is not None and is_sizes(given)


def _split_symbolic(node: OnnxNode, x: Node, axis: int, extent: Dim) -> list[Node]:
    """Return parts of an axis where its extent, or theirs, is known only to a run."""
    given = _symbolic_sections(node, extent)
    total = normal_size(sum(given[1:], convert(given[0]))) if given else 0
    x = checked(x, "equal", total, extent, axis)
    parts: list[Node] = []
    begin: Dim = 0
    for part in given:
        parts.append(sizes.cut(x, begin=(begin,), sizes=(part,), strides=(1,), axes=(axis,)))
        begin = normal_size(begin + part)
    return parts


def _symbolic_sections(node: OnnxNode, extent: Dim) -> tuple[Dim, ...]:
    """Return the sizes of the parts: computed, given, or nearly equal (equal before opset 18)."""
    count = len(node.outputs)
    if node.version >= 18:
        count = node.integer("num_outputs", count)
    listed = node.integers("split") if node.version < 13 else None
    if is_computed(node, 1):
        return tuple(node.measure(part) for part in elements(node, 1))
    if node.has_input(1):
        return node.sizes(1, "sizes of the parts")
    if listed is not None:
        return listed
    if count < 1:
        raise ModelError(f"num_outputs is {count}, at least 1 is needed")
    if node.version < 18:
        return (normal_size(convert(extent) // count),) * count
    part = normal_size((convert(extent) + (count - 1)) // count)
    return (*(part,) * (count - 1), normal_size(extent - part * (count - 1)))


def _sections(node: OnnxNode, extent: int) -> tuple[int, ...]:
    sizes = node.integers("split") if node.version < 13 else None
    if node.has_input(1):
        sizes = node.constant_ints(1, "sizes of the parts")
    count = node.integer("num_outputs", len(node.outputs)) if node.version >= 18 else None
    if sizes is not None:
        return sizes
    if count is None:
        count = len(node.outputs)
        if extent % count:
            raise ModelError(f"{extent} elements do not split into {count} equal parts")
    if count < 1:
        raise ModelError(f"num_outputs is {count}, at least 1 is needed")
    part = -(-extent // count)
    return (*(part,) * (count - 1), extent - part * (count - 1))


@converter("Slice", since=(1,))
def slice_by_attributes(node: OnnxNode) -> Node:
    """Convert a slice whose bounds are attributes; the step is 1."""
    starts, ends = node.integers("starts") or (), node.integers("ends") or ()
    axes = node.integers("axes")
    return _sliced(node, starts, ends, range(len(starts)) if axes is None else axes, None)


@converter("Slice", since=(10, 11, 13))
def slice_by_inputs(node: OnnxNode) -> Node:
    """Convert a slice whose bounds, axes and steps are inputs."""
    if is_computed(node, 1, 2):
        return slice_computed(node)
    starts, ends = node.sizes(1, "starts"), node.sizes(2, "ends")
    axes = node.constant_ints(3, "axes") if node.has_input(3) else range(len(starts))
    steps = node.constant_ints(4, "steps") if node.has_input(4) else None
    return _sliced(node, starts, ends, axes, steps)


def _sliced(
    node: OnnxNode,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[int],
    steps: Sequence[int] | None,
) -> Node:
    strides = (1,) * len(starts) if steps is None else tuple(steps)
    if not len(starts) == len(ends) == len(axes) == len(strides):
        raise ModelError(
            f"Slice has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and "
            f"{len(strides)} steps"
        )
    if 0 in strides:
        raise ModelError("a step of Slice is 0")
    shape = node.dims(0)
    at = node.axes(axes, len(shape))
    positions = list(zip(at, starts, ends, strides, strict=True))
    fixed: list[tuple[int, int]] = []
    for a, b, e, s in positions:
        extent, begin, end = shape[a], int_value(b), int_value(e)
        if not isinstance(extent, int) or begin is None or end is None:
            return _cut_symbolic(node.input(0), positions)
        fixed.append(slice_bounds(extent, begin, end, s))
    return cut(node.input(0), fixed, strides, at)


def _cut_symbolic(x: Node, positions: Sequence[tuple[int, Dim, Dim, int]]) -> Node:
    """Return a slice with symbolic extents or bounds: axis, start, end and step of each axis."""
    begins, counts = [], []
    for axis, start, end, step in positions:
        begin, count = _symbolic_range(dims_of(x)[axis], start, end, step)
        begins.append(begin)
        counts.append(count)
    axes = tuple(axis for axis, *_ in positions)
    whole = all(
        begin == 0 and same_dim(count, dims_of(x)[axis]) and step == 1
        for axis, begin, count, (*_, step) in zip(axes, begins, counts, positions, strict=True)
    )
    if whole:
        return x
    steps = tuple(max(-FAR, min(step, FAR)) for *_, step in positions)
    return sizes.cut(x, begin=tuple(begins), sizes=tuple(counts), strides=steps, axes=axes)


def _symbolic_range(extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Return the first position and the number of elements of a slice, as ONNX clamps it."""
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first = _clamped(_from_front(start, extent), 0, high)
    last = _clamped(_from_front(end, extent), low, high)
    span = normal_size(last - first if step > 0 else first - last)
    stride = min(abs(step), FAR)
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
    """Return start and end clamped as ONNX says: negative ones count from the end.

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


@converter("Pad", since=(1, 2))
def pad_by_attributes(node: OnnxNode) -> Node:
    """Convert a padding whose amounts are attributes."""
    pads = node.integers("paddings" if node.version == 1 else "pads") or ()
    value = node.number("value", 0.0)
    ndim = node.type(0).ndim
    return _padded(node, pads, value, range(ndim))


@converter("Pad", since=(11, 13, 18, 19, 21, 23, 24, 25))
def pad_by_inputs(node: OnnxNode) -> Node:
    """Convert a padding whose amounts, value and axes are inputs."""
    ndim = node.type(0).ndim
    axes = node.constant_ints(3, "axes") if node.has_input(3) else range(ndim)
    value, at = node.optional(2), node.axes(axes, ndim)
    if not isinstance(node.input(1), Constant):
        return pad_computed(node, at, _pad_mode(node))
    pads = node.constant_ints(1, "pads")
    if value is None or isinstance(value, Constant):
        fill = value.value.reshape(-1)[0].item() if value is not None and value.value.size else 0.0
        return _padded(node, pads, fill, at)
    zeros = _padded(node, pads, 0.0, at)
    if node.text("mode", "constant") != "constant":
        return zeros
    ones = broadcast(Constant.of(1, "uint8"), node.dims(0))
    inside = converted(padded(ones, *_amounts(node, pads, at)), "bool")
    return elementwise.where(inside, zeros, reshaped(value, ()))


def _amounts(
    node: OnnxNode, pads: Sequence[int], axes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the elements to add before and after every axis."""
    if len(pads) != 2 * len(axes):
        raise ModelError(f"Pad has {len(pads)} amounts for {len(axes)} axes; it needs two each")
    before, after = [0] * node.type(0).ndim, [0] * node.type(0).ndim
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    return before, after


def _padded(node: OnnxNode, pads: Sequence[int], value: float, axes: Sequence[int]) -> Node:
    before, after = _amounts(node, pads, axes)
    return padded(node.input(0), before, after, _pad_mode(node), value)


def _pad_mode(node: OnnxNode) -> str:
    mode = node.text("mode", "constant")
    if mode not in _PAD_MODES:
        raise ModelError(f"the mode of Pad is {mode!r}, not one of {', '.join(_PAD_MODES)}")
    return mode


def padded(
    x: Node, before: Sequence[int], after: Sequence[int], mode: str = "constant", value: float = 0.0
) -> Node:
    """Return `x` padded on every axis; negative amounts cut elements off."""
    if not any(before) and not any(after):
        return x
    return movement.pad(x, before=tuple(before), after=tuple(after), mode=mode, value=float(value))


@converter("Gather", since=(1, 11, 13))
def gather(node: OnnxNode) -> Node:
    """Convert a selection of slices by index."""
    axis = node.axis(node.integer("axis", 0), node.type(0).ndim)
    data = node.input(0)
    return movement.gather(data, checked_indices(node, data, node.input(1), axis), axis=axis)


@converter("GatherElements", since=(11, 13))
def gather_elements(node: OnnxNode) -> Node:
    """Convert a selection of single elements along an axis."""
    axis = node.axis(node.integer("axis", 0), node.type(0).ndim)
    data = node.input(0)
    return movement.gather_elements(
        data, checked_indices(node, data, node.input(1), axis), axis=axis
    )


@converter("GatherND", since=(11, 12, 13))
def gather_nd(node: OnnxNode) -> Node:
    """Convert a selection by index tuples."""
    data, indices, batch = node.input(0), node.input(1), node.integer("batch_dims", 0)
    depth = int_value(dims_of(indices)[-1]) if dims_of(indices) else None
    if depth and batch >= 0 and batch + depth <= len(dims_of(data)):  # else no selection at all
        indices = checked_indices(node, data, indices, batch, depth)
    return movement.gather_nd(data, indices, batch_dims=batch)


@converter("Tile", since=(1,))
def tile_along_axis(node: OnnxNode) -> Node:
    """Convert a repetition along one axis."""
    (tiles,), (axis,) = node.constant_ints(1, "tiles"), node.constant_ints(2, "axis")
    repeats = [1] * node.type(0).ndim
    repeats[node.axis(axis, len(repeats))] = tiles
    return _tiled(node, repeats)


@converter("Tile", since=(6, 13))
def tile(node: OnnxNode) -> Node:
    """Convert a repetition along every axis."""
    if is_computed(node, 1):
        return tile_computed(node)
    return _tiled(node, node.constant_ints(1, "repeats"))


def _tiled(node: OnnxNode, repeats: Sequence[int]) -> Node:
    if len(repeats) != node.type(0).ndim or any(r < 0 for r in repeats):
        raise ModelError(f"the repeats {list(repeats)} do not fit {node.type(0)}")
    if all(r == 1 for r in repeats):
        return node.input(0)
    return movement.tile(node.input(0), repeats=tuple(repeats))


@converter("Expand", since=(8, 13))
def expand(node: OnnxNode) -> Node:
    """Convert a broadcast; dimensions of 1 in the target keep the input's size."""
    given = (
        [node.measure(w) for w in elements(node, 1)]
        if is_computed(node, 1)
        else list(node.sizes(1, "shape"))
    )
    dims = node.dims(0)
    own: list[Dim] = [*[1] * (len(given) - len(dims)), *dims]
    wanted: list[Dim] = [*[1] * (len(own) - len(given)), *given]
    x, target = node.input(0), list[Dim]()
    for axis, (d, w) in enumerate(zip(own, wanted, strict=True)):
        found = _expanded_dim(d, w)
        if found is None:
            raise ModelError(f"{node.type(0)} does not broadcast to {given}: {d} against {w}")
        target.append(found)
        if isinstance(d, int) and d != 1 and not isinstance(w, int):
            x = checked(x, "equal", taken_dim(w, d), d, axis)
    return broadcast(x, target)


def _expanded_dim(own: Dim, wanted: Dim) -> Dim | None:
    """Return the extent of an axis whose size is `wanted`, or its own where that is 1."""
    if isinstance(wanted, int) or is_literal_one(wanted) or is_literal_one(own):
        return common_dim(own, wanted)
    return own if isinstance(own, int) or same_dim(own, wanted) else taken_dim(wanted, own)


@converter("DepthToSpace", since=(1, 11, 13, 28))
def depth_to_space(node: OnnxNode) -> Node:
    """Convert channels to blocks of pixels: depth-column-row (DCR) or column-row-depth (CRD)."""
    block, mode = _block(node), _block_mode(node)
    n, c, h, w = _image(node)
    if c % (block * block):
        raise ModelError(f"{c} channels are not a multiple of {block} * {block}")
    depth = c // (block * block)
    if mode == "DCR":
        parts, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = transposed(reshaped(node.input(0), parts), perm)
    return reshaped(moved, (n, depth, h * block, w * block))


@converter("SpaceToDepth", since=(1, 13, 28))
def space_to_depth(node: OnnxNode) -> Node:
    """Convert blocks of pixels to channels: depth-column-row (DCR) or column-row-depth (CRD)."""
    block = _block(node)
    mode = _block_mode(node) if node.version >= 28 else "DCR"
    n, c, h, w = _image(node)
    if any(known_true(convert(d) % block != 0) for d in (h, w)):
        raise ModelError(f"{h} x {w} pixels do not divide into blocks of {block}")
    parts = reshaped(node.input(0), (n, c, h // block, block, w // block, block))
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshaped(transposed(parts, perm), (n, c * block * block, h // block, w // block))


def _block(node: OnnxNode) -> int:
    block = node.integer("blocksize")
    if block < 1:
        raise ModelError(f"the blocksize is {block}, at least 1 is needed")
    return block


def _block_mode(node: OnnxNode) -> str:
    mode = node.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise ModelError(f"the mode is {mode!r}, not DCR or CRD")
    return mode


def _image(node: OnnxNode) -> tuple[Dim, int, Dim, Dim]:
    shape = node.dims(0)
    if len(shape) != 4:
        raise ModelError(f"a tensor [n, c, h, w] is expected, not {node.type(0)}")
    n, c, h, w = shape
    if not isinstance(c, int):
        raise ModelError(f"the channels of {node.type(0)} must be a known number")
    return n, c, h, w


@converter("Trilu", since=(14,))
def triangle(node: OnnxNode) -> Node:
    """Convert the upper or lower triangle of matrices; the rest is zero."""
    diagonal = int(node.constant_scalar(1, "diagonal")) if node.has_input(1) else 0
    diagonal = min(max(diagonal, -_DIAGONALS), _DIAGONALS)
    return movement.trilu(node.input(0), upper=node.flag("upper", True), k=diagonal)


@converter("ReverseSequence", since=(10, 28))
def reverse_sequence(node: OnnxNode) -> Node:
    """Convert a reversal of the first elements of every sequence."""
    x, ndim, shape = node.input(0), node.type(0).ndim, node.dims(0)
    time = node.axis(node.integer("time_axis", 0), ndim)
    batch = node.axis(node.integer("batch_axis", 1), ndim)
    steps, count = shape[time], shape[batch]
    if {time, batch} != {0, 1} or len(node.dims(1)) != 1:
        raise ModelError(f"the axes of {node.op} are 0 and 1, the lengths a vector")
    given = node.input(1)
    if isinstance(given, Constant) and isinstance(steps, int):
        lengths = node.constant_ints(1, "sequence_lens")
        if not may_agree(len(lengths), count) or not _fit(lengths, steps):
            raise ModelError(f"the sequence lengths {list(lengths)[:8]} do not fit {node.type(0)}")
    is_known = isinstance(given, Constant) and isinstance(steps, int)
    lens = reshaped(converted(given, "int64"), tuple(1 if k == time else count for k in (0, 1)))
    count_up = sizes.count(start=0, step=1, size=steps)
    place = reshaped(count_up, tuple(steps if k == time else 1 for k in (0, 1)))
    turned = elementwise.subtract(elementwise.subtract(lens, Constant.of(1, "int64")), place)
    order: Node = elementwise.where(elementwise.less(place, lens), turned, place)
    if not is_known:  # lengths beyond the axis read outside of it
        order = checked_indices(node, x, order, time)
    spread = reshaped(order, (*shape[:2], *(1,) * (ndim - 2)))
    return movement.gather_elements(x, broadcast(spread, shape), axis=time)


def _fit(lengths: Sequence[int], steps: int) -> bool:
    return all(0 <= n <= steps for n in lengths)
