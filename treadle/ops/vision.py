# SPDX-License-Identifier: Apache-2.0
"""Sampling of images and volumes at positions that are data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeVar, get_args

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.conditions import all_of
from treadle.expr.nodes import Const, Expr, ExprLike, cast, int_value
from treadle.graph.operator import Attrs, Example, Group, Operator, register
from treadle.graph.size_rules import SizeRule, equal, filled
from treadle.graph.types import Dim, TensorType, Type, known_sizes, may_agree, same_dim, tensor_type
from treadle.limits import SAMPLE_TERMS
from treadle.ops.accumulate import narrowed
from treadle.ops.numeric import ANY, FLOATS, accumulator, check_elements, dims_of, real_extent
from treadle.ops.schedules.default import schedule_stage
from treadle.ops.schedules.stages import live_stages
from treadle.target.base import Target
from treadle.te.knobs import Knobs
from treadle.te.operations import Tensor

Interpolation = Literal["nearest", "linear", "cubic"]
PaddingMode = Literal["zeros", "border", "reflection"]

TAPS: dict[str, int] = {"nearest": 1, "linear": 2, "cubic": 4}
"""Elements along an axis that an interpolation reads."""
_CUBIC = -0.75
"""The free coefficient of cubic convolution (Keys, 1981), as PyTorch and ONNX have it."""

Number = TypeVar("Number", Expr, np.ndarray)


@dataclass(frozen=True, slots=True)
class GridSampleAttrs(Attrs):
    """How to read between elements and outside of the image.

    -1 and 1 in the grid are the centres of the outermost elements with `align_corners`, else
    their outer edges; with `absolute` the grid holds numbers of elements, from 0.
    """

    interpolation: Interpolation = "linear"
    padding_mode: PaddingMode = "zeros"
    align_corners: bool = False
    absolute: bool = False


def _infer(a: GridSampleAttrs, x: Type, grid: Type) -> TensorType:
    if a.interpolation not in TAPS or a.padding_mode not in get_args(PaddingMode):
        raise TypeMismatch(
            f"interpolation={a.interpolation!r} with padding_mode={a.padding_mode!r} is unknown",
            hint=f"interpolations: {', '.join(TAPS)}; paddings: {', '.join(get_args(PaddingMode))}",
        )
    source = check_elements(x, ANY if a.interpolation == "nearest" else FLOATS)
    points = check_elements(grid, FLOATS, "the grid")
    spatial = source.ndim - 2
    if spatial < 1 or points.ndim != source.ndim or int_value(points.shape[-1]) != spatial:
        raise TypeMismatch(
            f"the grid {points} does not fit {source}",
            hint=f"for data [n, c, *{spatial} extents] it is [n, *output extents, {spatial}]",
        )
    if any(same_dim(d, 0) for d in source.shape[2:]):
        raise TypeMismatch(f"the spatial extents of {source} must not be empty")
    if not may_agree(source.shape[0], points.shape[0]):
        raise TypeMismatch(f"{source} and {points} have different batch sizes")
    return source.with_shape((*source.shape[:2], *points.shape[1:-1]))


@dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial axis: where a point of the grid falls, and which elements it reads."""

    attrs: GridSampleAttrs
    extent: Dim

    @property
    def margin(self) -> float:
        """How far before the first element the coordinate lies that -1 stands for."""
        return 0.0 if self.attrs.align_corners else 0.5

    @property
    def known(self) -> int:
        """The extent as an int. Raises TypeMismatch where it is symbolic."""
        (extent,) = known_sizes((self.extent,))
        return extent

    def coordinate(self, point: Expr) -> Expr:
        """Return the coordinate of a grid value, brought inside unless zeros lie around.

        Cubic taps are brought inside one by one, as PyTorch and onnxruntime do it.
        """
        if self.attrs.absolute:
            at = point
        elif self.attrs.align_corners:
            at = (point + 1.0) / 2.0 * self._last(point)
        else:
            at = ((point + 1.0) * real_extent(self.extent, point.dtype) - 1.0) / 2.0
        if self.attrs.interpolation == "nearest":
            at = te.round(at)
        if self.attrs.padding_mode == "zeros" or self.attrs.interpolation == "cubic":
            return at
        low, high = -self.margin, self._last(at) + self.margin
        inside = te.max(te.min(at, self._last(at)), 0.0)
        if self.attrs.padding_mode == "reflection":
            inside = self._reflected(at)
        return nodes.select((at < low) | (at > high), inside, at)

    def _last(self, like: Expr) -> ExprLike:
        """Return the coordinate of the last element, of the type of `like`."""
        return real_extent(self.extent - 1, like.dtype)

    def _reflected(self, at: Expr) -> Expr:
        low, high = -self.margin, self._last(at) + self.margin
        width = high - low
        if same_dim(self.extent, 1) and self.attrs.align_corners:
            return at * 0.0
        if isinstance(self.extent, Expr):
            width = te.max(width, 0.5)  # of one element and no margin: any width leads to it
        distance = te.abs(at - low)
        reflections = te.floor(distance / width)
        rest = distance - reflections * width
        is_even = te.floor(reflections / 2.0) * 2.0 == reflections
        return nodes.select(is_even, rest + low, high - rest)

    def element(self, base: Expr, tap: ExprLike) -> Expr:
        """Return the element that a tap reads, -1 where it reads a zero."""
        first = {"nearest": 0, "linear": 0, "cubic": 1}[self.attrs.interpolation]
        at = base + tap - first
        if self.attrs.padding_mode == "reflection":
            return self._reflected_element(at)
        inside = te.max(te.min(at, self.extent - 1), 0)
        return inside if self.attrs.padding_mode == "border" else nodes.select(at == inside, at, -1)

    def _reflected_element(self, at: Expr) -> Expr:
        last = self.extent - 1
        if same_dim(last, 0):
            return at * 0
        period = 2 * last if self.attrs.align_corners else 2 * self.extent
        if isinstance(period, Expr):
            period = te.max(period, 1)
        wrapped = at % period
        return nodes.select(
            wrapped <= last, wrapped, (period - (not self.attrs.align_corners)) - wrapped
        )


