# SPDX-License-Identifier: Apache-2.0
"""Resizing of tensors by nearest, linear and cubic interpolation, axis by axis.

Coordinates are float32 in the order of operations that onnxruntime uses, so that ties fall alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Generic, Literal, TypeVar, get_args

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.conditions import any_of
from treadle.expr.nodes import Const, Expr, cast, convert, maximum, minimum, select
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, filled
from treadle.graph.types import Dim, TensorType, Type, normal_size, same_dim, tensor_type
from treadle.ops.numeric import accumulator, dims_of

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

    `sizes` are all output extents, which may be symbolic; -1 keeps a dimension. `scales` map
    coordinates where given (one per dimension), else output extent / input extent does. `roi` are
    all starts, then all ends, for "tf_crop_and_resize". Nearest mode "simple" is "ceil" where an
    axis shrinks, else "floor". Interpolated integers are rounded where antialiased, else truncated.
    """

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...] = ()
    mode: Mode = "nearest"
    coordinate_transformation_mode: CoordinateMode = "half_pixel"
    nearest_mode: NearestMode = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False
    roi: tuple[float, ...] = ()

    def changed(self, shape: Sequence[Dim]) -> tuple[int, ...]:
        """Return the dimensions of data of this shape that are resized."""
        return tuple(axis.dimension for axis in _axes(self, shape))

    def in_blocks(self) -> ResizeAttrs:
        """Return the same of [n, c/block, *spatial, block] where n and c are not resized."""
        count = len(self.sizes)
        return replace(
            self,
            sizes=(-1, -1, *self.sizes[2:], -1),
            scales=(*self.scales, 1.0) if self.scales else (),
            roi=(*self.roi[:count], 0.0, *self.roi[count:], 1.0) if self.roi else (),
        )


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
    """One axis that is resized: its dimension, extents, scale, and the part of it that is shown.

    `factor` is the scale where it is known when the model is compiled.
    """

    dimension: int
    size: Dim
    out: Dim
    factor: float | None
    start: float
    end: float

    @property
    def scale(self) -> float:
        """What an output coordinate is divided by; an expression where extents are symbolic."""
        if self.factor is not None:
            return self.factor
        return _single(self.out) / _single(_at_least_one(self.size))

    @property
    def last(self) -> float:
        """The last input index; an expression where the extent is symbolic."""
        return _single(self.size - 1)

    @property
    def known(self) -> tuple[int, int]:
        """The extents as ints. Raises TypeMismatch where one of them is symbolic."""
        if not isinstance(self.size, int) or not isinstance(self.out, int):
            raise TypeMismatch(
                f"dimension {self.dimension} must be known to be resized in this mode, not "
                f"{self.size} to {self.out}",
                hint="give the sizes with --input-shapes",
            )
        return self.size, self.out


def _single(value: Dim) -> float:
    """Return a float, or a float32 expression: both calculate with arrays and expressions."""
    if isinstance(value, Expr):
        return cast(value, "float32")  # type: ignore[return-value]
    return float(value)


_FINEST = 64
"""Scales that are a multiple of 1 / _FINEST give symbolic extents in closed form."""


