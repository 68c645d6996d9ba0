# SPDX-License-Identifier: Apache-2.0
"""Resizing of tensors by nearest, linear and cubic interpolation, axis by axis.

Coordinates are float32 in the order of operations that onnxruntime uses, so that ties fall alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Generic, Literal, TypeVar, get_args

import numpy as np

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, any_of, cast, select
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.numeric import accumulator, dims_of
from treadle.te import tensor as te

Mode = Literal["nearest", "linear", "cubic"]
CoordinateMode = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]
NearestMode = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"]


@dataclass(frozen=True, slots=True)
class ResizeAttrs(Attrs):
    """The meaning of every field is that of ONNX Resize.

    `sizes` are all output extents; -1 keeps a dimension. `scales` map coordinates where given (one
    per dimension), else output extent / input extent does. `roi` are all starts, then all ends, for
    "tf_crop_and_resize". Nearest mode "simple" is "ceil" where an axis shrinks, else "floor".
    Interpolated integers are rounded where antialiased, else truncated.
    """

    sizes: tuple[int, ...]
    scales: tuple[float, ...] = ()
    mode: Mode = "nearest"
    coordinate_transformation_mode: CoordinateMode = "half_pixel"
    nearest_mode: NearestMode = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False
    roi: tuple[float, ...] = ()


_WRITTEN_OUT = 4
"""Up to this many taps are written as one expression; more become a reduction."""

V = TypeVar("V", np.ndarray, Expr)


@dataclass(frozen=True, slots=True)
class _Math(Generic[V]):
    """The functions that coordinates need, on arrays or on expressions."""

    floor: Callable[[V], V]
    ceil: Callable[[V], V]
    absolute: Callable[[V], V]
    minimum: Callable[[V, float], V]
    maximum: Callable[[V, float], V]
    where: Callable[[V, V, V], V]
    integer: Callable[[V], V]


_ARRAYS: _Math[np.ndarray] = _Math(
    np.floor, np.ceil, np.abs, np.minimum, np.maximum, np.where, lambda x: x.astype(np.int64)
)
_EXPRS: _Math[Expr] = _Math(
    te.floor, te.ceil, te.abs, te.min, te.max, select, lambda x: cast(x, dt.INDEX)
)


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis that is resized: its dimension, extents, scale, and the part of it that is shown."""

    dimension: int
    size: int
    out: int
    scale: float
    start: float
    end: float


def _axes(attrs: ResizeAttrs, shape: Sequence[Dim]) -> list[_Axis]:
    """Return the axes that change.

    Raises:
        TypeMismatch: an axis that changes has an extent that is unknown or 0.
    """
    found: list[_Axis] = []
    n = len(shape)
    crops = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    for k, (size, out) in enumerate(zip(shape, attrs.sizes, strict=True)):
        start, end = (attrs.roi[k], attrs.roi[n + k]) if crops else (0.0, 1.0)
        given = attrs.scales[k] if attrs.scales else None
        if (out in (-1, size)) and given in (None, 1.0) and (start, end) == (0.0, 1.0):
            continue
        if not isinstance(size, int):
            raise TypeMismatch(f"dimension {k} must be known to be resized, not {size}")
        target = size if out == -1 else out
        if size == 0 and target > 0:
            raise TypeMismatch(f"dimension {k} is empty and cannot be resized to {target}")
        ratio = np.float32(target) / np.float32(max(size, 1)) if given is None else given
        found.append(_Axis(k, size, target, float(ratio), start, end))
    return found


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise TypeMismatch(f"{name} {value!r} is not one of {', '.join(choices)}")