def _weights(mode: str, t: Number) -> list[Number]:
    """Return the weight of every tap at distance `t` from the middle element."""
    if mode == "linear":
        return [1.0 - t, t]
    a = _CUBIC

    def near(d: Number) -> Number:
        value: Number = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
        return value

    def far(d: Number) -> Number:
        value: Number = ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
        return value

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def _chosen(tap: Expr, values: Sequence[Expr]) -> Expr:
    result = values[-1]
    for k, value in reversed(list(enumerate(values[:-1]))):
        result = nodes.select(tap == k, value, result)
    return result


def _compute(a: GridSampleAttrs, x: Tensor, grid: Tensor) -> list[Tensor]:
    """Return the stages: coordinates, elements and weights of the taps per axis, then the sums."""
    spatial, taps = x.ndim - 2, TAPS[a.interpolation]
    wide = "float64" if grid.dtype == "float64" else "float32"
    points = grid.shape[:-1]
    coordinates: list[Tensor] = []
    elements: list[Tensor] = []
    weights: list[Tensor] = []
    for k in range(spatial):
        axis = _Axis(a, dims_of(x)[2 + k])
        at = te.compute_one(points, _coordinate(axis, grid, spatial - 1 - k, wide), f"at{k}")
        coordinates.append(at)
        elements.append(te.compute_one((taps, *points), _element(axis, at), f"element{k}"))
        weights.append(te.compute_one((taps, *points), _weight(a, at), f"weight{k}"))
    if taps == 1:
        return [*coordinates, *elements, *_nearest(x, elements, points)]
    made = _sums if taps**spatial > SAMPLE_TERMS else _written_out
    return [*coordinates, *elements, *weights, *made(x, elements, weights, points)]


def _coordinate(axis: _Axis, grid: Tensor, column: int, dtype: str) -> Callable[..., Expr]:
    return lambda *i: axis.coordinate(cast(grid[(*i, column)], dtype))


def _element(axis: _Axis, at: Tensor) -> Callable[..., Expr]:
    return lambda *i: axis.element(cast(te.floor(at[i[1:]]), dt.INDEX), i[0])


def _weight(a: GridSampleAttrs, at: Tensor) -> Callable[..., Expr]:
    def weight(*i: Expr) -> Expr:
        t = at[i[1:]] - te.floor(at[i[1:]])
        return _chosen(i[0], _weights(a.interpolation, t))

    return weight


