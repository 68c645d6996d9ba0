# SPDX-License-Identifier: Apache-2.0
"""Pooling: the largest value of every window (and where it is), or the mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, cast, convert, int_value
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule
from treadle.graph.types import (
    Dim,
    TensorType,
    TupleType,
    Type,
    known_true,
    product_of,
    same_dim,
    tensor_type,
)
from treadle.ops.axis_names import image_axes
from treadle.ops.numeric import accumulator, dims_of, in_float64
from treadle.ops.schedules.pool import schedule_pool
from treadle.ops.window import (
    WindowAxis,
    grown,
    kernel_axes,
    known,
    scaled,
    shifted,
    tap_views,
    whole_rules,
    window_axes,
)


@dataclass(frozen=True, slots=True)
class PoolAttrs(Attrs):
    """The window, one entry per spatial axis; an empty entry means 1 (0 for pads) everywhere.

    `out_sizes` says how many windows there are where that is not the number of windows that fit
    completely (a model's "ceil mode"): the last may then hang over the padded end. Layout "NC" is
    [n, c, *spatial], "NCc" is [n, c/b, *spatial, b]. `count_include_pad` is read by avg_pool only:
    whether the padding counts in the mean (what hangs over it never does).
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads_before: tuple[int, ...] = ()
    pads_after: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    out_sizes: tuple[Dim, ...] = ()
    count_include_pad: bool = False
    layout: Literal["NC", "NCc"] = "NC"


def ceil_size(axis: WindowAxis) -> int:
    """Return how many windows an axis has in ceil mode: also those that hang over its end.

    A window must start inside the data or the padding before it.
    """
    if not isinstance(axis.size, int):
        raise TypeMismatch(f"ceil mode needs a known extent, not {axis.size}")
    room = axis.size + axis.before + axis.after - axis.extent
    count = max(-(-room // axis.stride) + 1, 0)
    starts_inside = (count - 1) * axis.stride < axis.size + axis.before
    return count if starts_inside else count - 1


def pool_axes(attrs: PoolAttrs, sizes: Sequence[Dim]) -> tuple[WindowAxis, ...]:
    """Return the window axes of a pooling over spatial extents `sizes`."""
    return window_axes(
        sizes,
        attrs.kernel,
        attrs.strides,
        attrs.pads_before,
        attrs.pads_after,
        attrs.dilations,
    )


def _spatial(attrs: PoolAttrs, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return shape[2:] if attrs.layout == "NC" else shape[2:-1]


def _outputs(attrs: PoolAttrs, axes: Sequence[WindowAxis]) -> tuple[Dim, ...]:
    return attrs.out_sizes or tuple(a.out for a in axes)


def _infer_pool(attrs: PoolAttrs, x: Type) -> TensorType:
    data = tensor_type(x)
    if attrs.layout not in ("NC", "NCc"):
        raise TypeMismatch(f"the layout {attrs.layout!r} is not NC or NCc")
    blocked = 1 if attrs.layout == "NCc" else 0
    if not attrs.kernel or data.ndim != 2 + len(attrs.kernel) + blocked:
        raise TypeMismatch(
            f"a window of {len(attrs.kernel)} axes does not slide over {data} in layout "
            f"{attrs.layout}"
        )
    if data.dtype == "bool":
        raise TypeMismatch("pooling bool values is not defined", hint="cast them first")
    axes = pool_axes(attrs, _spatial(attrs, data.shape))
    if attrs.out_sizes and (
        len(attrs.out_sizes) != len(axes)
        or any(known_true(convert(d) < 0) for d in attrs.out_sizes)
    ):
        raise TypeMismatch(f"out_sizes {attrs.out_sizes} must be one number of windows per axis")
    for axis in axes:
        if max(axis.before, axis.after) >= axis.extent:
            raise TypeMismatch(
                f"padding of {axis.before} and {axis.after} leaves windows of {axis.extent} empty",
                hint="pads must be smaller than the window",
            )
    tail = data.shape[len(data.shape) - blocked :]
    return data.with_shape((*data.shape[:2], *_outputs(attrs, axes), *tail))


def _pool_rules(attrs: PoolAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    if attrs.out_sizes:
        return iter(())
    return whole_rules(pool_axes(attrs, _spatial(attrs, tensor_type(x).shape)))


def _infer_avg_pool(attrs: PoolAttrs, x: Type) -> TensorType:
    out = _infer_pool(attrs, x)
    if not dt.is_float(out.dtype):
        raise TypeMismatch(f"the mean of {out.dtype} windows is not defined", hint="cast to float")
    return out


Element = Callable[[tuple[Expr, ...]], Expr]


class _Windows:
    """The windows of one pooling of a te tensor."""

    def __init__(self, attrs: PoolAttrs, x: te.Tensor) -> None:
        self.x = x
        self.axes = pool_axes(attrs, _spatial(attrs, dims_of(x)))
        self.shape = _infer_pool(attrs, TensorType(x.shape, x.dtype)).shape
        self.taps = kernel_axes([a.kernel for a in self.axes])

    @property
    def names(self) -> tuple[str, ...]:
        """What the axes of the result are called."""
        is_blocked = len(self.shape) > 2 + len(self.axes)
        return image_axes(len(self.axes), channels="c", block="cb" if is_blocked else "")

    def split(self, index: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr], Sequence[Expr]]:
        """Return an index of the result as (leading, spatial, trailing) parts."""
        end = 2 + len(self.axes)
        return index[:2], index[2:end], index[end:]

    def read(self, index: Sequence[Expr], outside: Expr, element: Element | None = None) -> Expr:
        """Return the element the taps read for a window; `outside` where there is none.

        `element` says what stands for the element at an index of the tensor.
        """
        lead, windows, tail = self.split(index)
        at: list[Expr] = []
        checks: list[Expr] = []
        for axis, count, o, k in zip(self.axes, self.shape[2:], windows, self.taps, strict=False):
            position = axis.position(o, k)
            if axis.before:
                checks.append(position >= axis.before)
            if _hangs_over(axis, count):
                checks.append(position < grown(axis.size, axis.before))
            at.append(shifted(position, axis.before))
        source = (*lead, *at, *tail)
        value = self.x[source] if element is None else element(source)
        return te.if_then_else(te.all(*checks), value, outside) if checks else value


def _hangs_over(axis: WindowAxis, outputs: Dim) -> bool:
    """True when the last window may read behind the data."""
    if not (isinstance(outputs, int) and isinstance(axis.size, int)):
        return axis.after > 0 or not same_dim(outputs, axis.out)
    return (outputs - 1) * axis.stride + axis.extent > axis.size + axis.before


def _compute_max_pool(attrs: PoolAttrs, x: te.Tensor) -> te.Tensor:
    windows = _Windows(attrs, x)

    def element(*i: Expr) -> Expr:
        return te.max(windows.read(i, te.min_value(x.dtype)), axis=list(windows.taps))

    return te.compute_one(windows.shape, element, name="max_pool", axes=windows.names)


@dataclass(frozen=True, slots=True)
class MaxPoolIndicesAttrs(Attrs):
    """As `PoolAttrs`; `column_major` counts positions with the first spatial axis fastest."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads_before: tuple[int, ...] = ()
    pads_after: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    out_sizes: tuple[Dim, ...] = ()
    column_major: bool = False

    @property
    def pool(self) -> PoolAttrs:
        """The attributes of the pooling alone."""
        return PoolAttrs(
            self.kernel,
            self.strides,
            self.pads_before,
            self.pads_after,
            self.dilations,
            self.out_sizes,
        )


def _infer_max_pool_indices(attrs: MaxPoolIndicesAttrs, x: Type) -> TupleType:
    values = _infer_pool(attrs.pool, x)
    return TupleType((values, values.with_dtype(dt.INDEX)))


def _weights(attrs: MaxPoolIndicesAttrs, sizes: Sequence[Dim]) -> list[Dim]:
    """Return what a step along each spatial axis adds to a position."""
    if attrs.column_major:
        return [product_of(sizes[:k]) for k in range(len(sizes))]
    return [product_of(sizes[k + 1 :]) for k in range(len(sizes))]


def _compute_max_pool_indices(attrs: MaxPoolIndicesAttrs, x: te.Tensor) -> list[te.Tensor]:
    """Return the largest values, then the first position in each window that has it."""
    values = _compute_max_pool(attrs.pool, x)
    windows = _Windows(attrs.pool, x)
    sizes = dims_of(x)[2:]
    weights, whole = _weights(attrs, sizes), product_of(sizes)
    missing = te.max_value(dt.INDEX)

    def position(*i: Expr) -> Expr:
        def one(at: tuple[Expr, ...]) -> Expr:
            n, c, *s = at
            place = (n * x.shape[1] + c) * whole
            for k, weight in zip(s, weights, strict=True):
                place = place + (k if same_dim(weight, 1) else k * weight)
            found = nodes.binary("eq", x[at], values[i])
            if dt.is_float(x.dtype):
                found = found | te.isnan(x[at])
            return nodes.select(found, place, missing)

        return te.min(windows.read(i, missing, one), axis=list(windows.taps))

    return [
        values,
        te.compute_one(windows.shape, position, name="max_pool_indices", axes=windows.names),
    ]


def _reference_max_pool_indices(
    attrs: MaxPoolIndicesAttrs, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    values = _reference_max_pool(attrs.pool, x)
    spatial = np.arange(prod(x.shape[2:])).reshape(
        x.shape[2:], order="F" if attrs.column_major else "C"
    )
    start = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2]) * spatial.size
    places = start.reshape(*start.shape, *[1] * spatial.ndim) + spatial
    axes = pool_axes(attrs.pool, x.shape[2:])
    outputs = known(_outputs(attrs.pool, axes))
    missing = np.iinfo(np.int64).max
    data = _padded_for(axes, outputs, x, dt.min_value(dt.from_numpy(x.dtype)))
    places = _padded_for(axes, outputs, places, missing)
    result = np.full(values.shape, missing)
    at_all = zip(tap_views(data, axes, outputs), tap_views(places, axes, outputs), strict=True)
    for (_, value), (_, place) in at_all:
        found = (value == values) | np.isnan(value)
        result = np.minimum(result, np.where(found, place, missing))
    return values, result


def _compute_avg_pool(attrs: PoolAttrs, x: te.Tensor) -> list[te.Tensor]:
    windows = _Windows(attrs, x)
    wide = accumulator(x.dtype)

    def summed(*i: Expr) -> Expr:
        value = windows.read(i, te.const(0.0, x.dtype))
        return te.sum(cast(value, wide), axis=list(windows.taps))

    total = te.compute_one(windows.shape, summed, name="pool_sum", axes=windows.names)

    def mean(*i: Expr) -> Expr:
        _, outputs, _ = windows.split(i)
        count = te.const(1)
        for axis, extent, o in zip(windows.axes, windows.shape[2:], outputs, strict=False):
            count = _times(count, _counted(axis, extent, o, attrs.count_include_pad))
        return cast(total[i] / cast(count, wide), x.dtype)

    return [total, te.compute_one(windows.shape, mean, name="avg_pool", axes=windows.names)]


def _times(a: Expr, b: Expr) -> Expr:
    x, y = int_value(a), int_value(b)
    if x is not None and y is not None:
        return te.const(x * y)
    return b if x == 1 else a if y == 1 else a * b


def _counted(axis: WindowAxis, outputs: Dim, window: Expr, include_pad: bool) -> Expr:
    """Return how many taps of a window count in its mean: those from `low` to below `high`."""
    low, high = (0, grown(axis.size, axis.before + axis.after))
    if not include_pad:
        low, high = axis.before, grown(axis.size, axis.before)
    start = scaled(window, axis.stride)
    first, last = te.const(0), te.const(axis.kernel)
    if low > 0:
        first = te.max(first, _steps(low - start, axis.dilation))
    if _hangs_over(replace(axis, size=high, before=0), outputs):
        last = te.min(last, _steps(high - start, axis.dilation))
    if first is te.const(0):
        return last
    return te.max(last - first, 1)


def _steps(distance: Expr, dilation: int) -> Expr:
    """Return how many steps of `dilation` cover a distance (rounded up)."""
    return distance if dilation == 1 else te.floordiv(distance + (dilation - 1), dilation)


def _moved(attrs: PoolAttrs, x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, -1, 2) if attrs.layout == "NCc" else x


def _padded_for(
    axes: Sequence[WindowAxis], outputs: Sequence[int], x: np.ndarray, value: object
) -> np.ndarray:
    """Return `x` with its last dimensions padded so that every window can be read."""
    width = [(0, 0)] * (x.ndim - len(axes))
    for axis, size, count in zip(axes, known(a.size for a in axes), outputs, strict=True):
        needed = (count - 1) * axis.stride + axis.extent - axis.before - size
        width.append((axis.before, max(axis.after, needed)))
    return np.pad(x, width, constant_values=value)  # type: ignore[call-overload, no-any-return]


def _reference_max_pool(attrs: PoolAttrs, x: np.ndarray) -> np.ndarray:
    data = _moved(attrs, x)
    axes = pool_axes(attrs, data.shape[data.ndim - len(attrs.kernel) :])
    outputs = known(_outputs(attrs, axes))
    lowest = dt.min_value(dt.from_numpy(x.dtype))
    data = _padded_for(axes, outputs, data, lowest)
    result = np.full((*data.shape[: -len(axes)], *outputs), lowest, x.dtype)
    for _, view in tap_views(data, axes, outputs):
        result = np.maximum(result, view)
    return np.moveaxis(result, 2, -1) if attrs.layout == "NCc" else result


def _reference_avg_pool(attrs: PoolAttrs, x: np.ndarray) -> np.ndarray:
    data = _moved(attrs, x)
    axes = pool_axes(attrs, data.shape[data.ndim - len(attrs.kernel) :])
    outputs = known(_outputs(attrs, axes))
    counted = np.ones(data.shape[data.ndim - len(axes) :])
    if attrs.count_include_pad:
        counted = np.pad(counted, [(a.before, a.after) for a in axes], constant_values=1.0)
        inner = [replace(a, size=a.size + a.before + a.after, before=0, after=0) for a in axes]
        counted = _padded_for(inner, outputs, counted, 0.0)
    else:
        counted = _padded_for(axes, outputs, counted, 0.0)
    data = _padded_for(axes, outputs, in_float64(data), 0.0)
    total = np.zeros((*data.shape[: -len(axes)], *outputs))
    count = np.zeros(tuple(outputs))
    for _, view in tap_views(data, axes, outputs):
        total += view
    for _, view in tap_views(counted, axes, outputs):
        count += view
    result: np.ndarray = (total / np.maximum(count, 1.0)).astype(x.dtype)
    return np.moveaxis(result, 2, -1) if attrs.layout == "NCc" else result


def _flops_pool(attrs: PoolAttrs, x: Type) -> Dim:
    return _infer_pool(attrs, x).elements * prod(attrs.kernel)


def _examples(*dtypes: str) -> tuple[Example, ...]:
    same: dict[str, object] = {"kernel": (3, 3), "pads_before": (1, 1), "pads_after": (1, 1)}
    half: dict[str, object] = {"strides": (2, 2)}
    shapes: tuple[tuple[tuple[int, ...], dict[str, object]], ...] = (
        ((1, 3, 8, 8), {"kernel": (2, 2), **half}),
        ((2, 1, 1, 1), {"kernel": (1, 1)}),
        ((1, 2, 7, 9), same),
        ((1, 2, 11, 13), {**same, **half}),
        ((1, 2, 12, 10), {"kernel": (3, 2), **half, "out_sizes": (6, 5)}),
        ((1, 2, 7, 7), {**same, **half, "pads_after": (0, 2), "out_sizes": (4, 4)}),
        ((1, 2, 9, 9), {"kernel": (2, 3), "dilations": (3, 2), "pads_before": (1, 2)}),
        ((2, 3, 10), {"kernel": (4,), "strides": (3,), "pads_before": (2,), "pads_after": (1,)}),
        ((1, 2, 4, 5, 6), {"kernel": (2, 3, 2), "strides": (2, 1, 2)}),
        ((1, 2, 7, 7, 8), {**same, **half, "layout": "NCc"}),
    )
    plain = tuple(Example((shape,), attrs) for shape, attrs in shapes)
    typed = tuple(Example(((1, 2, 7, 7),), {**same, **half}, (t,), -9, 9) for t in dtypes)
    return plain + typed


max_pool: Operator[PoolAttrs] = register(
    Operator(
        name="max_pool",
        infer=_infer_pool,
        reference=_reference_max_pool,
        compute=_compute_max_pool,
        rules=_pool_rules,
        attrs_type=PoolAttrs,
        fusion=Fusion.ANCHOR,
        schedule={"cpu": schedule_pool},
        flops=_flops_pool,
        examples=_examples("float16", "float64", "int8", "int32"),
    )
)

max_pool_indices: Operator[MaxPoolIndicesAttrs] = register(
    # The second result is where the value stands in the flattened input.
    Operator(
        name="max_pool_indices",
        infer=_infer_max_pool_indices,
        reference=_reference_max_pool_indices,
        compute=_compute_max_pool_indices,
        rules=lambda a, result, x: _pool_rules(a.pool, result, x),
        attrs_type=MaxPoolIndicesAttrs,
        fusion=Fusion.OPAQUE,
        examples=(
            Example(((2, 2, 7, 9),), {"kernel": (3, 3), "strides": (2, 2), "pads_before": (1, 1)}),
            Example(((1, 2, 6, 8),), {"kernel": (2, 2), "column_major": True}),
            Example(((1, 2, 9),), {"kernel": (3,), "dilations": (2,), "pads_after": (2,)}),
            Example(((1, 2, 6, 6),), {"kernel": (2, 2)}, ("int8",), -3, 3),
        ),
    )
)

avg_pool: Operator[PoolAttrs] = register(
    Operator(
        name="avg_pool",
        infer=_infer_avg_pool,
        reference=_reference_avg_pool,
        compute=_compute_avg_pool,
        rules=_pool_rules,
        attrs_type=PoolAttrs,
        fusion=Fusion.ANCHOR,
        schedule={"cpu": schedule_pool},
        flops=_flops_pool,
        examples=(
            *_examples("float64"),
            Example(
                ((1, 2, 7, 7),),
                {
                    "kernel": (3, 3),
                    "pads_before": (1, 2),
                    "pads_after": (2, 1),
                    "strides": (2, 2),
                    "out_sizes": (4, 4),
                    "count_include_pad": True,
                },
            ),
            Example(
                ((1, 2, 9, 9),),
                {"kernel": (3, 3), "strides": (2, 2)},
                ("float16",),
                rtol=1e-3,
                atol=1e-3,
            ),
        ),
    )
)
