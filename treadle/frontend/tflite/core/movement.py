# SPDX-License-Identifier: Apache-2.0
"""Converters of operators that move elements: transpose, slice, pad, concatenation, choice."""

from __future__ import annotations

from math import prod

import numpy as np

from treadle.errors import ModelError
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import (
    axes_from_front,
    broadcast,
    dims_of,
    reshaped,
    scalar_like,
    transposed,
)
from treadle.frontend.builders.dynamic_operands import (
    AxisRange,
    elements_of,
    padded_at_run,
    sliced_at_run,
    tiled_at_run,
)
from treadle.frontend.builders.indices import checked_indices
from treadle.frontend.builders.movement import (
    concatenated,
    depth_to_space,
    equal_parts,
    padded,
    sequences_reversed,
    sliced,
    space_to_depth,
    split_at,
    taken,
    tiled,
)
from treadle.frontend.symbolic import sizes_node
from treadle.frontend.tflite.layout import channels_first, channels_last, common_first
from treadle.frontend.tflite.node import Result, TfliteNode, activated, converter
from treadle.frontend.tflite.quantized import clipped_integers
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, normal_size
from treadle.ops import elementwise, indexing, movement, scatter
from treadle.ops.sizes import dynamic_slice


@converter("TRANSPOSE")
def transpose(node: TfliteNode) -> Node:
    """Convert a permutation of the axes."""
    ndim = node.rank(0)
    perm = axes_from_front(node.constant_ints(1, "permutation"), ndim, node.op)
    if len(perm) != ndim:
        raise ModelError(f"{list(perm)} is no permutation of {ndim} axes")
    return transposed(node.input(0), perm)


@converter("CONCATENATION")
def concatenation(node: TfliteNode) -> Node:
    """Convert a concatenation; parts of another scale are brought to that of the result."""
    parts = [node.moved(x, source=k) for k, x in enumerate(node.all_inputs())]
    axis = node.axis(node.options.integer("axis"), node.rank(0))
    images = common_first(parts)
    if images is None:
        made = concatenated(parts, axis)
    else:
        places = (0, *range(2, node.rank(0)), 1)
        made = channels_last(concatenated(images, places[axis]))
    how = node.result().quantization
    if how is not None and node.is_quantized(0):
        return clipped_integers(made, node.activation, how, node.result().dtype)
    return activated(made, node.activation)


@converter("PACK")
def pack(node: TfliteNode) -> Node:
    """Convert values side by side along a new axis."""
    axis = node.axis(node.options.integer("axis"), node.rank(0) + 1)
    parts = []
    for k, x in enumerate(node.all_inputs()):
        dims = dims_of(x)
        parts.append(reshaped(node.moved(x, source=k), (*dims[:axis], 1, *dims[axis:])))
    return parts[0] if len(parts) == 1 else movement.concat(*parts, axis=axis)


@converter("UNPACK")
def unpack(node: TfliteNode) -> Result:
    """Convert the entries of an axis, which they lose."""
    axis = node.axis(node.options.integer("axis"), node.rank(0))
    dims = node.dims(0)
    parts = split_at(node.input(0), axis, equal_parts(dims[axis], len(node.results), uneven=False))
    return [reshaped(p, (*dims[:axis], *dims[axis + 1 :])) for p in parts]


@converter("SPLIT")
def split(node: TfliteNode) -> Result:
    """Convert a split into equal parts."""
    (axis,) = axes_from_front(node.constant_ints(0, "axis"), node.rank(1), node.op)
    count = len(node.results)
    return split_at(node.input(1), axis, equal_parts(node.dims(1)[axis], count, uneven=False))


@converter("SPLIT_V")
def split_v(node: TfliteNode) -> Result:
    """Convert a split into parts of given sizes, of which one may be -1: what is left."""
    (axis,) = axes_from_front(node.constant_ints(2, "axis"), node.rank(0), node.op)
    parts = list(node.sizes(1, "sizes of the parts"))
    holes = [k for k, p in enumerate(parts) if int_value(p) == -1]
    if len(holes) > 1:
        raise ModelError("more than one part has the size -1")
    if holes:
        known: Dim = 1  # takes the hole's -1 back
        for part in parts:
            known = normal_size(known + part)
        parts[holes[0]] = normal_size(node.dims(0)[axis] - known)
    return split_at(node.input(0), axis, parts)


