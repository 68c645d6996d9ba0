# SPDX-License-Identifier: Apache-2.0
"""Converters of operators that move elements: transpose, slice, pad, concat, split, gather, …"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import dims_of, transposed
from treadle.frontend.builders.dynamic_operands import (
    Amount,
    AxisRange,
    padded_at_run,
    sliced_at_run,
    tiled_at_run,
)
from treadle.frontend.builders.indices import checked_indices
from treadle.frontend.builders.movement import (
    PAD_MODES,
    BlockOrder,
    concatenated,
    depth_to_space,
    equal_parts,
    padded,
    padded_with,
    sequences_reversed,
    sliced,
    space_to_depth,
    split_at,
    taken,
    tiled,
)
from treadle.frontend.builders.shapes import expanded
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.symbolic import size_values
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim
from treadle.ops import indexing, movement

_DIAGONALS = 1 << 40
"""More than any tensor has."""


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
    return concatenated(values, node.axis(axis, node.type(0).ndim))


@converter("Split", since=(1, 2, 11, 13, 18))
def split(node: OnnxNode) -> list[Node]:
    """Convert a split into parts of given sizes, or of (nearly) equal ones."""
    axis = node.axis(node.integer("axis", 0), node.type(0).ndim)
    parts = split_at(node.input(0), axis, _sections(node, node.dims(0)[axis]))
    if len(node.outputs) > len(parts):
        raise ModelError(f"{len(node.outputs)} outputs for {len(parts)} parts")
    return parts


def _sections(node: OnnxNode, extent: Dim) -> tuple[Dim, ...]:
    """Return the sizes of the parts: computed, given, or nearly equal (equal before opset 18)."""
    count = len(node.outputs)
    if node.version >= 18:
        count = node.integer("num_outputs", count)
    listed = node.integers("split") if node.version < 13 else None
    if node.is_computed(1):
        return tuple(node.measure(part) for part in node.elements(1))
    if node.has_input(1):
        return node.sizes(1, "sizes of the parts")
    if listed is not None:
        return listed
    return equal_parts(extent, count, uneven=node.version >= 18)


@converter("Slice", since=(1,))
def slice_by_attributes(node: OnnxNode) -> Node:
    """Convert a slice whose bounds are attributes; the step is 1."""
    starts, ends = node.integers("starts") or (), node.integers("ends") or ()
    axes = node.integers("axes")
    axes = tuple(range(len(starts))) if axes is None else axes
    return sliced(node.input(0), _ranges(node, starts, ends, axes, (1,) * len(starts)))


@converter("Slice", since=(10, 11, 13))
def slice_by_inputs(node: OnnxNode) -> Node:
    """Convert a slice whose bounds, axes and steps are inputs."""
    starts: Sequence[Amount]
    ends: Sequence[Amount]
    is_computed = node.is_computed(1, 2)
    if is_computed:
        starts, ends = node.elements(1), node.elements(2)
    else:
        starts, ends = node.sizes(1, "starts"), node.sizes(2, "ends")
    axes = node.constant_ints(3, "axes") if node.has_input(3) else tuple(range(len(starts)))
    steps = node.constant_ints(4, "steps") if node.has_input(4) else (1,) * len(starts)
    ranges = _ranges(node, starts, ends, axes, steps)
    if is_computed:
        return sliced_at_run(node.input(0), ranges, node.measure)
    return sliced(node.input(0), ranges)


def _ranges(
    node: OnnxNode,
    starts: Sequence[Amount],
    ends: Sequence[Amount],
    axes: Sequence[int],
    steps: Sequence[int],
) -> list[AxisRange]:
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(
            f"Slice has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and "
            f"{len(steps)} steps"
        )
    at = node.axes(axes, node.type(0).ndim)
    return [AxisRange(*part) for part in zip(at, starts, ends, steps, strict=True)]


@converter("Pad", since=(1, 2))
def pad_by_attributes(node: OnnxNode) -> Node:
    """Convert a padding whose amounts are attributes."""
    pads = node.integers("paddings" if node.version == 1 else "pads") or ()
    before, after = _on_every_axis(node, pads, range(node.type(0).ndim))
    return padded(node.input(0), before, after, _pad_mode(node), node.number("value", 0.0))


@converter("Pad", since=(11, 13, 18, 19, 21, 23, 24, 25))
def pad_by_inputs(node: OnnxNode) -> Node:
    """Convert a padding whose amounts, value and axes are inputs."""
    ndim = node.type(0).ndim
    axes = node.constant_ints(3, "axes") if node.has_input(3) else range(ndim)
    x, value, at, mode = node.input(0), node.optional(2), node.axes(axes, ndim), _pad_mode(node)
    if not isinstance(node.input(1), Constant):
        amounts = _checked_amounts(_amounts(node), at)
        pads = [(axis, amounts[k], amounts[k + len(at)]) for k, axis in enumerate(at)]
        return padded_at_run(x, pads, node.measure, mode, value)
    before, after = _on_every_axis(node, node.constant_ints(1, "pads"), at)
    if value is not None and not isinstance(value, Constant) and mode == "constant":
        return padded_with(x, before, after, value)
    return padded(x, before, after, mode, _first_number(value))


def _first_number(value: Node | None) -> float:
    """Return what a constant padding value holds; 0 where there is none."""
    if not isinstance(value, Constant) or not value.value.size:
        return 0.0
    return float(value.value.reshape(-1)[0])


def _amounts(node: OnnxNode) -> list[Amount]:
    """Return how much Pad adds at each end: sizes, or int64 scalars."""
    values = size_values(node.input(1))
    return [*node.elements(1)] if values is None else [*values.reshape(-1)]


def _checked_amounts(pads: Sequence[Amount], axes: Sequence[int]) -> Sequence[Amount]:
    if len(pads) != 2 * len(axes):
        raise ModelError(f"Pad has {len(pads)} amounts for {len(axes)} axes; it needs two each")
    return pads


def _on_every_axis(
    node: OnnxNode, pads: Sequence[int], axes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the elements to add before and after every axis."""
    _checked_amounts(pads, axes)
    before, after = [0] * node.type(0).ndim, [0] * node.type(0).ndim
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    return before, after


