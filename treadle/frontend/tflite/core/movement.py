# SPDX-License-Identifier: Apache-2.0
"""Converters of operators that move elements: transpose, slice, pad, concatenation, choice."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from treadle.errors import ModelError
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
    tiled_at_run,
)
from treadle.frontend.builders.indices import gathered_nd, scattered_nd
from treadle.frontend.builders.layout import channels_first, channels_last, common_first
from treadle.frontend.builders.movement import (
    concatenated,
    depth_to_space,
    equal_parts,
    mirrored,
    padded,
    sliced,
    space_to_depth,
    split_at,
    taken,
    taken_per_batch,
    tiled,
)
from treadle.frontend.builders.parts import (
    padding_of_pairs,
    permuted,
    reversed_axes,
    sequences_reversed_along,
    sliced_by_lengths,
    sliced_by_lengths_at_run,
    split_with_rest,
)
from treadle.frontend.builders.strided import Masks, StridedSpec, strided
from treadle.frontend.tflite.node import Result, TfliteNode, activated, converter
from treadle.frontend.tflite.quantized import clipped_integers
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, normal_size
from treadle.ops import elementwise, movement, scatter
from treadle.ops.sizes import dynamic_slice


@converter("TRANSPOSE")
def transpose(node: TfliteNode) -> Node:
    """Convert a permutation of the axes."""
    return permuted(node.input(0), node.constant_ints(1, "permutation"), node.op)


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
    axis = node.constant_axis(2, node.rank(0))
    return split_with_rest(node.input(0), axis, node.sizes(1, "sizes of the parts"))


@converter("SLICE")
def slice_(node: TfliteNode) -> Node:
    """Convert a slice by where it begins and how long it is; -1 is what is left."""
    if node.is_computed(1, 2):
        return _slice_at_run(node)
    return sliced_by_lengths(node.input(0), node.sizes(1, "begins"), node.sizes(2, "sizes"))


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
    return sliced_by_lengths_at_run(node.input(0), begins, node.elements(2), node.measure)


def _is_zero(value: Node) -> bool:
    return isinstance(value, Constant) and not value.value.any()


@converter("STRIDED_SLICE")
def strided_slice(node: TfliteNode) -> Node:
    """Convert a slice with steps; bits of masks leave bounds out, and add or remove axes."""
    computed = node.is_computed(1, 2)
    bounds: list[list[Dim | Node]] = []
    for index, what in ((1, "begins"), (2, "ends")):
        bounds.append(list(node.elements(index) if computed else node.sizes(index, what)))
    steps = node.constant_ints(3, "steps")
    if node.options.flag("offset"):
        bounds[1] = _ends_behind(bounds[0], bounds[1])
    masks = Masks(
        *(
            node.options.integer(f"{name}_mask")
            for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        )
    )
    return strided(node.input(0), StridedSpec(bounds[0], bounds[1], steps, masks), node.measure)


def _ends_behind(begins: Sequence[Dim | Node], lengths: Sequence[Dim | Node]) -> list[Dim | Node]:
    """Return where slices end that are given by where they begin and how long they are."""
    made: list[Dim | Node] = []
    for begin, length in zip(begins, lengths, strict=False):
        if isinstance(begin, Node) or isinstance(length, Node):
            raise ModelError("a slice by computed lengths is not supported")
        made.append(normal_size(begin + length))
    return made


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
    before, after = padding_of_pairs(node.input(0), node.constant_ints(1, "padding"))
    x = node.input(0)
    images = common_first([x])
    if images is None or len(before) != 4:
        return node.moved(padded(x, before, after, "constant", value))
    front, back = ([p[k] for k in (0, 3, 1, 2)] for p in (before, after))
    return node.moved(channels_last(padded(images[0], front, back, "constant", value)))


def _pad_value(node: TfliteNode) -> float:
    """Return what stands for the value of the padding among the stored elements."""
    if node.has_input(2):
        return node.constant_number(2, "value of the padding")
    return _zero(node)


@converter("MIRROR_PAD")
def mirror_pad(node: TfliteNode) -> Node:
    """Convert a padding with what lies mirrored behind the border, which repeats or not."""
    before, after = padding_of_pairs(node.input(0), node.constant_ints(1, "padding"))
    mode = node.options.choice("mode", ("REFLECT", "SYMMETRIC"))
    return mirrored(node.input(0), before, after, repeats_border=mode == "SYMMETRIC")


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
    return node.moved(taken_per_batch(node.input(0), node.input(1), axis, batch, node.op))


@converter("GATHER_ND")
def gather_nd(node: TfliteNode) -> Node:
    """Convert a choice of slices by coordinates."""
    return gathered_nd(node.input(0), node.input(1), node.op)


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
    return scattered_nd(zeros, node.input(0), node.input(1), "add", node.op)


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
    return reversed_axes(node.input(0), node.constant_ints(1, "axes"), node.op)


@converter("REVERSE_SEQUENCE")
def reverse_sequence(node: TfliteNode) -> Node:
    """Convert sequences of which the first elements are in reverse order."""
    names, ndim = ("seq_dim", "batch_dim"), node.rank(0)
    time, batch = (node.axis(node.options.integer(name), ndim) for name in names)
    return sequences_reversed_along(node.input(0), node.input(1), time, batch, node.op)


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