@converter("SLICE")
def slice_(node: TfliteNode) -> Node:
    """Convert a slice by where it begins and how long it is; -1 is what is left."""
    dims = node.dims(0)
    if node.is_computed(1, 2):
        return _slice_at_run(node)
    begins, lengths = node.sizes(1, "begins"), node.sizes(2, "sizes")
    if not len(begins) == len(lengths) == len(dims):
        raise ModelError(f"the slice does not fit {node.type(0)}")
    ranges = []
    for axis, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        end = dims[axis] if int_value(length) == -1 else normal_size(begin + length)
        ranges.append(AxisRange(axis, begin, end))
    return sliced(node.input(0), ranges)


def _slice_at_run(node: TfliteNode) -> Node:
    """Return a slice of which a run computes where it begins, or how long it is."""
    dims = node.dims(0)
    begins = node.elements(1)
    if isinstance(node.input(2), Constant):
        lengths = node.constant_ints(2, "sizes")
        starts = [0 if _is_zero(b) else node.measure(b) for b in begins]
        counts = [
            normal_size(d - s) if n == -1 else n
            for d, s, n in zip(dims, starts, lengths, strict=True)
        ]
        return dynamic_slice(
            node.input(0),
            begin=tuple(starts),
            sizes=tuple(counts),
            strides=(1,) * len(dims),
            axes=tuple(range(len(dims))),
        )
    ranges = []
    for axis, (begin, length) in enumerate(zip(begins, node.elements(2), strict=True)):
        left = elementwise.equal(length, Constant.of(-1, "int64"))
        end = elementwise.where(left, sizes_node((dims[axis],), ()), elementwise.add(begin, length))
        ranges.append(AxisRange(axis, begin, end))
    return sliced_at_run(node.input(0), ranges, node.measure)


def _is_zero(value: Node) -> bool:
    return isinstance(value, Constant) and not value.value.any()


@converter("STRIDED_SLICE")
def strided_slice(node: TfliteNode) -> Node:
    """Convert a slice with steps; bits of masks leave bounds out, and add or remove axes."""
    spec = _Spec.of(node)
    ranges, shape = spec.ranges(node)
    if node.is_computed(1, 2):
        made = sliced_at_run(node.input(0), ranges, node.measure)
    else:
        made = sliced(node.input(0), ranges)
    rest = dims_of(made)
    return reshaped(made, [1 if axis is None else rest[axis] for axis in shape])


class _Spec:
    """The entries of a strided slice: begin, end, step, and the masks that change their meaning."""

    def __init__(self, begins: list[Dim | Node], ends: list[Dim | Node], steps: list[int]) -> None:
        self.begins, self.ends, self.steps = begins, ends, steps

    @staticmethod
    def of(node: TfliteNode) -> _Spec:
        steps = list(node.constant_ints(3, "steps"))
        bounds: list[list[Dim | Node]] = []
        for index, what in ((1, "begins"), (2, "ends")):
            given = node.elements(index) if node.is_computed(1, 2) else node.sizes(index, what)
            bounds.append(list(given))
        if not len(bounds[0]) == len(bounds[1]) == len(steps):
            raise ModelError("begins, ends and steps of the slice have different lengths")
        return _Spec(bounds[0], bounds[1], steps)

    def ranges(self, node: TfliteNode) -> tuple[list[AxisRange], list[int | None]]:
        """Return the range of every axis, and which axis each of the result is, None a new one."""
        masks = {
            name: node.options.integer(f"{name}_mask")
            for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        }
        ranges: list[AxisRange] = []
        shape: list[int | None] = []
        axis = 0
        for k in range(len(self.steps)):
            if masks["ellipsis"] >> k & 1:
                rest = range(k + 1, len(self.steps))
                used = sum(not masks["new_axis"] >> j & 1 for j in rest)
                until = max(node.rank(0) - used, axis)
                shape += range(axis, until)
                axis = until
            elif masks["new_axis"] >> k & 1:
                shape.append(None)
            else:
                node.axis(axis, node.rank(0))
                shrinks = bool(masks["shrink_axis"] >> k & 1)
                bits = (masks["begin"] >> k & 1, masks["end"] >> k & 1)
                ranges.append(self._range(node, k, axis, bits, shrinks))
                shape += [] if shrinks else [axis]
                axis += 1
        return ranges, [*shape, *range(axis, node.rank(0))]

    def _range(
        self, node: TfliteNode, k: int, axis: int, bits: tuple[int, int], shrinks: bool
    ) -> AxisRange:
        begin, end, step = self.begins[k], self.ends[k], self.steps[k]
        if shrinks:
            return _one_place(begin, axis)
        if node.options.flag("offset") and not isinstance(end, Node) and not bits[1]:
            assert not isinstance(begin, Node)
            end = normal_size(begin + end)
        far = 1 << 40
        first = (0 if step > 0 else far) if bits[0] else begin
        last = (far if step > 0 else -far) if bits[1] else end
        return AxisRange(axis, first, last, step)


