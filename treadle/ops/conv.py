# SPDX-License-Identifier: Apache-2.0
"""Convolutions: plain, transposed, and in the channel-blocked layout NCHWc.

No convolution here takes a bias: it is an addition of its own, which fusion puts on the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.accumulate import narrowed, product, widened
from treadle.ops.window import (
    WindowAxis,
    dims_of,
    kernel_axes,
    pad_array,
    pad_stage,
    tap_views,
    window_axes,
)
from treadle.te import tensor as te


@dataclass(frozen=True, slots=True)
class ConvAttrs(Attrs):
    """How the window moves, one entry per spatial axis; empty means 1 (0 for pads) everywhere."""

    strides: tuple[int, ...] = ()
    pads_before: tuple[int, ...] = ()
    pads_after: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1


def conv_axes(
    attrs: ConvAttrs, sizes: Sequence[Dim], kernel: Sequence[int]
) -> tuple[WindowAxis, ...]:
    """Return the window axes of a convolution over spatial extents `sizes`."""
    return window_axes(
        sizes, kernel, attrs.strides, attrs.pads_before, attrs.pads_after, attrs.dilations
    )


def _check_factors(x: TensorType, w: TensorType, x_ndim: int, w_ndim: int, layout: str) -> None:
    if x.ndim != x_ndim or w.ndim != w_ndim:
        raise TypeMismatch(f"the data {x} and weights {w} are not {layout}")
    if x.dtype != w.dtype:
        raise TypeMismatch(f"the data {x} and weights {w} have different element types")
    if x.dtype == "bool":
        raise TypeMismatch("a convolution of bool values is not defined", hint="cast them first")


def _check_groups(groups: int, channels: int, filters: int) -> None:
    if groups < 1 or channels % groups or filters % groups:
        raise TypeMismatch(
            f"{channels} input and {filters} output channels do not split into {groups} groups"
        )


def _known(x: TensorType, dimension: int, what: str) -> int:
    extent = x.shape[dimension]
    if not isinstance(extent, int):
        raise TypeMismatch(f"the {what} of {x} must be a known number, not {extent}")
    return extent


def _infer_conv(attrs: ConvAttrs, x: Type, w: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(w)
    rank = max(data.ndim, 3)
    _check_factors(data, weights, rank, rank, "[n, c, *spatial] and [oc, c/groups, *kernel]")
    filters, per_group, *kernel = weights.static_shape
    channels = _known(data, 1, "channels")
    _check_groups(attrs.groups, channels, filters)
    if channels != per_group * attrs.groups:
        raise TypeMismatch(
            f"the weights {weights} take {per_group} channels in each of {attrs.groups} groups, "
            f"the data {data} has {channels}"
        )
    axes = conv_axes(attrs, data.shape[2:], kernel)
    return data.with_shape((data.shape[0], filters, *(a.out for a in axes)))


def _positions(
    axes: Sequence[WindowAxis], windows: Sequence[Expr], taps: Sequence[Expr]
) -> tuple[Expr, ...]:
    return tuple(a.position(o, k) for a, o, k in zip(axes, windows, taps, strict=True))


def _padded(x: te.Tensor, axes: Sequence[WindowAxis], *, trailing: int = 0) -> te.Tensor | None:
    """Return the pad stage of [n, c, *spatial] data with `trailing` further dimensions."""
    before = (0, 0, *(a.before for a in axes), *(0,) * trailing)
    after = (0, 0, *(a.after for a in axes), *(0,) * trailing)
    return pad_stage(x, before, after)


def _stages(pad: te.Tensor | None, total: te.Tensor, dtype: str) -> list[te.Tensor]:
    rest = narrowed(total, dtype, f"{total.name}_cast")
    return rest if pad is None else [pad, *rest]


def _compute_conv(attrs: ConvAttrs, x: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    filters, per_group, *kernel = TensorType(w.shape, w.dtype).static_shape
    axes = conv_axes(attrs, dims_of(x)[2:], kernel)
    pad = _padded(x, axes)
    source = x if pad is None else pad
    ic = te.reduce_axis((0, per_group), "ic")
    taps = kernel_axes(kernel)

    def element(n: Expr, oc: Expr, *o: Expr) -> Expr:
        channel = _group_start(oc, filters, attrs.groups, per_group)
        at = (n, _plus(channel, ic, per_group), *_positions(axes, o, taps))
        return te.sum(product(source[at], w[(oc, ic, *taps)]), axis=[ic, *taps])

    total = te.compute_one((x.shape[0], filters, *(a.out for a in axes)), element, name="conv")
    return _stages(pad, total, x.dtype)


def _group_start(oc: Expr, filters: int, groups: int, per_group: int) -> Expr | None:
    """Return the first input channel that output channel `oc` reads; None for channel 0."""
    if groups == 1:
        return None
    group = oc if filters == groups else te.floordiv(oc, filters // groups)
    return group if per_group == 1 else group * per_group


def _plus(start: Expr | None, offset: Expr, extent: int) -> Expr:
    """Return start + offset where offset runs over [0, extent)."""
    if start is None:
        return offset
    return start if extent == 1 else start + offset


def _reference_conv(attrs: ConvAttrs, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    axes = conv_axes(attrs, x.shape[2:], w.shape[2:])
    outputs = [int(str(a.out)) for a in axes]
    g = attrs.groups
    data = pad_array(widened(x), 2, axes, 0)
    weights = widened(w).reshape(g, w.shape[0] // g, *w.shape[1:])
    result = np.zeros((x.shape[0], g, w.shape[0] // g, prod(outputs)), data.dtype)
    for tap, view in tap_views(data, axes, outputs):
        rows = np.ascontiguousarray(view).reshape(x.shape[0], g, w.shape[1], prod(outputs))
        result += _at_tap(weights, tap) @ rows
    return result.reshape(x.shape[0], w.shape[0], *outputs).astype(x.dtype)


def _at_tap(weights: np.ndarray, tap: tuple[int, ...]) -> np.ndarray:
    """Return the weights [..., *kernel] of one tap."""
    lead = (slice(None),) * (weights.ndim - len(tap))
    return weights[lead + tap]


def _flops_conv(attrs: ConvAttrs, x: Type, w: Type) -> int:
    out = _infer_conv(attrs, x, w)
    return 2 * out.size * prod(tensor_type(w).static_shape[1:])


def _conv_examples() -> tuple[Example, ...]:
    same = {"pads_before": (1, 1), "pads_after": (1, 1)}
    f16, f64 = ("float16", "float16"), ("float64", "float64")
    return (
        Example(((1, 3, 8, 8), (4, 3, 3, 3))),
        Example(((1, 1, 1, 1), (1, 1, 1, 1))),
        Example(((2, 3, 9, 7), (5, 3, 3, 3)), same),
        Example(((1, 3, 17, 17), (8, 3, 7, 7)), {**_pads(3), "strides": (2, 2)}),
        Example(((1, 16, 7, 7), (8, 16, 1, 1))),
        Example(((1, 16, 7, 7), (8, 16, 1, 1)), {"strides": (2, 2)}),
        Example(((1, 4, 11, 9), (6, 2, 3, 2)), {"groups": 2, "dilations": (2, 3)}),
        Example(((2, 6, 8, 8), (6, 1, 3, 3)), {**same, "groups": 6}),
        Example(((1, 3, 8, 8), (6, 1, 3, 3)), {**same, "groups": 3, "strides": (2, 1)}),
        Example(((1, 2, 5, 6), (3, 2, 3, 2)), {"pads_before": (0, 1), "pads_after": (2, 0)}),
        Example(((2, 3, 12), (4, 3, 5)), {"pads_before": (2,), "pads_after": (2,)}),
        Example(((1, 2, 5, 6, 7), (3, 2, 3, 2, 3)), {"strides": (1, 2, 2)}),
        Example(((1, 4, 6, 6), (4, 4, 3, 3)), same, f16, rtol=2e-3, atol=2e-3),
        Example(((1, 4, 6, 6), (4, 4, 3, 3)), same, f64),
        Example(((1, 4, 6, 6), (4, 4, 3, 3)), same, ("int32", "int32"), low=-9, high=9),
    )


def _pads(amount: int) -> dict[str, tuple[int, int]]:
    return {"pads_before": (amount, amount), "pads_after": (amount, amount)}


conv: Operator[ConvAttrs] = register(
    Operator(
        name="conv",
        infer=_infer_conv,
        reference=_reference_conv,
        compute=_compute_conv,
        attrs_type=ConvAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops_conv,
        examples=_conv_examples(),
    )
)
