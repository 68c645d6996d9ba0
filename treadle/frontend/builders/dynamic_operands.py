# SPDX-License-Identifier: Apache-2.0
"""Shapes and positions that are computed at run time: the numbers become symbolic sizes.

What is said of such numbers (from the end where negative, clamped, -1 for what is left) is computed
by the model itself, so a size is always one that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeAlias

from treadle.errors import ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.expr.nodes import convert
from treadle.frontend.builders.basic import broadcast, converted, counted, dims_of, reshaped
from treadle.frontend.symbolic import sizes_node
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_true, normal_size, product_of, tensor_type
from treadle.ops import elementwise as ew
from treadle.ops import indexing, movement, reshaping, sizes

Measure: TypeAlias = Callable[[Node], Dim]
"""Returns the symbolic size that is the number in an int64 scalar."""

Amount: TypeAlias = Dim | Node
"""A size, or an int64 scalar that holds it at run time."""


@dataclass(slots=True)
class MeasuredSizes:
    """Symbolic sizes that are numbers which the model itself computes, each with its number.

    Results that speak of such sizes must say so: see `treadle.frontend.builders.closure.anchored`.
    """

    origin: str
    values: dict[SizeVar, Node] = field(default_factory=dict)

    def measure(self, value: Node) -> Dim:
        """Return the symbolic size that is the number in an int64 scalar; a number if constant."""
        if isinstance(value, Constant):
            return int(value.value)
        number = len(self.values)
        size = SizeVar(f"{self.origin}_{number}" if number else self.origin, "int64")
        self.values[size] = value
        return size


@dataclass(frozen=True, slots=True)
class AxisRange:
    """Every `step`-th position of an axis from `start` to before `end`.

    Positions below 0 count from the end of the axis; what lies outside of it is left out.

    Raises: ModelError for a step of 0.
    """

    axis: int
    start: Amount
    end: Amount
    step: int = 1

    def __post_init__(self) -> None:
        if self.step == 0:
            raise ModelError("the step of a slice is 0")


def _number(value: Amount) -> Node:
    """Return an amount as an int64 scalar."""
    return value if isinstance(value, Node) else sizes_node((value,), ())


def elements_of(value: Node, what: str) -> list[Node]:
    """Return the elements of a vector of integers (or of one number) as int64 scalars.

    Raises: ModelError, about `what` the vector is, when its length is not known.
    """
    value = converted(value, "int64")
    shape = tensor_type(value.type).shape
    if len(shape) > 1 or not all(isinstance(d, int) for d in shape):
        raise ModelError(f"{what} must be a list of known length, not {value.type}")
    if not shape:
        return [value]
    count = int(str(shape[0]))
    return [indexing.gather(value, _number(k), axis=0) for k in range(count)]


def _clamped(value: Node, low: int, high: Node) -> Node:
    return ew.maximum(ew.minimum(value, high), _number(low))


def _steps(span: Node, step: int) -> Node:
    """Return how many steps cover `span` elements."""
    raised = ew.add(span, _number(abs(step) - 1))
    return ew.maximum(ew.divide(raised, _number(abs(step))), _number(0))


def sliced_at_run(x: Node, ranges: Sequence[AxisRange], measure: Measure) -> Node:
    """Return a slice of which each run computes the bounds; the steps are known."""
    dims = dims_of(x)
    begins: list[Dim] = []
    counts: list[Dim] = []
    for part in ranges:
        extent = sizes_node((dims[part.axis],), ())
        high = extent if part.step > 0 else ew.subtract(extent, _number(1))
        first = _clamped(_from_front(_number(part.start), extent), 0, high)
        low = 0 if part.step > 0 else -1
        last = _clamped(_from_front(_number(part.end), extent), low, high)
        span = ew.subtract(last, first) if part.step > 0 else ew.subtract(first, last)
        begins.append(measure(ew.maximum(first, _number(0))))
        counts.append(measure(_steps(span, part.step)))
    return sizes.dynamic_slice(
        x,
        begin=tuple(begins),
        sizes=tuple(counts),
        strides=tuple(part.step for part in ranges),
        axes=tuple(part.axis for part in ranges),
    )


def _from_front(position: Node, extent: Node) -> Node:
    return ew.where(ew.less(position, _number(0)), ew.add(position, extent), position)


def range_at_run(start: Node, limit: Node, delta: Node, measure: Measure) -> Node:
    """Return start, start + delta, ... below a limit: scalars of one type, computed or known."""
    span = ew.subtract(converted(limit, "float64"), converted(start, "float64"))
    count = ew.ceil(ew.divide(span, converted(delta, "float64")))
    size = measure(converted(ew.maximum(count, Constant.of(0.0, "float64")), "int64"))
    steps = converted(sizes.arange(start=0, step=1, size=size), tensor_type(start.type).dtype)
    return ew.add(ew.multiply(steps, delta), start)


def filled_at_run(fill: Constant, shape: Sequence[Node], measure: Measure) -> Node:
    """Return a tensor of a computed shape filled with one value."""
    return broadcast(fill, [measure(d) for d in shape])


def reshaped_at_run(
    x: Node, wanted: Sequence[Node], measure: Measure, *, zero_keeps: bool = False
) -> Node:
    """Return a reshape to a computed shape; one that does not fit is an error of the run.

    -1 stands for what is left; with `zero_keeps` a 0 stands for the extent that `x` has there.
    """
    dims = dims_of(x)
    if zero_keeps:
        wanted = [
            ew.where(ew.equal(w, _number(0)), sizes_node((d,), ()), w)
            for w, d in zip(wanted, dims, strict=False)
        ] + [*wanted[len(dims) :]]
    total = sizes_node((product_of(dims),), ())
    is_hole = [ew.equal(w, _number(-1)) for w in wanted]
    known = _product([ew.where(h, _number(1), w) for h, w in zip(is_hole, wanted, strict=True)])
    hole = ew.divide(total, ew.maximum(known, _number(1)))
    settled = [ew.where(h, hole, w) for h, w in zip(is_hole, wanted, strict=True)]
    fits = ew.equal(_product(settled), total)
    if is_hole:  # of nothing any extent is left
        is_any = ew.logical_and(reduce(ew.logical_or, is_hole), ew.equal(known, _number(0)))
        fits = ew.logical_and(fits, ew.not_(is_any))
    shape = [measure(ew.where(fits, s, _number(-1))) for s in settled]
    return reshaping.reshape(x, shape=tuple(shape))


def _product(values: Sequence[Node]) -> Node:
    result = _number(1)
    for value in values:
        result = ew.multiply(result, value)
    return result


def written_at_run(x: Node, values: Node, axis: int, start: Amount, step: int = 1) -> Node:
    """Return `x` with every `step`-th position of an axis from `start` on overwritten by `values`.

    As many are as `values` has there. A start below 0 counts from the end.
    """
    extent, count = (sizes_node((dims_of(v)[axis],), ()) for v in (x, values))
    first = _clamped(_from_front(_number(start), extent), 0, extent)
    far = ew.subtract(counted(dims_of(x)[axis]), first)
    place = far if step == 1 else ew.divide(far, _number(step))
    tests = [ew.greater_equal(far, _number(0)), ew.less(place, count)]
    if step > 1:
        tests.append(ew.equal(ew.mod(far, _number(step)), _number(0)))
    last = ew.subtract(count, _number(1))
    source = ew.maximum(ew.minimum(place, last), _number(0))
    found = indexing.gather(with_an_element(values, axis), source, axis=axis)
    inside = reduce(ew.logical_and, tests)
    column = (dims_of(x)[axis], *(1,) * (len(dims_of(x)) - axis - 1))
    return ew.where(reshaped(inside, column), found, x)


def padded_at_run(
    x: Node,
    pads: Sequence[tuple[int, Amount, Amount]],
    measure: Measure,
    mode: str = "constant",
    value: Node | None = None,
) -> Node:
    """Return a padding by computed amounts (axis, before, after): a choice of positions per axis.

    Negative amounts cut elements off; what is left is what the others pad with. `value` is what a
    "constant" padding holds, 0 where it is None.
    """
    dims = dims_of(x)
    tests: list[Node] = []
    for axis, before, after in pads:
        if all(isinstance(a, int) and a == 0 for a in (before, after)):
            continue
        places, inside = _padded_places(dims[axis], before, after, mode, measure)
        x = indexing.gather(
            with_an_element(x, axis) if mode == "constant" else x, places, axis=axis
        )
        size = dims_of(places)[0]
        tests.append(reshaped(inside, (size, *(1,) * (len(dims) - axis - 1))))
    if mode != "constant" or not tests:
        return x
    fill = reshaped(value or Constant.of(0, tensor_type(x.type).dtype), ())
    return ew.where(reduce(ew.logical_and, tests), x, fill)


def with_an_element(x: Node, axis: int) -> Node:
    """Return `x` with one element more on an axis that may be empty, for others to read."""
    dims = dims_of(x)
    if known_true(convert(dims[axis]) > 0):
        return x
    after = tuple(int(k == axis) for k in range(len(dims)))
    return movement.pad(x, before=(0,) * len(dims), after=after)


def _padded_places(
    extent: Dim, before: Amount, after: Amount, mode: str, measure: Measure
) -> tuple[Node, Node]:
    """Return where every element of a padded axis comes from, and whether it is no padding."""
    ends = [_number(before), _number(after)]
    whole = sizes_node((extent,), ())
    if isinstance(before, Node) or isinstance(after, Node):
        size = measure(ew.maximum(ew.add(ew.add(whole, ends[0]), ends[1]), _number(0)))
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
        phase = ew.mod(place, period)
        return ew.minimum(phase, ew.subtract(ew.multiply(last, _number(2)), phase))
    return ew.maximum(ew.minimum(place, last), _number(0))


def tiled_at_run(x: Node, repeats: Sequence[Node], measure: Measure) -> Node:
    """Return a repetition along every axis as often as computed."""
    dims = dims_of(x)
    times = [measure(r) for r in repeats]
    if len(times) != len(dims):
        raise ModelError(f"{len(times)} repeats do not fit {x.type}")
    spread = reshaping.reshape(x, shape=tuple(e for d in dims for e in (1, d)))
    wide = [e for t, d in zip(times, dims, strict=True) for e in (t, d)]
    whole = reshaping.broadcast_to(spread, shape=tuple(wide))
    shape = [product_of((t, d)) for t, d in zip(times, dims, strict=True)]
    return reshaping.reshape(whole, shape=tuple(shape))