def _infer_resize(attrs: ResizeAttrs, x: Type) -> TensorType:
    data = tensor_type(x)
    n = data.ndim
    _check_choice("mode", attrs.mode, get_args(Mode))
    coordinates = attrs.coordinate_transformation_mode
    _check_choice("coordinate_transformation_mode", coordinates, get_args(CoordinateMode))
    _check_choice("nearest_mode", attrs.nearest_mode, get_args(NearestMode))
    if len(attrs.sizes) != n or (attrs.scales and len(attrs.scales) != n):
        raise TypeMismatch(f"sizes and scales must have one entry for each dimension of {data}")
    if any(s < -1 for s in attrs.sizes) or any(not s > 0 for s in attrs.scales):
        raise TypeMismatch(f"sizes {attrs.sizes} and scales {attrs.scales} must be positive")
    if coordinates == "tf_crop_and_resize" and len(attrs.roi) != 2 * n:
        raise TypeMismatch(f"roi {attrs.roi} must have a start and an end for each dimension")
    if data.dtype == "bool" and attrs.mode != "nearest":
        raise TypeMismatch("bool values cannot be interpolated", hint="use mode nearest")
    _axes(attrs, data.shape)
    sizes = zip(data.shape, attrs.sizes, strict=True)
    return data.with_shape(d if s == -1 else s for d, s in sizes)


def _coordinate(attrs: ResizeAttrs, axis: _Axis, o: V) -> V:
    """Return where output index `o` (float32) lies on the input axis."""
    mode = attrs.coordinate_transformation_mode
    size, out, scale = axis.size, axis.out, axis.scale
    if mode == "asymmetric":
        return o / scale
    if mode == "tf_half_pixel_for_nn":
        return (o + 0.5) / scale
    if mode == "align_corners":
        return o * float(size - 1) / float(max(out - 1, 1))
    if mode == "tf_crop_and_resize":
        if out == 1:
            return o * 0.0 + 0.5 * (axis.start + axis.end) * (size - 1)
        step = o * (axis.end - axis.start) * float(size - 1) / float(out - 1)
        return step + axis.start * (size - 1)
    if mode == "pytorch_half_pixel" and out == 1:
        return o * 0.0
    half_pixel = (o + 0.5) / scale
    if mode == "half_pixel_symmetric":
        adjustment = np.float32(out) / (np.float32(scale) * np.float32(size))
        return half_pixel + float(np.float32(size / 2) * (np.float32(1) - adjustment)) - 0.5
    return half_pixel - 0.5


def _nearest(attrs: ResizeAttrs, axis: _Axis, math: _Math[V], o: V) -> V:
    """Return the input index (int64) that output index `o` (float32) shows."""
    x = _coordinate(attrs, axis, o)
    mode = attrs.nearest_mode
    if mode == "simple":
        mode = "ceil" if axis.scale < 1 else "floor"
    below = math.floor(x)
    if mode == "floor":
        index = below
    elif mode == "ceil":
        index = math.ceil(x)
    else:
        rest = x - below
        goes_up = rest > 0.5 if mode == "round_prefer_floor" else rest >= 0.5
        index = math.where(goes_up, below + 1.0, below)
    return math.integer(math.minimum(math.maximum(index, 0.0), float(axis.size - 1)))


def _stretch(attrs: ResizeAttrs, axis: _Axis) -> float:
    """Return how much wider than usual the filter is: it covers what one output stands for."""
    return max(1.0, 1.0 / axis.scale) if attrs.antialias else 1.0


def _tap_count(attrs: ResizeAttrs, axis: _Axis) -> int:
    reach = (2 if attrs.mode == "cubic" else 1) * _stretch(attrs, axis)
    return ceil(2 * reach)


def _tap(attrs: ResizeAttrs, axis: _Axis, math: _Math[V], o: V, t: V) -> tuple[V, V]:
    """Return the input index (float32, maybe outside) and the weight of tap `t` of output `o`."""
    x = _coordinate(attrs, axis, o)
    stretch = _stretch(attrs, axis)
    reach = (2 if attrs.mode == "cubic" else 1) * stretch
    index = math.floor(x - reach) + 1.0 + t
    distance = math.absolute(index - x) / stretch
    if attrs.mode == "linear":
        weight = math.maximum(1.0 - distance, 0.0)
    else:
        weight = _cubic(attrs.cubic_coeff_a, math, distance)
    if attrs.exclude_outside:
        inside = (index >= 0.0) & (index <= float(axis.size - 1))
        weight = math.where(inside, weight, weight * 0.0)
    return index, weight