def scaled_extent(size: Dim, scale: float) -> Dim | None:
    """Return the extent that `scale` makes of `size`: the floor of their product in float32.

    None where that takes arithmetic that sizes do not have: a symbolic size by a scale such as 0.7.
    """
    if isinstance(size, int):
        return int(np.float32(size) * np.float32(scale))
    above, below = float(np.float32(scale)).as_integer_ratio()
    if below > _FINEST:
        return None
    return normal_size(size * above // below if below > 1 else size * above)


def _axes(attrs: ResizeAttrs, shape: Sequence[Dim]) -> list[_Axis]:
    """Return the axes that change.

    Raises:
        TypeMismatch: an axis that changes is empty, or symbolic in a mode that has to know it.
    """
    found: list[_Axis] = []
    n = len(shape)
    crops = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    for k, (size, out) in enumerate(zip(shape, attrs.sizes, strict=True)):
        start, end = (attrs.roi[k], attrs.roi[n + k]) if crops else (0.0, 1.0)
        given = attrs.scales[k] if attrs.scales else None
        target = size if same_dim(out, -1) else out
        if same_dim(target, size) and given in (None, 1.0) and (start, end) == (0.0, 1.0):
            continue
        if same_dim(size, 0) and not same_dim(target, 0):
            raise TypeMismatch(f"dimension {k} is empty and cannot be resized to {target}")
        axis = _Axis(k, size, target, given or _ratio(size, target), start, end)
        if crops or (attrs.antialias and axis.factor is None):
            axis.known  # noqa: B018
        found.append(axis)
    return found


def _ratio(size: Dim, out: Dim) -> float | None:
    if not isinstance(size, int) or not isinstance(out, int):
        return None
    return float(np.float32(out) / np.float32(max(size, 1)))


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
    negative = any(isinstance(s, int) and s < -1 for s in attrs.sizes)
    if negative or any(not s > 0 for s in attrs.scales):
        raise TypeMismatch(f"sizes {attrs.sizes} and scales {attrs.scales} must be positive")
    if coordinates == "tf_crop_and_resize" and len(attrs.roi) != 2 * n:
        raise TypeMismatch(f"roi {attrs.roi} must have a start and an end for each dimension")
    if data.dtype == "bool" and attrs.mode != "nearest":
        raise TypeMismatch("bool values cannot be interpolated", hint="use mode nearest")
    _axes(attrs, data.shape)
    sizes = zip(data.shape, attrs.sizes, strict=True)
    return data.with_shape(d if same_dim(s, -1) else s for d, s in sizes)


def _resize_rules(attrs: ResizeAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    changed = _axes(attrs, tensor_type(x).shape)
    return filled(x, (a.dimension for a in changed), result)


def _coordinate(attrs: ResizeAttrs, axis: _Axis, o: V) -> V:
    """Return where output index `o` (float32) lies on the input axis."""
    mode = attrs.coordinate_transformation_mode
    scale = axis.scale
    if mode == "asymmetric":
        return o / scale
    if mode == "tf_half_pixel_for_nn":
        return (o + 0.5) / scale
    if mode == "align_corners":
        return o * axis.last / _single(_at_least_one(axis.out - 1))
    if mode == "tf_crop_and_resize":
        return _cropped(axis, o)
    half_pixel = (o + 0.5) / scale
    if mode == "half_pixel_symmetric":
        return half_pixel + _centre_shift(axis) - 0.5
    if mode == "pytorch_half_pixel":
        return (half_pixel - 0.5) * _single(_at_most_one(axis.out - 1))
    return half_pixel - 0.5


def _at_least_one(value: Dim) -> Dim:
    return maximum(value, 1) if isinstance(value, Expr) else max(value, 1)


def _at_most_one(value: Dim) -> Dim:
    return minimum(value, 1) if isinstance(value, Expr) else min(value, 1)


def _cropped(axis: _Axis, o: V) -> V:
    size, out = axis.known
    if out == 1:
        return o * 0.0 + 0.5 * (axis.start + axis.end) * (size - 1)
    step = o * (axis.end - axis.start) * float(size - 1) / float(out - 1)
    return step + axis.start * (size - 1)


def _centre_shift(axis: _Axis) -> float:
    """Return how far "half_pixel_symmetric" moves so that both images have one centre."""
    if axis.factor is None:
        return 0.0
    if isinstance(axis.size, int) and isinstance(axis.out, int):
        filled = np.float32(axis.out) / (np.float32(axis.factor) * np.float32(axis.size))
        return float(np.float32(axis.size / 2) * (np.float32(1) - filled))
    part = _single(axis.out) / (_single(_at_least_one(axis.size)) * axis.factor)
    return _single(axis.size) / 2.0 * (1.0 - part)


_TIE = 1e-6
"""How far from a half a coordinate may lie and still be halfway: it went through float32."""


def _nearest(attrs: ResizeAttrs, axis: _Axis, math: _Math[V], o: V) -> V:
    """Return the input index (int64) that output index `o` (float32) shows."""
    x = _coordinate(attrs, axis, o)
    mode = attrs.nearest_mode
    below = math.floor(x)
    if mode == "simple" and axis.factor is None:
        index = math.where(o * 0.0 + axis.scale < 1.0, math.ceil(x), below)
    elif mode == "floor" or (mode == "simple" and axis.scale >= 1):
        index = below
    elif mode in ("ceil", "simple"):
        index = math.ceil(x)
    else:
        rest = x - below
        goes_up = rest > 0.5 + _TIE if mode == "round_prefer_floor" else rest >= 0.5 - _TIE
        index = math.where(goes_up, below + 1.0, below)
    return math.integer(math.minimum(math.maximum(index, 0.0), axis.last))


def _stretch(attrs: ResizeAttrs, axis: _Axis) -> float:
    """Return how much wider than usual the filter is: it covers what one output stands for."""
    return max(1.0, 1.0 / float(axis.scale)) if attrs.antialias else 1.0


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
        inside = (index >= 0.0) & (index <= axis.last)
        weight = math.where(inside, weight, weight * 0.0)
    return index, weight


def _cubic(a: float, math: _Math[V], d: V) -> V:
    """Return the cubic convolution kernel with parameter `a` at distance `d` >= 0."""
    near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    far = ((d - 5.0) * d + 8.0) * d * a - 4.0 * a
    return math.where(d <= 1.0, near, math.where(d < 2.0, far, d * 0.0))


def _within(axis: _Axis, math: _Math[V], index: V) -> V:
    return math.integer(math.minimum(math.maximum(index, 0.0), axis.last))


def _is_normalised(attrs: ResizeAttrs) -> bool:
    """True when weights must be divided by their sum."""
    return attrs.antialias or attrs.exclude_outside


def _shows_outside(attrs: ResizeAttrs, axis: _Axis, o: V) -> V:
    x = _coordinate(attrs, axis, o)
    return (x < 0.0) | (x > axis.last)


def _grid(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def _reference_resize(attrs: ResizeAttrs, x: np.ndarray) -> np.ndarray:
    axes = _axes(attrs, x.shape)
    result = x
    if attrs.mode != "nearest":
        # Integers truncate at the end, so their sums must round just as those of `compute`.
        result = x.astype(np.float32 if dt.is_integer(dt.from_numpy(x.dtype)) else np.float64)
    for axis in _in_order(axes):
        o = _grid(axis.known[1])
        if attrs.mode == "nearest":
            result = np.take(result, _nearest(attrs, axis, _ARRAYS, o), axis.dimension)
        else:
            result = _interpolated(attrs, axis, result)
    if attrs.coordinate_transformation_mode == "tf_crop_and_resize":
        result = _extrapolated(attrs, axes, result)
    return _as_dtype(attrs, result, x.dtype)


def _interpolated(attrs: ResizeAttrs, axis: _Axis, x: np.ndarray) -> np.ndarray:
    o, t = _grid(axis.known[1])[:, None], _grid(_tap_count(attrs, axis))
    index, weight = _tap(attrs, axis, _ARRAYS, o, t)
    if _is_normalised(attrs):
        weight = weight / weight.sum(axis=1, keepdims=True)
    at = _within(axis, _ARRAYS, index)
    shape = [1] * x.ndim
    shape[axis.dimension] = axis.known[1]
    out = (*x.shape[: axis.dimension], axis.known[1], *x.shape[axis.dimension + 1 :])
    total = np.zeros(out, x.dtype)
    for k in range(at.shape[1]):
        total += np.take(x, at[:, k], axis.dimension) * weight[:, k].reshape(shape)
    return total


def _extrapolated(attrs: ResizeAttrs, axes: Sequence[_Axis], x: np.ndarray) -> np.ndarray:
    outside = np.zeros((1,) * x.ndim, bool)
    for axis in axes:
        shape = [1] * x.ndim
        shape[axis.dimension] = axis.known[1]
        outside = outside | _shows_outside(attrs, axis, _grid(axis.known[1])).reshape(shape)
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
        shape[axis.dimension] = convert(axis.out)
    return shape


def _integer_lookup(attrs: ResizeAttrs, whole: _Axis) -> Callable[[Expr], Expr] | None:
    """Return the index as integer arithmetic where that gives the same as the float formula."""
    axis = _sample(attrs, whole)
    if axis is None:
        return None
    size, out = axis.known
    wanted = _nearest(attrs, axis, _ARRAYS, _grid(out))
    o = np.arange(out)
    up, down = -(-out // max(size, 1)), size // max(out, 1)
    if up > 1 and np.array_equal(wanted, o // up):
        return lambda e: te.floordiv(e, up)
    for offset in range(max(down, 1)):
        if np.array_equal(wanted, o * down + offset):
            return lambda e: e * down + offset
    return None


_REPEATING = ("asymmetric", "half_pixel", "tf_half_pixel_for_nn", "pytorch_half_pixel")
"""Coordinate modes where, by a whole scale, what one input element becomes repeats for all."""

_SAMPLE = 1 << 12


def _sample(attrs: ResizeAttrs, axis: _Axis) -> _Axis | None:
    """Return an axis of known extents whose indices follow the same rule; None if there is none."""
    if isinstance(axis.size, int) and isinstance(axis.out, int):
        return axis
    if axis.factor is None or attrs.coordinate_transformation_mode not in _REPEATING:
        return None
    whole = axis.factor.is_integer() or (1.0 / axis.factor).is_integer()
    expected = scaled_extent(axis.size, axis.factor)
    if not whole or expected is None or not same_dim(expected, axis.out):
        return None
    return replace(axis, size=_SAMPLE, out=int(_SAMPLE * axis.factor))


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
    return sorted(axes, key=lambda a: (_growth(a), -a.dimension))


def _growth(axis: _Axis) -> float:
    if isinstance(axis.size, int) and isinstance(axis.out, int):
        return axis.out / axis.size
    return 1.0 if axis.factor is None else axis.factor


def _interpolation_stages(
    attrs: ResizeAttrs, axes: Sequence[_Axis], x: te.Tensor
) -> list[te.Tensor]:
    """Return the stages that resize one axis after the other."""
    stages: list[te.Tensor] = []
    last = x
    ordered = _in_order(axes)
    for axis in ordered:
        index, weight = _tap_tables(attrs, axis, stages)
        is_kept = axis.dimension == x.ndim - 1 and axis is not ordered[-1]
        last = _weighted(axis, _tap_count(attrs, axis), last, index, weight, is_kept=is_kept)
        stages.append(last)
    return stages


def _tap_tables(
    attrs: ResizeAttrs, axis: _Axis, stages: list[te.Tensor]
) -> tuple[te.Tensor, te.Tensor]:
    """Return the stages index[taps, out] and weight[taps, out]; what they need joins `stages`."""
    taps, k = _tap_count(attrs, axis), axis.dimension

    def place(t: Expr, o: Expr) -> Expr:
        return _within(axis, _EXPRS, _tap(attrs, axis, _EXPRS, _real(o), _real(t))[0])

    def weigh(t: Expr, o: Expr) -> Expr:
        return _tap(attrs, axis, _EXPRS, _real(o), _real(t))[1]

    index = te.compute_one((taps, axis.out), place, name=f"resize_index{k}")
    weight = te.compute_one((taps, axis.out), weigh, name=f"resize_weight{k}")
    stages += [index, weight]
    if not _is_normalised(attrs):
        return index, weight
    t = te.reduce_axis((0, taps), "t")
    total = te.compute_one(
        (axis.out,), lambda o: te.sum(weight[t, o], axis=t), name=f"resize_total{k}"
    )
    scaled = te.compute_one(
        (taps, axis.out), lambda t, o: weight[t, o] / total[o], name=f"resize_share{k}"
    )
    stages += [total, scaled]
    return index, scaled


def _weighted(
    axis: _Axis, taps: int, x: te.Tensor, index: te.Tensor, weight: te.Tensor, *, is_kept: bool
) -> te.Tensor:
    """Return `x` with one axis replaced by weighted sums of its elements.

    Those along memory, which no vector reads in order, are kept: what reads them reads them again.
    """
    k = axis.dimension
    wide = accumulator(x.dtype) if dt.is_float(x.dtype) else "float32"

    def term(i: Sequence[Expr], t: Expr) -> Expr:
        value = x[(*i[:k], index[t, i[k]], *i[k + 1 :])]
        return cast(value, wide) * cast(weight[t, i[k]], wide)

    def written_out(*i: Expr) -> Expr:
        total = term(i, te.const(0))
        for t in range(1, taps):
            total = total + term(i, te.const(t))
        return total

    t = te.reduce_axis((0, taps), "t")

    def reduced(*i: Expr) -> Expr:
        return te.sum(term(i, t), axis=t)

    element = written_out if taps <= _WRITTEN_OUT else reduced
    return te.compute_one(
        _resized(x, [axis]), element, name=f"resize{k}", tag=te.KEPT if is_kept else ""
    )


def _flops_resize(attrs: ResizeAttrs, x: Type) -> Dim:
    out = _infer_resize(attrs, x)
    if attrs.mode == "nearest":
        return 0
    return out.elements * sum(2 * _tap_count(attrs, a) for a in _axes(attrs, tensor_type(x).shape))


_BILINEAR: dict[str, object] = {"mode": "linear", "sizes": (-1, -1, 7, 5)}

resize: Operator[ResizeAttrs] = register(
    Operator(
        name="resize",
        infer=_infer_resize,
        reference=_reference_resize,
        compute=_compute_resize,
        rules=_resize_rules,
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