def _one_place(begin: Dim | Node, axis: int) -> AxisRange:
    """Return the range of one element, which may count from the end."""
    if isinstance(begin, Node):
        last = elementwise.equal(begin, Constant.of(-1, "int64"))
        after = elementwise.add(begin, Constant.of(1, "int64"))
        return AxisRange(axis, begin, elementwise.where(last, Constant.of(1 << 40, "int64"), after))
    if int_value(begin) == -1:
        return AxisRange(axis, -1, 1 << 40)
    return AxisRange(axis, begin, normal_size(begin + 1))


@converter("PAD", "PADV2")
def pad(node: TfliteNode) -> Node:
    """Convert a padding with one value: zero unless one is given."""
    value = _pad_value(node)
    if not isinstance(node.input(1), Constant):
        flat = reshaped(node.input(1), (2 * node.rank(0),))
        amounts = elements_of(flat, "the padding")
        pads = [(k, amounts[2 * k], amounts[2 * k + 1]) for k in range(node.rank(0))]
        fill = Constant.of(value, node.type(0).dtype)
        return padded_at_run(node.input(0), pads, node.measure, "constant", fill)
    before, after = _amounts(node)
    x = node.input(0)
    images = common_first([x])
    if images is None or len(before) != 4:
        return node.moved(padded(x, before, after, "constant", value))
    front, back = ([p[k] for k in (0, 3, 1, 2)] for p in (before, after))
    return node.moved(channels_last(padded(images[0], front, back, "constant", value)))


def _amounts(node: TfliteNode) -> tuple[list[int], list[int]]:
    pairs = node.constant_ints(1, "padding")
    if len(pairs) != 2 * node.rank(0) or min(pairs, default=0) < 0:
        raise ModelError(f"the padding {list(pairs)} does not fit {node.type(0)}")
    return list(pairs[::2]), list(pairs[1::2])


def _pad_value(node: TfliteNode) -> float:
    """Return what stands for the value of the padding among the stored elements."""
    if node.has_input(2):
        return node.constant_number(2, "value of the padding")
    return _zero(node)


@converter("MIRROR_PAD")
def mirror_pad(node: TfliteNode) -> Node:
    """Convert a padding with what lies mirrored behind the border, which repeats or not."""
    before, after = _amounts(node)
    mode = node.options.choice("mode", ("REFLECT", "SYMMETRIC"))
    if mode == "REFLECT":
        return padded(node.input(0), before, after, "reflect")
    x = node.input(0)
    for axis, (front, back) in enumerate(zip(before, after, strict=True)):
        if not front and not back:
            continue
        (extent,) = known_sizes(dims_of(x)[axis : axis + 1])
        if max(front, back) > extent:
            raise ModelError(f"a padding of {max(front, back)} mirrors {extent} elements")
        places = [
            *reversed(range(front)),
            *range(extent),
            *range(extent - 1, extent - 1 - back, -1),
        ]
        x = indexing.gather(x, Constant.of(np.array(places, "int64")), axis=axis)
    return x


