# SPDX-License-Identifier: Apache-2.0
"""Convolutions and transposed convolutions over any number of spatial axes.

No convolution here takes a bias: it is an addition of its own, which fusion puts on the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from treadle import te
from treadle.dtype import to_numpy
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule
from treadle.graph.types import Dim, TensorType, Type, tensor_type
from treadle.ops.accumulate import (
    narrowed,
    product,
    product_example,
    reference_factors,
    result_type,
)
from treadle.ops.axis_names import image_axes
from treadle.ops.numeric import dims_of
from treadle.ops.schedules.plain_conv import schedule_plain_conv
from treadle.ops.window import (
    WindowAxis,
    grown,
    kernel_axes,
    known,
    pad_array,
    pad_stage,
    per_axis,
    positions,
    scaled,
    shifted,
    tap_views,
    whole_rules,
    window_axes,
)


@dataclass(frozen=True, slots=True)
class ConvAttrs(Attrs):
    """How the window moves, one entry per spatial axis; empty means 1 (0 for pads) everywhere.

    `out_dtype` is the element type of the result; empty: that of the factors, int32 of bytes.
    """

    strides: tuple[int, ...] = ()
    pads_before: tuple[int, ...] = ()
    pads_after: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1
    out_dtype: str = ""


def conv_axes(
    attrs: ConvAttrs, sizes: Sequence[Dim], kernel: Sequence[int]
) -> tuple[WindowAxis, ...]:
    """Return the window axes of a convolution over spatial extents `sizes`."""
    return window_axes(
        sizes, kernel, attrs.strides, attrs.pads_before, attrs.pads_after, attrs.dilations
    )


def _check_ranks(x: TensorType, w: TensorType, x_ndim: int, w_ndim: int, layout: str) -> None:
    if x.ndim != x_ndim or w.ndim != w_ndim:
        raise TypeMismatch(f"the data {x} and weights {w} are not {layout}")


def check_factors(x: TensorType, w: TensorType, x_ndim: int, w_ndim: int, layout: str) -> None:
    """Raise TypeMismatch unless data and weights have these ranks and one numeric type."""
    _check_ranks(x, w, x_ndim, w_ndim, layout)
    if x.dtype != w.dtype:
        raise TypeMismatch(f"the data {x} and weights {w} have different element types")
    if x.dtype == "bool":
        raise TypeMismatch("a convolution of bool values is not defined", hint="cast them first")


def check_groups(groups: int, channels: int, filters: int) -> None:
    """Raise TypeMismatch unless channels (or blocks of them) split into groups."""
    if groups < 1 or channels % groups or filters % groups:
        raise TypeMismatch(
            f"{channels} input and {filters} output channels do not split into {groups} groups"
        )


def known_extent(x: TensorType, dimension: int, what: str) -> int:
    """Return an extent that must be an int; `what` names it in the error."""
    extent = x.shape[dimension]
    if not isinstance(extent, int):
        raise TypeMismatch(f"the {what} of {x} must be a known number, not {extent}")
    return extent


def infer_conv(attrs: ConvAttrs, x: Type, w: Type) -> TensorType:
    """Return the type of a convolution. Raises: TypeMismatch where the factors do not fit."""
    data, weights = tensor_type(x), tensor_type(w)
    rank = max(data.ndim, 3)
    _check_ranks(data, weights, rank, rank, "[n, c, *spatial] and [oc, c/groups, *kernel]")
    dtype = result_type(data.dtype, weights.dtype, attrs.out_dtype)
    filters, per_group, *kernel = weights.static_shape
    channels = known_extent(data, 1, "channels")
    check_groups(attrs.groups, channels, filters)
    if channels != per_group * attrs.groups:
        raise TypeMismatch(
            f"the weights {weights} take {per_group} channels in each of {attrs.groups} groups, "
            f"the data {data} has {channels}"
        )
    axes = conv_axes(attrs, data.shape[2:], kernel)
    return TensorType((data.shape[0], filters, *(a.out for a in axes)), dtype)


def conv_rules(attrs: ConvAttrs, result: Type, x: Type, w: Type) -> Iterator[SizeRule]:
    """Return what sizes known only at run time must satisfy."""
    kernel = tensor_type(w).static_shape[2:]
    return whole_rules(conv_axes(attrs, tensor_type(x).shape[2:], kernel))


def padded(x: te.Tensor, axes: Sequence[WindowAxis], *, trailing: int = 0) -> te.Tensor | None:
    """Return the pad stage of [n, c, *spatial] data with `trailing` further dimensions."""
    before = (0, 0, *(a.before for a in axes), *(0,) * trailing)
    after = (0, 0, *(a.after for a in axes), *(0,) * trailing)
    return pad_stage(x, before, after)


def stages(pad: te.Tensor | None, total: te.Tensor, dtype: str) -> list[te.Tensor]:
    """Return the stages of a convolution: padding if any, the sum, the cast to `dtype` if any."""
    rest = narrowed(total, dtype, f"{total.name}_cast")
    return rest if pad is None else [pad, *rest]


def _compute_conv(attrs: ConvAttrs, x: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    filters, per_group, *kernel = TensorType(w.shape, w.dtype).static_shape
    axes = conv_axes(attrs, dims_of(x)[2:], kernel)
    pad = padded(x, axes)
    source = x if pad is None else pad
    ic = te.reduce_axis((0, per_group), "ic")
    taps = kernel_axes(kernel)

    def element(n: Expr, oc: Expr, *o: Expr) -> Expr:
        channel = input_channel(oc, ic, filters, attrs.groups, per_group)
        at = (n, channel, *positions(axes, o, taps))
        return te.sum(product(source[at], w[(oc, ic, *taps)], out), axis=[ic, *taps])

    out = result_type(x.dtype, w.dtype, attrs.out_dtype)
    shape, names = (x.shape[0], filters, *(a.out for a in axes)), image_axes(len(axes))
    total = te.compute_one(shape, element, name="conv", axes=names)
    return stages(pad, total, out)


def input_channel(oc: Expr, ic: Expr, filters: int, groups: int, per_group: int) -> Expr:
    """Return the input channel that output channel `oc` reads as number `ic` of its group."""
    if groups == 1:
        return ic
    group = oc if filters == groups else te.floordiv(oc, filters // groups)
    return group if per_group == 1 else group * per_group + ic


def reference_conv(attrs: ConvAttrs, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the convolution of arrays: one matrix product per tap of the window."""
    axes = conv_axes(attrs, x.shape[2:], w.shape[2:])
    outputs = known(a.out for a in axes)
    g, out = attrs.groups, result_type(x.dtype.name, w.dtype.name, attrs.out_dtype)
    factor, weights = reference_factors(x, w, out)
    data = pad_array(factor, 2, axes, 0)
    weights = weights.reshape(g, w.shape[0] // g, *w.shape[1:])
    result = np.zeros((x.shape[0], g, w.shape[0] // g, prod(outputs)), data.dtype)
    for tap, view in tap_views(data, axes, outputs):
        rows = np.ascontiguousarray(view).reshape(x.shape[0], g, w.shape[1], prod(outputs))
        result += _at_tap(weights, tap) @ rows
    return result.reshape(x.shape[0], w.shape[0], *outputs).astype(to_numpy(out))


def _at_tap(weights: np.ndarray, tap: tuple[int, ...]) -> np.ndarray:
    """Return the weights [..., *kernel] of one tap."""
    lead = (slice(None),) * (weights.ndim - len(tap))
    return weights[lead + tap]


def flops_conv(attrs: ConvAttrs, x: Type, w: Type) -> Dim:
    """Return the additions and multiplications of a convolution."""
    out = infer_conv(attrs, x, w)
    return 2 * out.elements * prod(tensor_type(w).static_shape[1:])


def _conv_examples() -> tuple[Example, ...]:
    same = {"pads_before": (1, 1), "pads_after": (1, 1)}
    f16, f64 = ("float16", "float16"), ("float64", "float64")
    return (
        product_example(((1, 3, 8, 8), (4, 3, 3, 3))),
        product_example(((1, 1, 1, 1), (1, 1, 1, 1))),
        product_example(((2, 3, 9, 7), (5, 3, 3, 3)), same),
        product_example(((1, 3, 17, 17), (8, 3, 7, 7)), {**padding(3), "strides": (2, 2)}),
        product_example(((1, 16, 7, 7), (8, 16, 1, 1))),
        product_example(((1, 16, 7, 7), (8, 16, 1, 1)), {"strides": (2, 2)}),
        product_example(((1, 4, 11, 9), (6, 2, 3, 2)), {"groups": 2, "dilations": (2, 3)}),
        product_example(((2, 6, 8, 8), (6, 1, 3, 3)), {**same, "groups": 6}),
        product_example(((1, 3, 8, 8), (6, 1, 3, 3)), {**same, "groups": 3, "strides": (2, 1)}),
        product_example(
            ((1, 2, 5, 6), (3, 2, 3, 2)), {"pads_before": (0, 1), "pads_after": (2, 0)}
        ),
        product_example(((2, 3, 12), (4, 3, 5)), {"pads_before": (2,), "pads_after": (2,)}),
        product_example(((1, 2, 5, 6, 7), (3, 2, 3, 2, 3)), {"strides": (1, 2, 2)}),
        product_example(((1, 4, 6, 6), (4, 4, 3, 3)), same, f16, rtol=2e-3, atol=2e-3),
        product_example(((1, 4, 6, 6), (4, 4, 3, 3)), same, f64),
        product_example(((1, 4, 6, 6), (4, 4, 3, 3)), same, ("int32", "int32"), low=-9, high=9),
        product_example(((1, 4, 6, 6), (4, 4, 3, 3)), same, ("int8", "int8"), low=-128, high=128),
        product_example(((1, 4, 6, 6), (4, 4, 3, 3)), same, ("uint8", "int8"), low=0, high=120),
        product_example(((1, 4, 6, 6), (4, 4, 3, 3)), {**same, "out_dtype": "float32"}, f16),
        product_example(
            ((1, 4, 6, 6), (4, 4, 3, 3)), {"out_dtype": "float32"}, ("bfloat16", "bfloat16")
        ),
    )


def padding(amount: int) -> dict[str, tuple[int, int]]:
    """Return the attributes of two spatial axes padded alike on all sides (for examples)."""
    return {"pads_before": (amount, amount), "pads_after": (amount, amount)}


conv: Operator[ConvAttrs] = register(
    Operator(
        name="conv",
        infer=infer_conv,
        reference=reference_conv,
        compute=_compute_conv,
        rules=conv_rules,
        attrs_type=ConvAttrs,
        fusion=Fusion.ANCHOR,
        schedule={"cpu": schedule_plain_conv},
        flops=flops_conv,
        flushes_subnormals=True,
        examples=_conv_examples(),
    )
)


@dataclass(frozen=True, slots=True)
class ConvTransposeAttrs(Attrs):
    """As `ConvAttrs`, of the convolution that this is the gradient of.

    Pads take away from the output (negative ones add to it); `output_padding` adds to its end.
    """

    strides: tuple[int, ...] = ()
    pads_before: tuple[int, ...] = ()
    pads_after: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1
    output_padding: tuple[int, ...] = ()
    out_dtype: str = ""


@dataclass(frozen=True, slots=True)
class TransposedAxis:
    """One spatial axis of a transposed convolution, written as a convolution per phase.

    Output o is touched by tap k of input i where o + before = i * stride + k * dilation. So of a
    kernel only each stride-th tap meets an output: `phase + t * stride`, where `phase` is
    (o + before) mod stride, and inputs are read in order along `step` (o + before) // stride. No
    product with a zero put between inputs is ever made. With both a stride and a dilation the taps
    are first spread out (`spread`) and then have no dilation.
    """

    size: Dim
    kernel: int
    stride: int
    before: int
    after: int
    dilation: int
    more: int

    @property
    def out(self) -> Dim:
        """The extent of the output."""
        rest = (self.kernel - 1) * self.dilation + 1 - self.before - self.after + self.more
        if isinstance(self.size, int):
            extent = (self.size - 1) * self.stride + rest
            if extent < 1:
                raise TypeMismatch(
                    f"pads of {self.before} and {self.after} leave nothing of an output axis",
                    hint="pads must be smaller than the output",
                )
            return extent
        return grown(scaled(self.size, self.stride), rest - self.stride)

    @property
    def spread(self) -> int:
        """The distance of the taps in the kernel that is read."""
        return self.dilation if self.stride > 1 else 1

    @property
    def taps(self) -> int:
        """How many taps of the kernel meet one output."""
        return -(-((self.kernel - 1) * self.spread + 1) // self.stride)

    @property
    def step(self) -> int:
        """How many inputs lie between two taps that meet one output."""
        return self.dilation if self.stride == 1 else 1

    @property
    def pads(self) -> tuple[int, int]:
        """The zeros the input needs at its ends so that every read is inside."""
        before = max(0, (self.taps - 1) * self.step - self.first)
        return before, max(0, self.reach)

    @property
    def reach(self) -> int:
        """How many steps the last output lies behind the last input (before it: negative)."""
        return self._last // self.stride

    @property
    def _last(self) -> int:
        """How far the last output lies behind the first element of the last input's kernel."""
        return (self.kernel - 1) * self.dilation - self.after + self.more

    @property
    def spread_kernel(self) -> int:
        """The extent of the kernel that is read: whole strides of taps, zeros between and after."""
        return self.taps * self.stride

    @property
    def first(self) -> int:
        """Which step of the stride the first output belongs to."""
        return self.before // self.stride

    @property
    def steps(self) -> Dim:
        """How many steps of the stride the outputs span."""
        return grown(self.size, self.reach - self.first)

    def position(self, step: Expr, tap: Expr) -> Expr:
        """Return the index into the padded input that tap number `tap` meets in a step."""
        return shifted(step - scaled(tap, self.step), -(self.pads[0] + self.first))

    def element(self, phase: Expr | None, tap: Expr) -> Expr:
        """Return the element of the kernel that is tap number `tap` of a phase (None: of all)."""
        return tap if phase is None else phase + tap * self.stride

    def split(self, output: Expr) -> tuple[Expr | None, Expr]:
        """Return the phase (None where there is only one) and the step of an output."""
        if self.stride == 1:
            return None, output
        at = shifted(output, -self.before)
        return te.floormod(at, self.stride), shifted(te.floordiv(at, self.stride), self.first)


def transposed_axes(
    attrs: ConvTransposeAttrs, sizes: Sequence[Dim], kernel: Sequence[int]
) -> tuple[TransposedAxis, ...]:
    """Return the axes of a transposed convolution over spatial extents `sizes`."""
    n = len(sizes)
    return tuple(
        map(
            TransposedAxis,
            sizes,
            per_axis("kernel", kernel, n, least=1),
            per_axis("strides", attrs.strides, n, least=1),
            per_axis("pads_before", attrs.pads_before, n, least=None),
            per_axis("pads_after", attrs.pads_after, n, least=None),
            per_axis("dilations", attrs.dilations, n, least=1),
            per_axis("output_padding", attrs.output_padding, n, least=0),
        )
    )


def _infer_conv_transpose(attrs: ConvTransposeAttrs, x: Type, w: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(w)
    rank = max(data.ndim, 3)
    _check_ranks(data, weights, rank, rank, "[n, c, *spatial] and [c, oc/groups, *kernel]")
    dtype = result_type(data.dtype, weights.dtype, attrs.out_dtype)
    channels, per_group, *kernel = weights.static_shape
    check_groups(attrs.groups, channels, per_group * attrs.groups)
    if channels != known_extent(data, 1, "channels"):
        raise TypeMismatch(f"the weights {weights} and the data {data} differ in channels")
    axes = transposed_axes(attrs, data.shape[2:], kernel)
    return TensorType((data.shape[0], per_group * attrs.groups, *(a.out for a in axes)), dtype)


def _spread_weights(w: te.Tensor, axes: Sequence[TransposedAxis]) -> te.Tensor | None:
    """Return the stage that puts zeros between and after the taps; None where there are none."""
    if all(a.spread_kernel == a.kernel for a in axes):
        return None

    def element(c: Expr, oc: Expr, *k: Expr) -> Expr:
        checks: list[Expr] = []
        at: list[Expr] = []
        for axis, tap in zip(axes, k, strict=True):
            own = tap if axis.spread == 1 else te.floordiv(tap, axis.spread)
            if axis.spread > 1:
                checks.append(nodes.binary("eq", te.floormod(tap, axis.spread), 0))
            if axis.spread_kernel > axis.kernel:
                checks.append(own < axis.kernel)
            at.append(own)
        return te.if_then_else(te.all(*checks), w[(c, oc, *at)], te.const(0, w.dtype))

    shape = [*w.shape[:2], *(te.const(a.spread_kernel) for a in axes)]
    return te.compute_one(shape, element, name="spread_weights")


def _compute_conv_transpose(
    attrs: ConvTransposeAttrs, x: te.Tensor, w: te.Tensor
) -> list[te.Tensor]:
    channels, per_group, *kernel = TensorType(w.shape, w.dtype).static_shape
    axes = transposed_axes(attrs, dims_of(x)[2:], kernel)
    pad = pad_stage(x, (0, 0, *(a.pads[0] for a in axes)), (0, 0, *(a.pads[1] for a in axes)))
    spread = _spread_weights(w, axes)
    source, weights = x if pad is None else pad, w if spread is None else spread
    inputs, filters = channels // attrs.groups, per_group * attrs.groups
    ic = te.reduce_axis((0, inputs), "ic")
    taps = kernel_axes([a.taps for a in axes])

    phased = [k for k, a in enumerate(axes) if a.stride > 1]

    def element(n: Expr, oc: Expr, *i: Expr) -> Expr:
        phase, step = dict(zip(phased, i, strict=False)), i[len(phased) :]
        c = input_channel(oc, ic, filters, attrs.groups, inputs)
        own = oc if attrs.groups == 1 else te.floormod(oc, per_group)
        value = source[
            (n, c, *(a.position(q, t) for a, q, t in zip(axes, step, taps, strict=True)))
        ]
        tap = [a.element(phase.get(k), t) for k, (a, t) in enumerate(zip(axes, taps, strict=True))]
        return te.sum(product(value, weights[(c, own, *tap)], out), axis=[ic, *taps])

    out = result_type(x.dtype, w.dtype, attrs.out_dtype)
    strides = [axes[k].stride for k in phased]
    shape = (x.shape[0], filters, *strides, *(a.steps for a in axes))
    name = "conv_transpose.phases" if phased else "conv_transpose"
    total = te.compute_one(shape, element, name=name)
    before = ([] if spread is None else [spread]) + ([] if pad is None else [pad])
    if not phased:
        return before + narrowed(total, out, "conv_transpose_cast")
    return [*before, total, _interleaved(total, axes, out)]


def _interleaved(total: te.Tensor, axes: Sequence[TransposedAxis], dtype: str) -> te.Tensor:
    """Return the stage that puts the sums [n, oc, *phases, *steps] in the order of the output."""

    def element(n: Expr, oc: Expr, *o: Expr) -> Expr:
        parts = [a.split(i) for a, i in zip(axes, o, strict=True)]
        phases = [p for p, _ in parts if p is not None]
        return nodes.cast(total[(n, oc, *phases, *(q for _, q in parts))], dtype)

    shape = (*total.shape[:2], *(a.out for a in axes))
    names = image_axes(len(axes))
    return te.compute_one(shape, element, name="conv_transpose", axes=names)


def _reference_conv_transpose(
    attrs: ConvTransposeAttrs, x: np.ndarray, w: np.ndarray
) -> np.ndarray:
    axes = transposed_axes(attrs, x.shape[2:], w.shape[2:])
    n, g, filters = x.shape[0], attrs.groups, w.shape[1]
    out = result_type(x.dtype.name, w.dtype.name, attrs.out_dtype)
    data, weights = reference_factors(x, w, out)
    data = data.reshape(n, g, x.shape[1] // g, prod(x.shape[2:]))
    weights = weights.reshape(g, w.shape[0] // g, *w.shape[1:])
    windows = [
        WindowAxis((s - 1) * a.stride + (a.kernel - 1) * a.dilation + 1, a.kernel, a.stride, 0, 0,
                   a.dilation)
        for s, a in zip(x.shape[2:], axes, strict=True)
    ]  # fmt: skip
    full = np.zeros((n, g, filters, *known(a.size for a in windows)), data.dtype)
    for tap, view in tap_views(full, windows, x.shape[2:]):
        view += (_at_tap(weights, tap).swapaxes(1, 2) @ data).reshape(view.shape)
    full = full.reshape(n, g * filters, *full.shape[3:])
    before = [(0, 0), (0, 0), *((max(0, -a.before), max(0, a.more - a.after)) for a in axes)]
    starts = [max(0, a.before) for a in axes]
    kept = [slice(s, s + o) for s, o in zip(starts, known(a.out for a in axes), strict=True)]
    return np.pad(full, before)[(slice(None), slice(None), *kept)].astype(to_numpy(out))


def _flops_conv_transpose(attrs: ConvTransposeAttrs, x: Type, w: Type) -> Dim:
    return 2 * tensor_type(x).elements * prod(tensor_type(w).static_shape[1:])


conv_transpose: Operator[ConvTransposeAttrs] = register(
    Operator(
        name="conv_transpose",
        infer=_infer_conv_transpose,
        reference=_reference_conv_transpose,
        compute=_compute_conv_transpose,
        attrs_type=ConvTransposeAttrs,
        fusion=Fusion.ANCHOR,
        schedule={"cpu": schedule_plain_conv},
        flops=_flops_conv_transpose,
        flushes_subnormals=True,
        examples=(
            product_example(((1, 3, 5, 6), (3, 4, 3, 3))),
            product_example(((2, 3, 5, 6), (3, 4, 2, 2)), {"strides": (2, 2)}),
            product_example(
                ((1, 4, 5, 5), (4, 2, 4, 4)), {"strides": (2, 2), **padding(1), "groups": 2}
            ),
            product_example(
                ((1, 2, 4, 4), (2, 3, 3, 3)),
                {"strides": (2, 2), **padding(1), "output_padding": (1, 1)},
            ),
            product_example(((1, 2, 4, 4), (2, 1, 2, 3)), {"strides": (3, 2), "dilations": (2, 1)}),
            product_example(
                ((1, 2, 4, 5), (2, 3, 3, 2)), {"dilations": (2, 3), "pads_before": (1, 0)}
            ),
            product_example(((1, 4, 7), (4, 1, 3)), {"groups": 4, "pads_after": (1,)}),
            product_example(
                ((1, 3, 5, 6), (3, 4, 2, 2)), {"strides": (2, 2)}, ("uint8", "int8"), low=0, high=99
            ),
            product_example(
                ((1, 3, 5, 6), (3, 4, 3, 3)), {"out_dtype": "float32"}, ("float16", "float16")
            ),
            product_example(((1, 2, 3, 3, 2), (2, 2, 2, 2, 2)), {"strides": (1, 2, 2)}),
            product_example(
                ((1, 4, 4, 4), (4, 4, 3, 3)),
                {"strides": (2, 2)},
                ("float16", "float16"),
                rtol=2e-3,
                atol=2e-3,
            ),
        ),
    )
)
