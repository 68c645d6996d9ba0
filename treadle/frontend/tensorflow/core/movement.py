# SPDX-License-Identifier: Apache-2.0
"""Converters of operators that move elements: transpose, slice, pad, concatenation, choice."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    dims_of,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.dynamic_operands import (
    elements_of,
    padded_at_run,
    tiled_at_run,
)
from treadle.frontend.builders.indices import gathered_nd, scattered_nd
from treadle.frontend.builders.layout import (
    channels_last,
    common_first,
)
from treadle.frontend.builders.movement import (
    concatenated,
    equal_parts,
    mirrored,
    padded,
    padded_with,
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
from treadle.frontend.symbolic import sizes_node
from treadle.frontend.tensorflow.node import Result, TfNode, converter
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes
from treadle.ops import movement


@converter("Transpose", "ConjugateTranspose")
def transpose(node: TfNode) -> Node:
    """Convert a permutation of the axes."""
    return permuted(node.input(0), node.constant_ints(1, "permutation"), node.op)


@converter("ConcatV2", "Concat")
def concatenation(node: TfNode) -> Node:
    """Convert a concatenation; the older operator has the axis in front of the parts."""
    values = node.all_inputs()
    last = len(values) - 1 if node.op == "ConcatV2" else 0
    parts = values[:last] + values[last + 1 :]
    if not parts:
        raise ModelError("a concatenation has no parts")
    ndim = len(dims_of(parts[0]))
    axis = node.constant_axis(last, ndim)
    images = common_first(parts)
    if images is None:
        return concatenated(parts, axis)
    return channels_last(concatenated(images, (0, *range(2, ndim), 1)[axis]))


@converter("Pack")
def pack(node: TfNode) -> Node:
    """Convert values side by side along a new axis."""
    axis = node.axis(node.attributes.integer("axis"), node.rank(0) + 1)
    parts = []
    for x in node.all_inputs():
        dims = dims_of(x)
        parts.append(reshaped(x, (*dims[:axis], 1, *dims[axis:])))
    return parts[0] if len(parts) == 1 else movement.concat(*parts, axis=axis)


@converter("ParallelConcat")
def parallel_concat(node: TfNode) -> Node:
    """Convert values of one row each on top of each other."""
    return concatenated(node.all_inputs(), 0)


@converter("Unpack")
def unpack(node: TfNode) -> Result:
    """Convert the entries of an axis, which they lose."""
    axis = node.axis(node.attributes.integer("axis"), node.rank(0))
    dims = node.dims(0)
    count = node.attributes.integer("num")
    parts = split_at(node.input(0), axis, equal_parts(dims[axis], count, uneven=False))
    return [reshaped(p, (*dims[:axis], *dims[axis + 1 :])) for p in parts]


@converter("Split")
def split(node: TfNode) -> Result:
    """Convert a split into equal parts."""
    axis = node.constant_axis(0, node.rank(1))
    count = node.attributes.integer("num_split", 1)
    return split_at(node.input(1), axis, equal_parts(node.dims(1)[axis], count, uneven=False))


@converter("SplitV")
def split_v(node: TfNode) -> Result:
    """Convert a split into parts of given sizes, of which one may be -1: what is left."""
    axis = node.constant_axis(2, node.rank(0))
    return split_with_rest(node.input(0), axis, node.sizes(1, "sizes of the parts"))


@converter("Slice")
def slice_(node: TfNode) -> Node:
    """Convert a slice by where it begins and how long it is; -1 is what is left."""
    x = node.input(0)
    if node.is_computed(1, 2):
        made = sliced_by_lengths_at_run(x, node.elements(1), node.elements(2), node.measure)
        return _with_sizes(made, node)
    return sliced_by_lengths(x, node.sizes(1, "begins"), node.sizes(2, "sizes"))


def _with_sizes(x: Node, node: TfNode) -> Node:
    """Return a slice with those of its sizes that are known."""
    if not isinstance(node.input(2), Constant):
        return x
    wanted = node.constant_ints(2, "sizes")
    return reshaped(x, [d if w == -1 else w for d, w in zip(dims_of(x), wanted, strict=True)])


@converter("StridedSlice")
def strided_slice(node: TfNode) -> Node:
    """Convert a slice with steps; bits of masks leave bounds out, and add or remove axes."""
    computed = node.is_computed(1, 2)
    bounds: list[list[Dim | Node]] = []
    for index, what in ((1, "begins"), (2, "ends")):
        bounds.append(list(node.elements(index) if computed else node.sizes(index, what)))
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    masks = Masks(*(node.attributes.integer(f"{name}_mask") for name in names))
    spec = StridedSpec(bounds[0], bounds[1], node.constant_ints(3, "steps"), masks)
    return strided(node.input(0), spec, node.measure)


@converter("Pad", "PadV2")
def pad(node: TfNode) -> Node:
    """Convert a padding with one value: zero unless one is given."""
    x = node.input(0)
    fill = reshaped(node.input(2), ()) if node.has_input(2) else scalar_like(0, x)
    if not isinstance(node.input(1), Constant):
        flat = reshaped(node.input(1), (2 * node.rank(0),))
        amounts = elements_of(flat, "the padding")
        pads = [(k, amounts[2 * k], amounts[2 * k + 1]) for k in range(node.rank(0))]
        return padded_at_run(x, pads, node.measure, "constant", fill)
    before, after = padding_of_pairs(node.input(0), node.constant_ints(1, "padding"))
    images = common_first([x]) if node.rank(0) == 4 else None
    if images is None:
        return _padded(x, before, after, fill)
    front, back = ([p[k] for k in (0, 3, 1, 2)] for p in (before, after))
    return channels_last(_padded(images[0], front, back, fill))


def _padded(x: Node, before: Sequence[int], after: Sequence[int], fill: Node) -> Node:
    if isinstance(fill, Constant):
        return padded(x, before, after, "constant", float(fill.value))
    return padded_with(x, before, after, fill)


@converter("MirrorPad")
def mirror_pad(node: TfNode) -> Node:
    """Convert a padding with what lies mirrored behind the border, which repeats or not."""
    before, after = padding_of_pairs(node.input(0), node.constant_ints(1, "padding"))
    mode = node.attributes.text("mode")
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise ModelError(f"the mode of {node.op} is {mode!r}")
    return mirrored(node.input(0), before, after, repeats_border=mode == "SYMMETRIC")


@converter("Tile")
def tile(node: TfNode) -> Node:
    """Convert a repetition along every axis."""
    if node.is_computed(1):
        return tiled_at_run(node.input(0), node.elements(1), node.measure)
    repeats = node.sizes(1, "repeats")
    if all(isinstance(r, int) for r in repeats):
        return tiled(node.input(0), known_sizes(repeats))
    return tiled_at_run(node.input(0), [sizes_node((r,), ()) for r in repeats], node.measure)


@converter("Gather", "GatherV2")
def gather(node: TfNode) -> Node:
    """Convert a choice of slices by index, per batch where the attribute says so."""
    axis = node.constant_axis(2, node.rank(0)) if node.has_input(2) else 0
    batch = node.attributes.integer("batch_dims")
    if batch < 0:
        batch += node.rank(1)
    if not batch:
        return taken(node.input(0), node.input(1), axis, node.op)
    return taken_per_batch(node.input(0), node.input(1), axis, batch, node.op)


@converter("GatherNd")
def gather_nd(node: TfNode) -> Node:
    """Convert a choice of slices by coordinates."""
    return gathered_nd(node.input(0), node.input(1), node.op)


@converter("ScatterNd")
def scatter_nd(node: TfNode) -> Node:
    """Convert updates added up in a tensor of zeros."""
    zeros = broadcast(scalar_like(0, node.input(1)), node.sizes(2, "shape"))
    return scattered_nd(zeros, node.input(0), node.input(1), "add", node.op)


_SCATTERS = {
    "TensorScatterUpdate": "none",
    "TensorScatterAdd": "add",
    "TensorScatterMax": "max",
    "TensorScatterMin": "min",
}


@converter(*_SCATTERS)
def tensor_scatter(node: TfNode) -> Node:
    """Convert updates of a tensor: set, added, or where they are larger or smaller."""
    x, places, updates = (node.input(k) for k in range(3))
    return scattered_nd(x, places, updates, _SCATTERS[node.op], node.op)


@converter("ReverseV2")
def reverse(node: TfNode) -> Node:
    """Convert axes in reverse order."""
    return reversed_axes(node.input(0), node.constant_ints(1, "axes"), node.op)


@converter("ReverseSequence")
def reverse_sequence(node: TfNode) -> Node:
    """Convert sequences of which the first elements are in reverse order."""
    names, ndim = ("seq_dim", "batch_dim"), node.rank(0)
    time, batch = (node.axis(node.attributes.integer(name), ndim) for name in names)
    return sequences_reversed_along(node.input(0), node.input(1), time, batch, node.op)


@converter("Roll")
def roll(node: TfNode) -> Node:
    """Convert elements shifted along axes, those that leave at one end entering at the other."""
    x = node.input(0)
    shifts, axes = node.constant_ints(1, "shift"), node.constant_ints(2, "axis")
    for shift, given in zip(shifts, axes, strict=True):
        axis = node.axis(given, node.rank(0))
        (extent,) = known_sizes(dims_of(x)[axis : axis + 1])
        by = shift % extent if extent else 0
        if by:
            parts = split_at(x, axis, (extent - by, by))
            x = concatenated(parts[::-1], axis)
    return x