@converter("TILE")
def tile(node: TfliteNode) -> Node:
    """Convert a repetition along every axis."""
    if node.is_computed(1):
        return tiled_at_run(node.input(0), node.elements(1), node.measure)
    return tiled(node.input(0), known_sizes(node.sizes(1, "repeats")))


@converter("GATHER")
def gather(node: TfliteNode) -> Node:
    """Convert a choice of slices by index, per batch where the options say so."""
    axis = node.axis(node.options.integer("axis"), node.rank(0))
    batch = node.options.integer("batch_dims")
    if batch < 0:
        batch += node.rank(1)
    if not batch:
        return node.moved(taken(node.input(0), node.input(1), axis, node.op))
    if not 0 < batch <= axis or batch > node.rank(1):
        raise ModelError(f"{batch} batch axes do not fit axis {axis}")
    return node.moved(_gathered_per_batch(node, axis, batch))


def _gathered_per_batch(node: TfliteNode, axis: int, batch: int) -> Node:
    """Return slices of which every entry of the first axes chooses its own."""
    dims, places = node.dims(0), node.dims(1)
    order = (*range(batch), axis, *range(batch, axis), *range(axis + 1, len(dims)))
    x = transposed(node.input(0), order)
    index = reshaped(node.input(1), (*places, 1))
    made = indexing.gather_nd(x, checked_indices(x, index, batch, op=node.op), batch_dims=batch)
    count = len(places) - batch
    rest = axis - batch
    perm = (
        *range(batch),
        *range(batch + count, batch + count + rest),
        *range(batch, batch + count),
        *range(batch + count + rest, len(dims_of(made))),
    )
    return transposed(made, perm)


@converter("GATHER_ND")
def gather_nd(node: TfliteNode) -> Node:
    """Convert a choice of slices by coordinates."""
    x, places = node.input(0), node.input(1)
    (depth,) = known_sizes(dims_of(places)[-1:])
    return indexing.gather_nd(x, checked_indices(x, places, 0, depth, op=node.op))


@converter("EMBEDDING_LOOKUP")
def embedding_lookup(node: TfliteNode) -> Node:
    """Convert rows of a table, chosen by number."""
    if node.is_quantized(1) and node.result().dtype == "float32":
        return taken(node.real(1), node.input(0), 0, node.op)
    return node.moved(taken(node.input(1), node.input(0), 0, node.op), source=1)


@converter("SCATTER_ND")
def scatter_nd(node: TfliteNode) -> Node:
    """Convert updates added up in a tensor of zeros."""
    zeros = broadcast(scalar_like(0, node.input(1)), node.sizes(2, "shape"))
    (depth,) = known_sizes(node.dims(0)[-1:])
    places = checked_indices(zeros, node.input(0), 0, depth, op=node.op)
    return scatter.scatter_nd(zeros, places, node.input(1), reduction="add")


@converter("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: TfliteNode) -> Node:
    """Convert a part of a tensor replaced; its begin is moved so that it fits."""
    x, update = node.input(0), node.input(1)
    dims, sizes = node.shape(0), node.shape(1)
    begins = []
    for k, begin in enumerate(node.elements(2)):
        low, high = Constant.of(0, "int64"), Constant.of(dims[k] - sizes[k], "int64")
        begins.append(elementwise.minimum(elementwise.maximum(begin, low), high))
    if not begins:
        return update
    places = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1)
    start = movement.concat(*(reshaped(b, (1,)) for b in begins), axis=0)
    at = elementwise.add(Constant.of(places.astype("int64")), start)
    return scatter.scatter_nd(x, at, update)


@converter("REVERSE_V2")
def reverse(node: TfliteNode) -> Node:
    """Convert axes in reverse order."""
    axes = axes_from_front(node.constant_ints(1, "axes"), node.rank(0), node.op)
    return sliced(node.input(0), [AxisRange(axis, -1, -(1 << 40), -1) for axis in axes])


