# SPDX-License-Identifier: Apache-2.0
"""Shapes and positions that are computed at run time: the numbers become symbolic sizes.

What ONNX says of such numbers (from the end where negative, clamped, -1 for what is left) is
computed by the model itself, so a size is always one that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from treadle.errors import ModelError
from treadle.expr.nodes import convert
from treadle.frontend.builders.basic import broadcast, converted, counted, dims_of, reshaped
from treadle.frontend.onnx.node import OnnxNode
from treadle.frontend.symbolic import is_sizes, size_values, sizes_node
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_true, normal_size, product_of, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops import movement, sizes


def is_computed(node: OnnxNode, *indices: int) -> bool:
    """True when an input is given whose value is only known at run time."""
    given = [node.optional(k) for k in indices]
    return any(v is not None and not isinstance(v, Constant) and not is_sizes(v) for v in given)


def _number(value: int | Node) -> Node:
    return Constant.of(value, "int64") if isinstance(value, int) else value


def elements(node: OnnxNode, index: int) -> list[Node]:
    """Return the elements of a vector of integers (or of one number) as int64 scalars."""
    value = converted(node.input(index), "int64")
    shape = tensor_type(value.type).shape
    if len(shape) > 1 or not all(isinstance(d, int) for d in shape):
        raise ModelError(
            f"input {index} of {node.op} must be a list of known length, not {value.type}"
        )
    if not shape:
        return [value]
    count = int(str(shape[0]))
    return [movement.gather(value, _number(k), axis=0) for k in range(count)]


def _clamped(value: Node, low: int, high: Node) -> Node:
    return ew.maximum(ew.minimum(value, high), _number(low))


def _steps(span: Node, step: int) -> Node:
    """Return how many steps cover `span` elements."""
    raised = ew.add(span, _number(abs(step) - 1))
    return ew.maximum(ew.divide(raised, _number(abs(step))), _number(0))


def slice_computed(node: OnnxNode) -> Node:
    """Return a slice whose bounds are computed; axes and steps are known."""
    starts, ends = elements(node, 1), elements(node, 2)
    axes = node.constant_ints(3, "axes") if node.has_input(3) else tuple(range(len(starts)))
    steps = node.constant_ints(4, "steps") if node.has_input(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ModelError("starts, ends, axes and steps of Slice do not fit each other")
    dims = dims_of(node.input(0))
    at = node.axes(axes, len(dims))
    begins: list[Dim] = []
    counts: list[Dim] = []
    for axis, start, end, step in zip(at, starts, ends, steps, strict=True):
        extent = sizes_node((dims[axis],), ())
        high = extent if step > 0 else ew.subtract(extent, _number(1))
        first = _clamped(_from_front(start, extent), 0, high)
        last = _clamped(_from_front(end, extent), 0 if step > 0 else -1, high)
        span = ew.subtract(last, first) if step > 0 else ew.subtract(first, last)
        begins.append(node.measure(ew.maximum(first, _number(0))))
        counts.append(node.measure(_steps(span, step)))
    return sizes.cut(
        node.input(0), begin=tuple(begins), sizes=tuple(counts), strides=tuple(steps), axes=at
    )


def _from_front(position: Node, extent: Node) -> Node:
    return ew.where(ew.less(position, _number(0)), ew.add(position, extent), position)


def range_computed(node: OnnxNode) -> Node:
    """Return start, start + delta, ... below a limit, each of them computed or known."""
    start, limit, delta = (reshaped(node.input(k), ()) for k in range(3))
    span = ew.subtract(converted(limit, "float64"), converted(start, "float64"))
    count = ew.ceil(ew.divide(span, converted(delta, "float64")))
    size = node.measure(converted(ew.maximum(count, Constant.of(0.0, "float64")), "int64"))
    steps = converted(sizes.count(start=0, step=1, size=size), node.type(0).dtype)
    return ew.add(ew.multiply(steps, delta), start)


def filled_computed(node: OnnxNode, fill: Constant) -> Node:
    """Return a tensor of a computed shape filled with one value."""
    return broadcast(fill, [node.measure(d) for d in elements(node, 0)])


def reshape_computed(node: OnnxNode, allow_zero: bool) -> Node:
    """Return a reshape to a computed shape; one that does not fit is an error of the run."""
    dims = dims_of(node.input(0))
    wanted = elements(node, 1)
    if not allow_zero:
        wanted = [
            ew.where(ew.equal(w, _number(0)), sizes_node((d,), ()), w)
            for w, d in zip(wanted, dims, strict=False)
        ] + wanted[len(dims) :]
    total = sizes_node((product_of(dims),), ())
    is_hole = [ew.equal(w, _number(-1)) for w in wanted]
    known = _product([ew.where(h, _number(1), w) for h, w in zip(is_hole, wanted, strict=True)])
    hole = ew.divide(total, ew.maximum(known, _number(1)))
    settled = [ew.where(h, hole, w) for h, w in zip(is_hole, wanted, strict=True)]
    fits = ew.equal(_product(settled), total)
    if is_hole:  # of nothing any extent is left
        is_any = ew.logical_and(reduce(ew.logical_or, is_hole), ew.equal(known, _number(0)))
        fits = ew.logical_and(fits, ew.not_(is_any))
    shape = [node.measure(ew.where(fits, s, _number(-1))) for s in settled]
    return movement.reshape(node.input(0), shape=tuple(shape))


def _product(values: Sequence[Node]) -> Node:
    result = _number(1)
    for value in values:
        result = ew.multiply(result, value)
    return result


def pad_computed(node: OnnxNode, axes: Sequence[int], mode: str) -> Node:
    """Return a padding by computed amounts: along every axis a choice of positions.

    Negative amounts cut elements off; what is left is what the others pad with.
    """
    x, dims = node.input(0), dims_of(node.input(0))
    amounts = _amounts(node)
    if len(amounts) != 2 * len(axes):
        raise ModelError(f"Pad has {len(amounts)} amounts for {len(axes)} axes; it needs two each")
    tests: list[Node] = []
    for axis, before, after in zip(axes, amounts, amounts[len(axes) :], strict=False):
        if all(isinstance(a, int) and a == 0 for a in (before, after)):
            continue
        places, inside = _padded_places(node, dims[axis], before, after, mode)
        x = movement.gather(_filled(x, axis) if mode == "constant" else x, places, axis=axis)
        size = dims_of(places)[0]
        tests.append(reshaped(inside, (size, *(1,) * (len(dims) - axis - 1))))
    if mode != "constant" or not tests:
        return x
    value = reshaped(node.optional(2) or Constant.of(0, tensor_type(x.type).dtype), ())
    return ew.where(reduce(ew.logical_and, tests), x, value)


def _filled(x: Node, axis: int) -> Node:
    """Return `x` with one element more on an axis that may be empty, for padding to read."""
    dims = dims_of(x)
    if known_true(convert(dims[axis]) > 0):
        return x
    after = tuple(int(k == axis) for k in range(len(dims)))
    return movement.pad(x, before=(0,) * len(dims), after=after)


def _amounts(node: OnnxNode) -> list[Dim | Node]:
    """Return how much Pad adds at each end: sizes, or int64 scalars."""
    values = size_values(node.input(1))
    return [*elements(node, 1)] if values is None else [*values.reshape(-1)]


def _padded_places(
    node: OnnxNode, extent: Dim, before: Dim | Node, after: Dim | Node, mode: str
) -> tuple[Node, Node]:
    """Return where every element of a padded axis comes from, and whether it is no padding."""
    ends = [a if isinstance(a, Node) else sizes_node((a,), ()) for a in (before, after)]
    whole = sizes_node((extent,), ())
    if isinstance(before, Node) or isinstance(after, Node):
        size = node.measure(ew.maximum(ew.add(ew.add(whole, ends[0]), ends[1]), _number(0)))
    else:
        size = normal_size(extent + before + after)
    front, (cut, cut_back) = ew.maximum(ends[0], _number(0)), [_cut_off(e) for e in ends]
    kept = ew.subtract(ew.subtract(whole, cut), cut_back)
    place = ew.subtract(counted(size), front)
    inside = ew.logical_and(ew.greater_equal(place, _number(0)), ew.less(place, kept))
    return ew.add(_source(place, kept, mode), cut), inside


def _cut_off(amount: Node) -> Node:
    """Return how many elements a negative amount cuts off."""
    return ew.maximum(ew.negative(amount), _number(0))


def _source(place: Node, extent: Node, mode: str) -> Node:
    """Return the position inside an axis that stands for one before, in or behind it."""
    last = ew.subtract(extent, _number(1))
    if mode == "wrap":
        return ew.mod(place, extent)
    if mode == "reflect":
        period = ew.maximum(ew.multiply(last, _number(2)), _number(1))
        turned = ew.mod(place, period)
        return ew.minimum(turned, ew.subtract(ew.multiply(last, _number(2)), turned))
    return ew.maximum(ew.minimum(place, last), _number(0))


def tile_computed(node: OnnxNode) -> Node:
    """Return a repetition along every axis as often as computed."""
    x, dims = node.input(0), dims_of(node.input(0))
    times = [node.measure(r) for r in elements(node, 1)]
    if len(times) != len(dims):
        raise ModelError(f"{len(times)} repeats do not fit {node.type(0)}")
    spread = movement.reshape(x, shape=tuple(e for d in dims for e in (1, d)))
    wide = [e for t, d in zip(times, dims, strict=True) for e in (t, d)]
    whole = movement.broadcast_to(spread, shape=tuple(wide))
    shape = [product_of((t, d)) for t, d in zip(times, dims, strict=True)]
    return movement.reshape(whole, shape=tuple(shape))