def _nearest(x: Tensor, elements: Sequence[Tensor], points: Sequence[Expr]) -> list[Tensor]:
    def sample(n: Expr, c: Expr, *o: Expr) -> Expr:
        return _value(x, (n, c), [e[(0, n, *o)] for e in elements])

    return [te.compute_one((*x.shape[:2], *points[1:]), sample, "grid_sample")]


def _value(x: Tensor, lead: tuple[Expr, Expr], at: Sequence[Expr]) -> Expr:
    """Return the element at `at`, 0 where an index is -1; it reads inside in any case."""
    inside = all_of([p >= 0 for p in at])
    return nodes.select(inside, x[(*lead, *(te.max(p, 0) for p in at))], Const.of(0, x.dtype))


def _written_out(
    x: Tensor, elements: Sequence[Tensor], weights: Sequence[Tensor], points: Sequence[Expr]
) -> list[Tensor]:
    """Return the sum as one expression, so that neighbouring points fill a vector."""
    taps = int_value(elements[0].shape[0]) or 0

    def total(n: Expr, c: Expr, *o: Expr) -> Expr:
        result: Expr | None = None
        for chosen in product(range(taps), repeat=len(elements)):
            at = [e[(r, n, *o)] for e, r in zip(elements, chosen, strict=True)]
            term = cast(_value(x, (n, c), at), accumulator(x.dtype))
            for w, r in zip(weights, chosen, strict=True):
                term = term * cast(w[(r, n, *o)], term.dtype)
            result = term if result is None else result + term
        assert result is not None  # there is at least one tap
        return cast(result, x.dtype)

    return [te.compute_one((*x.shape[:2], *points[1:]), total, "grid_sample")]


def _sums(
    x: Tensor, elements: Sequence[Tensor], weights: Sequence[Tensor], points: Sequence[Expr]
) -> list[Tensor]:
    """Return the sum as a reduction over the taps of every axis."""
    axes = [te.reduce_axis((0, e.shape[0]), f"tap{k}") for k, e in enumerate(elements)]

    def total(n: Expr, c: Expr, *o: Expr) -> Expr:
        at = [e[(r, n, *o)] for e, r in zip(elements, axes, strict=True)]
        term = cast(_value(x, (n, c), at), accumulator(x.dtype))
        for w, r in zip(weights, axes, strict=True):
            term = term * cast(w[(r, n, *o)], term.dtype)
        return te.sum(term, axes)

    made = te.compute_one((*x.shape[:2], *points[1:]), total, "grid_sample")
    return narrowed(made, x.dtype, "grid_sample.cast")


def _rules(a: GridSampleAttrs, result: Type, x: Type, grid: Type) -> Iterator[SizeRule]:
    yield from filled(x, range(2, tensor_type(x).ndim), result)
    yield from equal([(tensor_type(grid).shape[0], tensor_type(x).shape[0])])


def _schedule(group: Group, target: Target, knobs: Knobs) -> None:
    """Compute every stage once: coordinates and weights are shared by all channels."""
    for stage in live_stages(group.schedule):
        schedule_stage(group.schedule, stage, target, knobs)


# The reference.


def _numpy_reflected(at: np.ndarray, low: float, high: float) -> np.ndarray:
    width = at.dtype.type(high - low)
    if width == 0:
        return at * 0
    distance = np.abs(at - at.dtype.type(low))
    reflections = np.floor(distance / width)
    rest = distance - reflections * width
    inside = np.where(reflections % 2 == 0, rest + at.dtype.type(low), at.dtype.type(high) - rest)
    return np.asarray(inside)


def _numpy_coordinates(axis: _Axis, point: np.ndarray) -> np.ndarray:
    """Return coordinates in the precision of the grid, so that roundings fall alike."""
    extent = axis.known
    if axis.attrs.absolute:
        at = point
    elif axis.attrs.align_corners:
        at = (point + 1) / 2 * (extent - 1)
    else:
        at = ((point + 1) * extent - 1) / 2
    if axis.attrs.interpolation == "nearest":
        at = np.rint(at)
    if axis.attrs.padding_mode == "zeros" or axis.attrs.interpolation == "cubic":
        return at
    low, high = -axis.margin, extent - 1 + axis.margin
    inside = np.clip(at, 0, extent - 1)
    if axis.attrs.padding_mode == "reflection":
        inside = _numpy_reflected(at, low, high)
    return np.where((at < low) | (at > high), inside, at)