@converter("REVERSE_SEQUENCE")
def reverse_sequence(node: TfliteNode) -> Node:
    """Convert sequences of which the first elements are in reverse order."""
    time, batch = (node.options.integer(f"{name}_dim") for name in ("seq", "batch"))
    time, batch = node.axis(time, node.rank(0)), node.axis(batch, node.rank(0))
    if time == batch:
        raise ModelError("the axes of time and batch are one")
    front = (time, batch)
    order = (*front, *(k for k in range(node.rank(0)) if k not in front))
    made = sequences_reversed(transposed(node.input(0), order), node.input(1), 0, node.op)
    back = sorted(range(len(order)), key=lambda k: order[k])
    return transposed(made, back)


@converter("SPACE_TO_DEPTH")
def space_to_depth_blocks(node: TfliteNode) -> Node:
    """Convert blocks of pixels to channels."""
    block = node.options.integer("block_size")
    return channels_last(space_to_depth(channels_first(node.input(0)), block, "DCR"))


@converter("DEPTH_TO_SPACE")
def depth_to_space_blocks(node: TfliteNode) -> Node:
    """Convert channels to blocks of pixels."""
    block = node.options.integer("block_size")
    return channels_last(depth_to_space(channels_first(node.input(0)), block, "DCR"))


@converter("SPACE_TO_BATCH_ND")
def space_to_batch(node: TfliteNode) -> Node:
    """Convert every block of pixels to images of their own, after a padding."""
    blocks, pads = node.constant_ints(1, "block shape"), node.constant_ints(2, "padding")
    m, ndim = len(blocks), node.rank(0)
    if len(pads) != 2 * m or m + 1 > ndim or min(blocks, default=1) < 1:
        raise ModelError(f"blocks {list(blocks)} do not fit {node.type(0)}")
    rest = (0,) * (ndim - m - 1)
    x = padded(
        node.input(0), (0, *pads[::2], *rest), (0, *pads[1::2], *rest), "constant", _zero(node)
    )
    batch, *spatial = dims_of(x)
    tail = spatial[m:]
    parts: list[Dim] = [batch]
    for extent, block in zip(spatial, blocks, strict=False):
        parts += [normal_size(_divided(extent, block)), block]
    split_up = reshaped(x, (*parts, *tail))
    order = (
        *range(2, 2 * m + 1, 2),
        0,
        *range(1, 2 * m, 2),
        *range(2 * m + 1, 2 * m + 1 + len(tail)),
    )
    count: Dim = normal_size(batch * prod(blocks))
    return reshaped(transposed(split_up, order), (count, *parts[1::2], *tail))


def _divided(extent: Dim, block: int) -> Dim:
    if isinstance(extent, int) and extent % block:
        raise ModelError(f"{extent} elements do not divide into blocks of {block}")
    return extent // block


def _zero(node: TfliteNode) -> float:
    how = node.result().quantization
    return float(how.zero_points[0]) if how is not None and node.is_quantized(0) else 0.0


@converter("BATCH_TO_SPACE_ND")
def batch_to_space(node: TfliteNode) -> Node:
    """Convert images to blocks of the pixels of larger ones, then cut borders off."""
    blocks, crops = node.constant_ints(1, "block shape"), node.constant_ints(2, "crops")
    m, ndim = len(blocks), node.rank(0)
    if len(crops) != 2 * m or m + 1 > ndim or min(blocks, default=1) < 1:
        raise ModelError(f"blocks {list(blocks)} do not fit {node.type(0)}")
    total, *spatial = node.dims(0)
    tail = spatial[m:]
    batch: Dim = total
    for block in blocks:
        batch = normal_size(_divided(batch, block))
    split_up = reshaped(node.input(0), (*blocks, batch, *spatial))
    order = [m]
    for k in range(m):
        order += [m + 1 + k, k]
    moved = transposed(split_up, (*order, *range(2 * m + 1, 2 * m + 1 + len(tail))))
    wide = [normal_size(d * b) for d, b in zip(spatial, blocks, strict=False)]
    whole = reshaped(moved, (batch, *wide, *tail))
    ranges = [
        AxisRange(k + 1, crops[2 * k], normal_size(wide[k] - crops[2 * k + 1])) for k in range(m)
    ]
    return sliced(whole, ranges)
