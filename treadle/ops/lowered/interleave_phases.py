# SPDX-License-Identifier: Apache-2.0
"""The phases of an image, computed one after the other, put in the order of the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import TensorType, Type, tensor_type
from treadle.ops.window import per_axis, shifted


@dataclass(frozen=True, slots=True)
class InterleaveAttrs(Attrs):
    """One entry per spatial axis; no `shifts` means 0 everywhere.

    Element o of a result of extent `sizes` is in phase (o + shift) mod stride, at place
    (o + shift) // stride of it.
    """

    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    shifts: tuple[int, ...] = ()


def _shifts(attrs: InterleaveAttrs) -> tuple[int, ...]:
    return per_axis("shifts", attrs.shifts, len(attrs.strides), least=0)


def _infer(attrs: InterleaveAttrs, x: Type) -> TensorType:
    data = tensor_type(x)
    rank = len(attrs.strides)
    per_axis("strides", attrs.strides, rank, least=1)
    per_axis("sizes", attrs.sizes, rank, least=1)
    phases, shape = prod(attrs.strides), data.static_shape
    if data.ndim < rank + 2 or shape[1] % phases:
        raise TypeMismatch(f"{data} does not hold {phases} phases [n, phases * c, *spatial, ...]")
    limits = zip(shape[2:], attrs.strides, attrs.sizes, _shifts(attrs), strict=False)
    if any(size + shift > held * stride for held, stride, size, shift in limits):
        raise TypeMismatch(f"the phases {data} do not reach over {list(attrs.sizes)} elements")
    return data.with_shape((shape[0], shape[1] // phases, *attrs.sizes, *shape[2 + rank :]))


def _compute(attrs: InterleaveAttrs, x: te.Tensor) -> te.Tensor:
    shape = _infer(attrs, TensorType(x.shape, x.dtype)).static_shape
    rank = len(attrs.strides)

    def element(n: Expr, c: Expr, *o: Expr) -> Expr:
        places: list[Expr] = []
        phase: Expr | None = None
        for axis, stride, shift in zip(o[:rank], attrs.strides, _shifts(attrs), strict=True):
            at = shifted(axis, -shift)
            if stride == 1:
                places.append(at)
                continue
            own = te.floormod(at, stride)
            phase = own if phase is None else phase * stride + own
            places.append(te.floordiv(at, stride))
        channel = c if phase is None else phase * shape[1] + c
        return x[(n, channel, *places, *o[rank:])]

    return te.compute_one(shape, element, name="interleave_phases")


def _reference(attrs: InterleaveAttrs, x: np.ndarray) -> np.ndarray:
    rank = len(attrs.strides)
    n, channels, *rest = x.shape
    split = x.reshape(n, *attrs.strides, channels // prod(attrs.strides), *rest)
    order: list[int] = [0, rank + 1]
    for k in range(rank):
        order += [rank + 2 + k, 1 + k]
    order += range(2 * rank + 2, split.ndim)
    steps: Sequence[int] = rest[:rank]
    whole = (s * k for s, k in zip(steps, attrs.strides, strict=True))
    image = split.transpose(order).reshape(n, split.shape[rank + 1], *whole, *rest[rank:])
    kept = (slice(s, s + o) for s, o in zip(_shifts(attrs), attrs.sizes, strict=True))
    return np.ascontiguousarray(image[(slice(None), slice(None), *kept)])


interleave_phases: Operator[InterleaveAttrs] = register(
    # [n, phases * c, *spatial, ...] -> [n, c, *sizes, ...]; the last axis' phases vary fastest.
    Operator(
        name="interleave_phases",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=InterleaveAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((2, 12, 3, 4),), {"strides": (2, 2), "sizes": (6, 8)}),
            Example(((1, 8, 3, 4, 8),), {"strides": (2, 2), "sizes": (4, 5), "shifts": (1, 2)}),
            Example(((1, 6, 3, 4),), {"strides": (3, 1), "sizes": (7, 4), "shifts": (2, 0)}),
            Example(((1, 6, 5),), {"strides": (2,), "sizes": (9,), "shifts": (1,)}),
            Example(((1, 8, 2, 2, 3, 4),), {"strides": (2, 2, 2), "sizes": (4, 4, 6)}),
        ),
    )
)
