# SPDX-License-Identifier: Apache-2.0
"""Resizing of tensors by nearest, linear and cubic interpolation, axis by axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.conditions import any_of
from treadle.expr.nodes import Const, Expr, cast, convert, select
from treadle.graph.operator import Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, filled
from treadle.graph.types import Dim, TensorType, Type, same_dim, tensor_type
from treadle.limits import RESIZE_TERMS
from treadle.ops.numeric import accumulator, dims_of
from treadle.ops.resize_coordinates import (
    ARRAYS,
    EXPRS,
    CoordinateMode,
    Mode,
    NearestMode,
    ResizeAttrs,
    ResizedAxis,
    axes_of,
    filter_length,
    filter_term,
    is_normalised,
    nearest_index,
    scaled_extent,
    shows_outside,
    within,
)


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
    axes_of(attrs, data.shape)
    sizes = zip(data.shape, attrs.sizes, strict=True)
    return data.with_shape(d if same_dim(s, -1) else s for d, s in sizes)


def _resize_rules(attrs: ResizeAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    changed = axes_of(attrs, tensor_type(x).shape)
    return filled(x, (a.dimension for a in changed), result)


def _grid(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def _reference_resize(attrs: ResizeAttrs, x: np.ndarray) -> np.ndarray:
    axes = axes_of(attrs, x.shape)
    result = x
    if attrs.mode != "nearest":
        # Integers truncate at the end, so their sums must round just as those of `compute`.
        result = x.astype(np.float32 if dt.is_integer(dt.from_numpy(x.dtype)) else np.float64)
    for axis in _in_order(axes):
        o = _grid(axis.known[1])
        if attrs.mode == "nearest":
            result = np.take(result, nearest_index(attrs, axis, ARRAYS, o), axis.dimension)
        else:
            result = _interpolated(attrs, axis, result)
    if attrs.coordinate_transformation_mode == "tf_crop_and_resize":
        result = _extrapolated(attrs, axes, result)
    return _as_dtype(attrs, result, x.dtype)


def _interpolated(attrs: ResizeAttrs, axis: ResizedAxis, x: np.ndarray) -> np.ndarray:
    o, t = _grid(axis.known[1])[:, None], _grid(filter_length(attrs, axis))
    index, weight = filter_term(attrs, axis, ARRAYS, o, t)
    if is_normalised(attrs):
        weight = weight / weight.sum(axis=1, keepdims=True)
    at = within(axis, ARRAYS, index)
    shape = [1] * x.ndim
    shape[axis.dimension] = axis.known[1]
    out = (*x.shape[: axis.dimension], axis.known[1], *x.shape[axis.dimension + 1 :])
    total = np.zeros(out, x.dtype)
    for k in range(at.shape[1]):
        total += np.take(x, at[:, k], axis.dimension) * weight[:, k].reshape(shape)
    return total


def _extrapolated(attrs: ResizeAttrs, axes: Sequence[ResizedAxis], x: np.ndarray) -> np.ndarray:
    outside = np.zeros((1,) * x.ndim, bool)
    for axis in axes:
        shape = [1] * x.ndim
        shape[axis.dimension] = axis.known[1]
        outside = outside | shows_outside(attrs, axis, _grid(axis.known[1])).reshape(shape)
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
    axes = axes_of(attrs, dims_of(x))
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
        outside = any_of(shows_outside(attrs, a, _real(i[a.dimension])) for a in axes)
        return select(outside, Const.of(attrs.extrapolation_value, x.dtype), value)

    return [*stages, te.compute_one(last.shape, element, name="resize")]


def _nearest_stages(
    attrs: ResizeAttrs, axes: Sequence[ResizedAxis], x: te.Tensor
) -> list[te.Tensor]:
    tables: list[te.Tensor] = []
    lookups: dict[int, Callable[[Expr], Expr]] = {}
    for axis in axes:
        lookups[axis.dimension] = _integer_lookup(attrs, axis) or _table(attrs, axis, tables)

    def element(*i: Expr) -> Expr:
        return x[tuple(lookups[k](e) if k in lookups else e for k, e in enumerate(i))]

    return [*tables, te.compute_one(_resized(x, axes), element, name="resize_nearest")]


def _resized(x: te.Tensor, axes: Sequence[ResizedAxis]) -> list[Expr]:
    shape = list(x.shape)
    for axis in axes:
        shape[axis.dimension] = convert(axis.out)
    return shape


def _integer_lookup(attrs: ResizeAttrs, whole: ResizedAxis) -> Callable[[Expr], Expr] | None:
    """Return the index as integer arithmetic where that gives the same as the float formula."""
    axis = _sample(attrs, whole)
    if axis is None:
        return None
    size, out = axis.known
    wanted = nearest_index(attrs, axis, ARRAYS, _grid(out))
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
"""An extent that stands for all: indices repeat long before, and are exact in float32."""


def _sample(attrs: ResizeAttrs, axis: ResizedAxis) -> ResizedAxis | None:
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


def _table(
    attrs: ResizeAttrs, axis: ResizedAxis, tables: list[te.Tensor]
) -> Callable[[Expr], Expr]:
    """Return the look-up in a table of indices, a stage that is appended to `tables`."""
    table = te.compute_one(
        (axis.out,),
        lambda o: nearest_index(attrs, axis, EXPRS, _real(o)),
        name=f"resize_index{axis.dimension}",
    )
    tables.append(table)
    return lambda e: table[e]


def _in_order(axes: Sequence[ResizedAxis]) -> list[ResizedAxis]:
    """Return axes in the order they are interpolated: those that shrink most come first."""
    return sorted(axes, key=lambda a: (_growth(a), -a.dimension))


def _growth(axis: ResizedAxis) -> float:
    if isinstance(axis.size, int) and isinstance(axis.out, int):
        return axis.out / axis.size
    return 1.0 if axis.factor is None else axis.factor


def _interpolation_stages(
    attrs: ResizeAttrs, axes: Sequence[ResizedAxis], x: te.Tensor
) -> list[te.Tensor]:
    """Return the stages that resize one axis after the other."""
    stages: list[te.Tensor] = []
    last = x
    ordered = _in_order(axes)
    for axis in ordered:
        index, weight = _filter_tables(attrs, axis, stages)
        is_kept = axis.dimension == x.ndim - 1 and axis is not ordered[-1]
        last = _weighted(axis, filter_length(attrs, axis), last, index, weight, is_kept=is_kept)
        stages.append(last)
    return stages


def _filter_tables(
    attrs: ResizeAttrs, axis: ResizedAxis, stages: list[te.Tensor]
) -> tuple[te.Tensor, te.Tensor]:
    """Return the stages index[length, out] and weight[length, out]; all stages join `stages`."""
    length, k = filter_length(attrs, axis), axis.dimension

    def place(t: Expr, o: Expr) -> Expr:
        return within(axis, EXPRS, filter_term(attrs, axis, EXPRS, _real(o), _real(t))[0])

    def weigh(t: Expr, o: Expr) -> Expr:
        return filter_term(attrs, axis, EXPRS, _real(o), _real(t))[1]

    index = te.compute_one((length, axis.out), place, name=f"resize_index{k}")
    weight = te.compute_one((length, axis.out), weigh, name=f"resize_weight{k}")
    stages += [index, weight]
    if not is_normalised(attrs):
        return index, weight
    t = te.reduce_axis((0, length), "t")
    total = te.compute_one(
        (axis.out,), lambda o: te.sum(weight[t, o], axis=t), name=f"resize_total{k}"
    )
    scaled = te.compute_one(
        (length, axis.out), lambda t, o: weight[t, o] / total[o], name=f"resize_share{k}"
    )
    stages += [total, scaled]
    return index, scaled


def _weighted(
    axis: ResizedAxis,
    length: int,
    x: te.Tensor,
    index: te.Tensor,
    weight: te.Tensor,
    *,
    is_kept: bool,
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
        for t in range(1, length):
            total = total + term(i, te.const(t))
        return total

    t = te.reduce_axis((0, length), "t")

    def reduced(*i: Expr) -> Expr:
        return te.sum(term(i, t), axis=t)

    element = written_out if length <= RESIZE_TERMS else reduced
    return te.compute_one(
        _resized(x, [axis]), element, name=f"resize{k}", tag=te.KEPT if is_kept else ""
    )


def _flops_resize(attrs: ResizeAttrs, x: Type) -> Dim:
    out = _infer_resize(attrs, x)
    if attrs.mode == "nearest":
        return 0
    return out.elements * sum(
        2 * filter_length(attrs, a) for a in axes_of(attrs, tensor_type(x).shape)
    )


_BILINEAR: dict[str, object] = {"mode": "linear", "sizes": (-1, -1, 7, 5)}
"""What most examples have in common."""

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
