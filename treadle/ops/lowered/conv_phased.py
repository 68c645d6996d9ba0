# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions in the channel-blocked layout, phase by phase.

Outputs that lie a stride apart are an ordinary convolution of the input with every stride-th tap of
the kernel: a phase. Each phase sums the taps it has, and is written to where its outputs lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as every
from math import prod

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, ExprLike
from treadle.graph.operator import Attrs, Fusion, Operator, register
from treadle.graph.types import (
    Dim,
    TensorType,
    Type,
    product_of,
    same_dim,
    tensor_type,
)
from treadle.ops.accumulate import product, product_example
from treadle.ops.axis_names import image_axes
from treadle.ops.conv import ConvAttrs, check_factors, known_extent
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc
from treadle.ops.schedules.conv import schedule_phased_conv
from treadle.ops.window import kernel_axes, per_axis, scaled, shifted


@dataclass(frozen=True, slots=True)
class PhasedConvAttrs(Attrs):
    """One entry per spatial axis; no `dilations` means 1 everywhere, no `shifts` 0.

    Output o of an axis, `sizes` of them, is in phase (o + shift) mod stride; tap t of it is element
    phase + (taps - 1 - t) * stride of a kernel of extent `kernel`, if that is below the extent, and
    meets input (o + shift) // stride + t * dilation. The input is padded as far as that reaches.
    """

    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    shifts: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PhasedAxis:
    """One spatial axis of `PhasedConvAttrs`."""

    stride: int
    size: int
    kernel: int
    shift: int
    dilation: int

    @property
    def taps(self) -> int:
        """The most taps that a phase has."""
        return -(-self.kernel // self.stride)

    @property
    def steps(self) -> int:
        """How many outputs the first phase has; others may have one less."""
        return -(-self.size // self.stride)

    @property
    def reach(self) -> int:
        """The inputs that are read when every phase has all `steps`."""
        last = (self.steps * self.stride - 1 + self.shift) // self.stride
        return last + (self.taps - 1) * self.dilation + 1

    def position(self, phase: Expr, step: Expr, tap: Expr) -> Expr:
        """Return the input that a tap of an output meets; `phase` is counted from output 0."""
        first = te.floordiv(shifted(phase, -self.shift), self.stride)
        return step + first + scaled(tap, self.dilation)

    def has_tap(self, phase: Expr, tap: Expr) -> Expr | None:
        """Return when a phase has a tap; None where every phase has all."""
        if self.kernel % self.stride == 0:
            return None
        own = te.floormod(shifted(phase, -self.shift), self.stride)
        return own + (self.taps - 1 - tap) * self.stride < self.kernel


def phased_axes(attrs: PhasedConvAttrs) -> tuple[PhasedAxis, ...]:
    """Return the axes that the attributes describe."""
    n = len(attrs.strides)
    return tuple(
        map(
            PhasedAxis,
            per_axis("strides", attrs.strides, n, least=1),
            per_axis("sizes", attrs.sizes, n, least=1),
            per_axis("kernel", attrs.kernel, n, least=1),
            per_axis("shifts", attrs.shifts, n, least=0),
            per_axis("dilations", attrs.dilations, n, least=1),
        )
    )


def _infer(attrs: PhasedConvAttrs, x: Type, w: Type) -> TensorType:
    data, weights = tensor_type(x), tensor_type(w)
    axes = phased_axes(attrs)
    rank = len(axes)
    layout = "[n, c/b, *spatial, b] and [oc/ob, *strides, ic/ib, *taps, ib, ob]"
    check_factors(data, weights, rank + 3, 2 * rank + 4, layout)
    filters, *rest = weights.static_shape
    strides, (chunks, *taps), (ib, ob) = rest[:rank], rest[rank:-2], rest[-2:]
    if strides != [a.stride for a in axes] or taps != [a.taps for a in axes]:
        raise TypeMismatch(f"the weights {weights} have other phases or taps than {attrs}")
    if not (same_dim(data.shape[1], chunks) and same_dim(data.shape[-1], ib)):
        raise TypeMismatch(f"the weights {weights} and the data {data} differ in channels")
    for k, axis in enumerate(axes):
        if known_extent(data, 2 + k, "image") != axis.reach:
            raise TypeMismatch(f"{axis.size} outputs need {axis.reach} inputs, the data is {data}")
    return data.with_shape((data.shape[0], filters, *(a.size for a in axes), ob))


def _compute(attrs: PhasedConvAttrs, x: te.Tensor, w: te.Tensor) -> list[te.Tensor]:
    axes = phased_axes(attrs)
    rank = len(axes)
    filters, *_, ib, ob = TensorType(w.shape, w.dtype).static_shape
    ic, icb = te.reduce_axis((0, x.shape[1]), "ic"), te.reduce_axis((0, ib), "icb")
    taps = kernel_axes([a.taps for a in axes])

    def element(n: Expr, *i: Expr) -> Expr:
        phases, oc, steps, ocb = i[:rank], i[rank], i[rank + 1 : -1], i[-1]
        parts = list(zip(axes, phases, steps, taps, strict=True))
        value = x[(n, ic, *(a.position(p, q, t) for a, p, q, t in parts), icb)]
        weight = w[(oc, *phases, ic, *taps, icb, ocb)]
        tests = [a.has_tap(p, t) for a, p, _, t in parts]
        there = te.all(*found) if (found := [c for c in tests if c is not None]) else None
        return te.sum(product(value, weight), axis=[ic, *taps, icb], where=there)

    steps = (a.steps for a in axes)
    extents: list[ExprLike] = [x.shape[0], *(a.stride for a in axes), filters, *steps, ob]
    total = te.compute_one(extents, element, name="phased_conv_nchwc.phases")

    def interleaved(n: Expr, oc: Expr, *o: Expr) -> Expr:
        *at, ocb = o
        phases = [te.floormod(i, a.stride) for i, a in zip(at, axes, strict=True)]
        steps = [te.floordiv(i, a.stride) for i, a in zip(at, axes, strict=True)]
        return nodes.cast(total[(n, *phases, oc, *steps, ocb)], x.dtype)

    shape: list[ExprLike] = [x.shape[0], filters, *(a.size for a in axes), ob]
    names = image_axes(len(axes), block="ocb")
    return [total, te.compute_one(shape, interleaved, name="phased_conv_nchwc", axes=names)]


def _reference(attrs: PhasedConvAttrs, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    axes = phased_axes(attrs)
    made = np.zeros((x.shape[0], w.shape[0], *(a.size for a in axes), w.shape[-1]), x.dtype)
    alone = ConvAttrs(dilations=tuple(a.dilation for a in axes))
    for phase in every(*(range(min(a.stride, a.size)) for a in axes)):
        there = np.zeros(w.shape[2 + len(axes) : -2], bool)
        there[np.ix_(*_taps_of(axes, phase))] = True
        weights = np.moveaxis(w, 0, len(axes))[phase] * there[..., None, None]
        first = [(p + a.shift) // a.stride for a, p in zip(axes, phase, strict=True)]
        seen = x[(slice(None), slice(None), *(slice(f, None) for f in first))]
        found = conv2d_nchwc.reference(alone, seen, weights)
        place = tuple(slice(p, None, a.stride) for a, p in zip(axes, phase, strict=True))
        kept = made[(slice(None), slice(None), *place)]
        kept[...] = found[tuple(slice(0, n) for n in kept.shape)]
    return made


def _taps_of(axes: Sequence[PhasedAxis], phase: Sequence[int]) -> Iterator[list[int]]:
    """Yield for every axis the taps that a phase has."""
    for a, p in zip(axes, phase, strict=True):
        own = (p + a.shift) % a.stride
        yield [t for t in range(a.taps) if own + (a.taps - 1 - t) * a.stride < a.kernel]


def _flops(attrs: PhasedConvAttrs, x: Type, w: Type) -> Dim:
    axes = phased_axes(attrs)
    filters, *_, ob = tensor_type(w).static_shape
    data = tensor_type(x)
    channels = product_of((data.shape[0], data.shape[1], data.shape[-1]))
    # Every input meets the kernel once, but for the border.
    steps = prod(a.size * a.kernel // a.stride for a in axes)
    return 2 * channels * filters * ob * steps


phased_conv_nchwc: Operator[PhasedConvAttrs] = register(
    Operator(
        name="phased_conv_nchwc",
        schedule={"cpu": schedule_phased_conv},
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=PhasedConvAttrs,
        fusion=Fusion.ANCHOR,
        flops=_flops,
        flushes_subnormals=True,
        examples=(
            product_example(
                ((2, 2, 4, 5, 4), (3, 2, 2, 2, 1, 1, 4, 8)),
                {"strides": (2, 2), "sizes": (8, 10), "kernel": (2, 2)},
            ),
            product_example(
                ((1, 2, 6, 9, 4), (2, 2, 2, 2, 2, 2, 4, 4)),
                {"strides": (2, 2), "sizes": (8, 13), "kernel": (4, 3), "shifts": (1, 1)},
            ),
            product_example(
                ((1, 2, 8, 8), (1, 3, 2, 2, 8, 4)),
                {"strides": (3,), "sizes": (16,), "kernel": (5,), "shifts": (1,)},
            ),
            product_example(
                ((1, 1, 3, 8, 4, 8), (1, 2, 1, 2, 1, 1, 3, 2, 8, 8)),
                {"strides": (2, 1, 2), "sizes": (5, 4, 6), "kernel": (2, 3, 3)}
                | {"dilations": (1, 2, 1)},
            ),
        ),
    )
)
