# SPDX-License-Identifier: Apache-2.0
"""Operators over symbolic sizes: sizes as a tensor, counting, and slices at symbolic positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import get_args

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, cast, convert, int_value, minimum
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import Rule, SizeRule
from treadle.graph.types import Dim, TensorType, Type, as_dim, normal_size, tensor_type
from treadle.ops.numeric import check_axis
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class SizesAttrs(Attrs):
    """The elements, in row-major order (any of them may be symbolic), and the shape they form."""

    values: tuple[Dim, ...]
    shape: tuple[int, ...] = ()


def _infer_sizes(a: SizesAttrs) -> Type:
    if prod(a.shape) != len(a.values):
        raise TypeMismatch(f"{len(a.values)} values do not form the shape {list(a.shape)}")
    return TensorType(a.shape, "int64")


def _sizes(a: SizesAttrs) -> Tensor:
    def element(*i: Expr) -> Expr:
        flat: Expr = Const.of(0)
        for position, extent in zip(i, a.shape, strict=True):
            flat = flat * extent + position
        value = convert(a.values[-1])
        for k in range(len(a.values) - 2, -1, -1):
            value = te.if_then_else(flat == Const.of(k), convert(a.values[k]), value)
        return value

    return te.compute_one(a.shape, element, "sizes")


def _known(values: Sequence[Dim]) -> list[int]:
    found = [int_value(v) for v in values]
    if None in found:
        raise TypeMismatch("the values of these sizes are not known before the model runs")
    return [v for v in found if v is not None]


sizes: Operator[SizesAttrs] = register(
    Operator(
        name="sizes",
        infer=_infer_sizes,
        reference=lambda a: np.array(_known(a.values), np.int64).reshape(a.shape),
        compute=_sizes,
        attrs_type=SizesAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example((), {"values": (3, -1, 4), "shape": (3,)}),
            Example((), {"values": (7,)}),
            Example((), {"values": (1, 2, 3, 4), "shape": (2, 2)}),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class ArangeAttrs(Attrs):
    """`size` elements start, start + step, ... of type `dtype`."""

    start: Dim
    step: Dim
    size: Dim
    dtype: str = "int64"


def _infer_arange(a: ArangeAttrs) -> Type:
    if not dt.is_integer(a.dtype):
        raise TypeMismatch(f"arange makes integers, not {a.dtype}")
    return TensorType((a.size,), a.dtype)


def _arange(a: ArangeAttrs) -> Tensor:
    return te.compute_one((a.size,), lambda i: cast(i * a.step + a.start, a.dtype), "arange")


def _numpy_arange(a: ArangeAttrs) -> np.ndarray:
    start, step, size = _known((a.start, a.step, a.size))
    return (start + step * np.arange(size)).astype(a.dtype)


arange: Operator[ArangeAttrs] = register(
    Operator(
        name="arange",
        infer=_infer_arange,
        reference=_numpy_arange,
        compute=_arange,
        attrs_type=ArangeAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example((), {"start": 2, "step": 3, "size": 5}),
            Example((), {"start": 2, "step": -1, "size": 20, "dtype": "int32"}),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class DynamicSliceAttrs(Attrs):
    """Of each of `axes` the `sizes` elements begin, begin + stride, ...; all lie in the tensor."""

    begin: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    strides: tuple[int, ...]
    axes: tuple[int, ...]


def _infer_dynamic_slice(a: DynamicSliceAttrs, x: Type) -> Type:
    source = tensor_type(x)
    if not len(a.begin) == len(a.sizes) == len(a.strides) == len(a.axes) == len(set(a.axes)):
        raise TypeMismatch(f"{a} does not give every axis one value")
    shape = list(source.shape)
    for axis, size in zip(a.axes, a.sizes, strict=True):
        shape[check_axis(axis, source.ndim)] = as_dim(size)
    return source.with_shape(shape)


def _dynamic_slice_rules(a: DynamicSliceAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    """Yield that an axis reaches to the last element that is taken of it."""
    shape = tensor_type(x).shape
    for axis, begin, size, stride in zip(a.axes, a.begin, a.sizes, a.strides, strict=True):
        steps = (size - 1) * stride + 1
        end = begin + (steps if stride > 0 else minimum(convert(size), 1))
        yield SizeRule("within", normal_size(end), shape[axis], axis)


def _dynamic_slice(a: DynamicSliceAttrs, x: Tensor) -> Tensor:
    shape: list[Dim] = list(x.shape)
    for axis, size in zip(a.axes, a.sizes, strict=True):
        shape[axis] = size

    def read(*i: Expr) -> Expr:
        at = list(i)
        for axis, begin, stride in zip(a.axes, a.begin, a.strides, strict=True):
            at[axis] = (at[axis] if stride == 1 else at[axis] * stride) + begin
        return x[tuple(at)]

    return te.compute_one(shape, read, "dynamic_slice")


def _numpy_dynamic_slice(a: DynamicSliceAttrs, x: np.ndarray) -> np.ndarray:
    lists = zip(a.axes, _known(a.begin), _known(a.sizes), a.strides, strict=True)
    for axis, begin, size, stride in lists:
        x = np.take(x, begin + stride * np.arange(size), axis)
    return x


dynamic_slice: Operator[DynamicSliceAttrs] = register(
    Operator(
        name="dynamic_slice",
        infer=_infer_dynamic_slice,
        reference=_numpy_dynamic_slice,
        compute=_dynamic_slice,
        rules=_dynamic_slice_rules,
        attrs_type=DynamicSliceAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((5, 6),), {"begin": (1,), "sizes": (3,), "strides": (2,), "axes": (1,)}),
            Example(
                ((5, 6),), {"begin": (4, 0), "sizes": (5, 1), "strides": (-1, 1), "axes": (0, 1)}
            ),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class CheckedAttrs(Attrs):
    """What every run must find of the sizes `a` and `b`.

    `axis` and `reason` are for the message of a refusal.
    """

    rule: Rule
    a: Dim
    b: Dim
    axis: int = 0
    reason: str = ""

    @property
    def size_rule(self) -> SizeRule:
        """The rule as size checks take it."""
        return SizeRule(self.rule, self.a, self.b, self.axis, self.reason)


def _infer_checked(a: CheckedAttrs, x: Type) -> Type:
    if a.rule not in get_args(Rule):
        raise TypeMismatch(f"{a.rule!r} is no rule of sizes: {', '.join(get_args(Rule))}")
    return tensor_type(x)


checked: Operator[CheckedAttrs] = register(
    Operator(
        name="checked",
        infer=_infer_checked,
        reference=lambda a, x: x,
        compute=lambda a, x: te.compute_one(x.shape, lambda *i: x[i], "checked"),
        rules=lambda a, result, x: iter((a.size_rule,)),
        attrs_type=CheckedAttrs,
        fusion=Fusion.ELEMENTWISE,
        keeps_finite=True,
        examples=(
            Example(((2, 3),), {"rule": "within", "a": 2, "b": 3}),
            Example(((4,),), {"rule": "kept", "a": 4, "b": 0}, ("int8",), -9, 9),
        ),
    )
)
"""`x`, in a run whose sizes satisfy a rule."""