def _cubic(a: float, math: _Math[V], d: V) -> V:
    """Return the cubic convolution kernel with parameter `a` at distance `d` >= 0."""
    near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    far = ((d - 5.0) * d + 8.0) * d * a - 4.0 * a
    return math.where(d <= 1.0, near, math.where(d < 2.0, far, d * 0.0))


def _within(axis: _Axis, math: _Math[V], index: V) -> V:
    return math.integer(math.minimum(math.maximum(index, 0.0), float(axis.size - 1)))


def _is_normalised(attrs: ResizeAttrs) -> bool:
    """True when weights must be divided by their sum."""
    return attrs.antialias or attrs.exclude_outside


def _shows_outside(attrs: ResizeAttrs, axis: _Axis, o: V) -> V:
    x = _coordinate(attrs, axis, o)
    return (x < 0.0) | (x > float(axis.size - 1))


def _grid(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def _reference_resize(attrs: ResizeAttrs, x: np.ndarray) -> np.ndarray:
    axes = _axes(attrs, x.shape)
    result = x
    if attrs.mode != "nearest":
        # Integers truncate at the end, so their sums must round just as those of `compute`.
        result = x.astype(np.float32 if dt.is_integer(dt.from_numpy(x.dtype)) else np.float64)
    for axis in _in_order(axes):
        o = _grid(axis.out)
        if attrs.mode == "nearest":
            result = np.take(result, _nearest(attrs, axis, _ARRAYS, o), axis.dimension)
        else:
            result = _interpolated(attrs, axis, result)
    if attrs.coordinate_transformation_mode == "tf_crop_and_resize":
        result = _extrapolated(attrs, axes, result)
    return _as_dtype(attrs, result, x.dtype)


def _interpolated(attrs: ResizeAttrs, axis: _Axis, x: np.ndarray) -> np.ndarray:
    o, t = _grid(axis.out)[:, None], _grid(_tap_count(attrs, axis))
    index, weight = _tap(attrs, axis, _ARRAYS, o, t)
    if _is_normalised(attrs):
        weight = weight / weight.sum(axis=1, keepdims=True)
    at = _within(axis, _ARRAYS, index)
    shape = [1] * x.ndim
    shape[axis.dimension] = axis.out
    out = (*x.shape[: axis.dimension], axis.out, *x.shape[axis.dimension + 1 :])
    total = np.zeros(out, x.dtype)
    for k in range(at.shape[1]):
        total += np.take(x, at[:, k], axis.dimension) * weight[:, k].reshape(shape)
    return total


def _extrapolated(attrs: ResizeAttrs, axes: Sequence[_Axis], x: np.ndarray) -> np.ndarray:
    outside = np.zeros((1,) * x.ndim, bool)
    for axis in axes:
        shape = [1] * x.ndim
        shape[axis.dimension] = axis.out
        outside = outside | _shows_outside(attrs, axis, _grid(axis.out)).reshape(shape)
    return np.where(outside, np.asarray(attrs.extrapolation_value, x.dtype), x)


def _as_dtype(attrs: ResizeAttrs, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    name = dt.from_numpy(dtype)
    if x.dtype != dtype and dt.is_integer(name):
        whole = np.rint(x) if attrs.antialias else np.trunc(x)
        x = np.clip(whole, float(dt.min_value(name)), float(dt.max_value(name)))
    return x.astype(dtype)


def _real(index: Expr) -> Expr:
    return cast(index, "float32")


def _compute_resize(attrs: ResizeAttrs, x: te.Tensor) -> list[te.Tensor]:
    axes = _axes(attrs, dims_of(x))
    if attrs.mode == "nearest":
        stages = _nearest_stages(attrs, axes, x)
    else:
        stages = _interpolation_stages(attrs, axes, x)
    last = stages[-1] if stages else x
    crops = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    if stages and last.dtype == x.dtype and not crops:
        return stages

    def element(*i: Expr) -> Expr:
        exact = last[i]
        rounds = attrs.antialias and dt.is_integer(x.dtype) and dt.is_float(last.dtype)
        value = cast(te.round(exact) if rounds else exact, x.dtype)
        if not crops:
            return value
        outside = any_of(_shows_outside(attrs, a, _real(i[a.dimension])) for a in axes)
        return select(outside, Const.of(attrs.extrapolation_value, x.dtype), value)

    return [*stages, te.compute_one(last.shape, element, name="resize")]


def _nearest_stages(attrs: ResizeAttrs, axes: Sequence[_Axis], x: te.Tensor) -> list[te.Tensor]:
    tables: list[te.Tensor] = []
    lookups: dict[int, Callable[[Expr], Expr]] = {}
    for axis in axes:
        lookups[axis.dimension] = _integer_lookup(attrs, axis) or _table(attrs, axis, tables)

    def element(*i: Expr) -> Expr:
        return x[tuple(lookups[k](e) if k in lookups else e for k, e in enumerate(i))]

    return [*tables, te.compute_one(_resized(x, axes), element, name="resize_nearest")]


def _resized(x: te.Tensor, axes: Sequence[_Axis]) -> list[Expr]:
    shape = list(x.shape)
    for axis in axes:
        shape[axis.dimension] = te.const(axis.out)
    return shape


def _integer_lookup(attrs: ResizeAttrs, axis: _Axis) -> Callable[[Expr], Expr] | None:
    """Return the index as integer arithmetic where that gives the same as the float formula."""
    wanted = _nearest(attrs, axis, _ARRAYS, _grid(axis.out))
    o = np.arange(axis.out)
    up, down = -(-axis.out // max(axis.size, 1)), axis.size // max(axis.out, 1)
    if up > 1 and np.array_equal(wanted, o // up):
        return lambda e: te.floordiv(e, up)
    for offset in range(max(down, 1)):
        if np.array_equal(wanted, o * down + offset):
            return lambda e: e * down + offset
    return None


def _table(attrs: ResizeAttrs, axis: _Axis, tables: list[te.Tensor]) -> Callable[[Expr], Expr]:
    """Return the look-up in a table of indices, a stage that is appended to `tables`."""
    table = te.compute_one(
        (axis.out,),
        lambda o: _nearest(attrs, axis, _EXPRS, _real(o)),
        name=f"resize_index{axis.dimension}",
    )
    tables.append(table)
    return lambda e: table[e]


def _in_order(axes: Sequence[_Axis]) -> list[_Axis]:
    """Return axes in the order they are interpolated: those that shrink most come first."""
    return sorted(axes, key=lambda a: (a.out / a.size, -a.dimension))


def _interpolation_stages(
    attrs: ResizeAttrs, axes: Sequence[_Axis], x: te.Tensor
) -> list[te.Tensor]:
    """Return the stages that resize one axis after the other."""
    stages: list[te.Tensor] = []
    last = x
    for axis in _in_order(axes):
        index, weight = _tap_tables(attrs, axis, stages)
        last = _weighted(axis, _tap_count(attrs, axis), last, index, weight)
        stages.append(last)
    return stages


def _tap_tables(
    attrs: ResizeAttrs, axis: _Axis, stages: list[te.Tensor]
) -> tuple[te.Tensor, te.Tensor]:
    """Return the stages index[out, taps] and weight[out, taps]; what they need joins `stages`."""
    taps, k = _tap_count(attrs, axis), axis.dimension

    def place(o: Expr, t: Expr) -> Expr:
        return _within(axis, _EXPRS, _tap(attrs, axis, _EXPRS, _real(o), _real(t))[0])

    def weigh(o: Expr, t: Expr) -> Expr:
        return _tap(attrs, axis, _EXPRS, _real(o), _real(t))[1]

    index = te.compute_one((axis.out, taps), place, name=f"resize_index{k}")
    weight = te.compute_one((axis.out, taps), weigh, name=f"resize_weight{k}")
    stages += [index, weight]
    if not _is_normalised(attrs):
        return index, weight
    t = te.reduce_axis((0, taps), "t")
    total = te.compute_one(
        (axis.out,), lambda o: te.sum(weight[o, t], axis=t), name=f"resize_total{k}"
    )
    scaled = te.compute_one(
        (axis.out, taps), lambda o, t: weight[o, t] / total[o], name=f"resize_share{k}"
    )
    stages += [total, scaled]
    return index, scaled


def _weighted(
    axis: _Axis, taps: int, x: te.Tensor, index: te.Tensor, weight: te.Tensor
) -> te.Tensor:
    """Return `x` with one axis replaced by weighted sums of its elements."""
    k = axis.dimension
    wide = accumulator(x.dtype) if dt.is_float(x.dtype) else "float32"

    def term(i: Sequence[Expr], t: Expr) -> Expr:
        value = x[(*i[:k], index[i[k], t], *i[k + 1 :])]
        return cast(value, wide) * cast(weight[i[k], t], wide)

    def written_out(*i: Expr) -> Expr:
        total = term(i, te.const(0))
        for t in range(1, taps):
            total = total + term(i, te.const(t))
        return total

    t = te.reduce_axis((0, taps), "t")

    def reduced(*i: Expr) -> Expr:
        return te.sum(term(i, t), axis=t)

    element = written_out if taps <= _WRITTEN_OUT else reduced
    return te.compute_one(_resized(x, [axis]), element, name=f"resize{k}")


def _flops_resize(attrs: ResizeAttrs, x: Type) -> int:
    out = _infer_resize(attrs, x)
    if attrs.mode == "nearest":
        return 0
    return out.size * sum(2 * _tap_count(attrs, a) for a in _axes(attrs, tensor_type(x).shape))


_BILINEAR: dict[str, object] = {"mode": "linear", "sizes": (-1, -1, 7, 5)}

resize: Operator[ResizeAttrs] = register(
    Operator(
        name="resize",
        infer=_infer_resize,
        reference=_reference_resize,
        compute=_compute_resize,
        attrs_type=ResizeAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops_resize,
        examples=(
            Example(
                ((1, 2, 4, 5),),
                {"sizes": (1, 2, 8, 10), "coordinate_transformation_mode": "asymmetric",
                 "nearest_mode": "floor"},
            ),
            Example(((1, 2, 4, 5),), {"sizes": (1, 2, 8, 10)}),
            Example(((2, 1, 6, 9),), {"sizes": (2, 1, 3, 3)}),
            Example(((1, 2, 4, 5),), {"sizes": (-1, -1, 7, 3)}, ("uint8",), 0, 255),
            Example(((3, 4),), {"sizes": (3, 4)}),
            Example(((5,),), {"sizes": (8,), "scales": (1.7,), "mode": "linear"}),
            Example(((1, 2, 4, 5),), {**_BILINEAR}),
            Example(
                ((2, 2, 4, 5),),
                {**_BILINEAR, "coordinate_transformation_mode": "align_corners"}, ("float64",),
            ),
            Example(((1, 2, 4, 5),), {**_BILINEAR}, ("float16",), rtol=1e-3, atol=1e-3),
            Example(((1, 2, 4, 9),), {**_BILINEAR, "mode": "cubic", "exclude_outside": True}),
            Example(((1, 1, 20, 33),), {**_BILINEAR, "antialias": True}),
            Example(((1, 1, 20, 9),), {**_BILINEAR, "mode": "cubic", "antialias": True}),
            Example(
                ((1, 1, 6, 6),),
                {"mode": "linear", "sizes": (1, 1, 4, 5), "extrapolation_value": 10.0,
                 "coordinate_transformation_mode": "tf_crop_and_resize",
                 "roi": (0.0, 0.0, 0.4, -0.2, 1.0, 1.0, 0.6, 1.3)},
            ),
            Example(((1, 1, 2, 3, 4),), {"mode": "linear", "sizes": (1, 1, 4, 5, 3)}),
        ),
    )
)  # fmt: skip