def _pad_mode(node: OnnxNode) -> str:
    mode = node.text("mode", "constant")
    if mode not in PAD_MODES:
        raise ModelError(f"the mode of Pad is {mode!r}, not one of {', '.join(PAD_MODES)}")
    return mode


@converter("Gather", since=(1, 11, 13))
def gather(node: OnnxNode) -> Node:
    """Convert a selection of slices by index."""
    axis = node.axis(node.integer("axis", 0), node.type(0).ndim)
    return taken(node.input(0), node.input(1), axis, node.op)


@converter("GatherElements", since=(11, 13))
def gather_elements(node: OnnxNode) -> Node:
    """Convert a selection of single elements along an axis."""
    axis = node.axis(node.integer("axis", 0), node.type(0).ndim)
    data = node.input(0)
    indices = checked_indices(data, node.input(1), axis, op=node.op)
    return indexing.gather_elements(data, indices, axis=axis)


@converter("GatherND", since=(11, 12, 13))
def gather_nd(node: OnnxNode) -> Node:
    """Convert a selection by index tuples."""
    data, indices, batch = node.input(0), node.input(1), node.integer("batch_dims", 0)
    depth = int_value(dims_of(indices)[-1]) if dims_of(indices) else None
    if depth and batch >= 0 and batch + depth <= len(dims_of(data)):  # else no selection at all
        indices = checked_indices(data, indices, batch, depth, op=node.op)
    return indexing.gather_nd(data, indices, batch_dims=batch)


@converter("Tile", since=(1,))
def tile_along_axis(node: OnnxNode) -> Node:
    """Convert a repetition along one axis."""
    (tiles,), (axis,) = node.constant_ints(1, "tiles"), node.constant_ints(2, "axis")
    repeats = [1] * node.type(0).ndim
    repeats[node.axis(axis, len(repeats))] = tiles
    return tiled(node.input(0), repeats)


@converter("Tile", since=(6, 13))
def tile(node: OnnxNode) -> Node:
    """Convert a repetition along every axis."""
    if node.is_computed(1):
        return tiled_at_run(node.input(0), node.elements(1), node.measure)
    return tiled(node.input(0), node.constant_ints(1, "repeats"))


@converter("Expand", since=(8, 13))
def expand(node: OnnxNode) -> Node:
    """Convert a broadcast; dimensions of 1 in the target keep the input's size."""
    if node.is_computed(1):
        return expanded(node.input(0), [node.measure(w) for w in node.elements(1)])
    return expanded(node.input(0), node.sizes(1, "shape"))


@converter("DepthToSpace", since=(1, 11, 13, 28))
def convert_depth_to_space(node: OnnxNode) -> Node:
    """Convert channels to blocks of pixels: depth-column-row (DCR) or column-row-depth (CRD)."""
    return depth_to_space(node.input(0), node.integer("blocksize"), _block_order(node))


@converter("SpaceToDepth", since=(1, 13, 28))
def convert_space_to_depth(node: OnnxNode) -> Node:
    """Convert blocks of pixels to channels: depth-column-row (DCR) or column-row-depth (CRD)."""
    order = _block_order(node) if node.version >= 28 else "DCR"
    return space_to_depth(node.input(0), node.integer("blocksize"), order)


def _block_order(node: OnnxNode) -> BlockOrder:
    orders: dict[str, BlockOrder] = {"DCR": "DCR", "CRD": "CRD"}
    mode = node.text("mode", "DCR")
    if mode not in orders:
        raise ModelError(f"the mode is {mode!r}, not DCR or CRD")
    return orders[mode]


@converter("Trilu", since=(14,))
def triangle(node: OnnxNode) -> Node:
    """Convert the upper or lower triangle of matrices; the rest is zero."""
    diagonal = int(node.constant_scalar(1, "diagonal")) if node.has_input(1) else 0
    diagonal = min(max(diagonal, -_DIAGONALS), _DIAGONALS)
    return movement.trilu(node.input(0), upper=node.flag("upper", True), k=diagonal)


@converter("ReverseSequence", since=(10, 28))
def reverse_sequence(node: OnnxNode) -> Node:
    """Convert a reversal of the first elements of every sequence."""
    ndim = node.type(0).ndim
    time = node.axis(node.integer("time_axis", 0), ndim)
    batch = node.axis(node.integer("batch_axis", 1), ndim)
    if {time, batch} != {0, 1} or len(node.dims(1)) != 1:
        raise ModelError(f"the axes of {node.op} are 0 and 1, the lengths a vector")
    return sequences_reversed(node.input(0), node.input(1), time, node.op)