def _numpy_elements(axis: _Axis, at: np.ndarray) -> np.ndarray:
    """Return elements inside the axis, -1 for a zero."""
    extent = axis.known
    inside = np.clip(at, 0, extent - 1)
    if axis.attrs.padding_mode == "zeros":
        return np.where(at == inside, at, -1)
    if axis.attrs.padding_mode == "border":
        return np.asarray(inside)
    period = [*range(extent), *range(extent - 1, -1, -1)]
    if axis.attrs.align_corners:
        period = [*range(extent), *range(extent - 2, 0, -1)]
    return np.asarray(np.array(period)[at % len(period)])


def _reference(a: GridSampleAttrs, x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Sum the taps one by one, in float64."""
    spatial = x.ndim - 2
    mode = a.interpolation
    points = grid if grid.dtype == np.float64 else grid.astype(np.float32)
    axes = [_Axis(a, n) for n in x.shape[2:]]
    ats = [_numpy_coordinates(axis, points[..., spatial - 1 - k]) for k, axis in enumerate(axes)]
    base = [np.floor(at).astype(np.int64) - (mode == "cubic") for at in ats]
    shares = [np.asarray(at - np.floor(at), np.float64) for at in ats]
    weights = [_weights(mode, t) if mode != "nearest" else [np.ones_like(t)] for t in shares]
    batch = np.arange(x.shape[0]).reshape((-1,) + (1,) * spatial)
    total = np.zeros((*grid.shape[:-1], x.shape[1]))
    for taps in product(range(TAPS[mode]), repeat=spatial):
        places = [_numpy_elements(axis, b + k) for axis, b, k in zip(axes, base, taps, strict=True)]
        inside = np.all([p >= 0 for p in places], axis=0)
        at = (batch, slice(None), *(np.maximum(p, 0) for p in places))
        factor = np.prod([w[k] for w, k in zip(weights, taps, strict=True)], axis=0)
        values = x[at] if mode == "nearest" else x[at].astype(np.float64) * factor[..., None]
        total = total + np.where(inside[..., None], values, 0)
    return np.moveaxis(total, -1, 1).astype(x.dtype)


def _examples() -> tuple[Example, ...]:
    return (
        *(
            Example(
                ((2, 3, 4, 5), (2, 6, 7, 2)),
                {"interpolation": m, "padding_mode": p, "align_corners": c},
                low=-2.5,
                high=2.5,
                atol=1e-5,
            )
            for m in TAPS
            for p in get_args(PaddingMode)
            for c in (False, True)
        ),
        *(
            Example(
                ((1, 2, 3, 4, 5), (1, 2, 3, 4, 3)),
                {"interpolation": m, "padding_mode": p},
                low=-2.0,
                high=2.0,
                atol=1e-5,
            )
            for m in TAPS
            for p in get_args(PaddingMode)
        ),
        Example(((1, 2, 6), (1, 5, 1))),
        Example(((2, 2, 4, 5), (2, 3, 7, 2)), {"absolute": True}, low=-2.0, high=6.0, atol=1e-5),
        Example(
            ((1, 1, 1, 1), (1, 3, 3, 2)), {"padding_mode": "reflection", "align_corners": True}
        ),
        Example(((1, 1, 4, 4), (1, 3, 3, 2)), {}, ("float64", "float64")),
        Example(((1, 3, 4, 4), (1, 3, 3, 2)), {}, ("float16", "float16"), rtol=1e-3, atol=1e-3),
        Example(((1, 1, 4, 4), (1, 3, 3, 2)), {"interpolation": "nearest"}, ("uint8", "float32")),
        Example(((1, 2, 4, 4), (1, 0, 3, 2))),
    )


grid_sample: Operator[GridSampleAttrs] = register(
    Operator(
        name="grid_sample",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        rules=_rules,
        attrs_type=GridSampleAttrs,
        schedule={"cpu": _schedule},
        examples=_examples(),
    )
)
"""x [n, c, *extents] read at grid [n, *output, spatial], whose last axis counts from the last
spatial axis to the first, as in PyTorch."""
