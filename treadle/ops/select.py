# SPDX-License-Identifier: Apache-2.0
"""Selections whose size depends on data: which elements are not zero, which are distinct.

A kernel cannot make memory, so such an operator fills the largest result there may be and counts
what is valid. `bind_size` gives the count a name, `head` takes that many elements:

    %0 = nonzero(%x) : (int64[12], int64[])
    %1 = bind_size(%0[0], %0[1], size=n) : int64[12]
    %2 = head(%1, size=n) : int64[n]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Const, Expr, ExprLike, Var, cast, int_value, load
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.types import Dim, TensorType, TupleType, Type, tensor_type
from treadle.loop.build import ZERO, assign, counter, declared, loop, nest, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.numeric import ANY, check_axis, check_elements, dims_of
from treadle.te.operations import Tensor

SCALAR = TensorType((), dt.INDEX)


# sizes given by values


@dataclass(frozen=True, slots=True)
class BindSizeAttrs(Attrs):
    """The symbolic size that a value gives its number to."""

    size: Dim


def _infer_bind_size(a: BindSizeAttrs, x: Type, value: Type) -> Type:
    if tensor_type(value) != SCALAR:
        raise TypeMismatch(f"a size is one number, {SCALAR}, not {value}")
    if isinstance(a.size, Expr) and not isinstance(a.size, Var):
        raise TypeMismatch(f"a value gives its number to a size, not to {a.size}")
    return tensor_type(x)


bind_size: Operator[BindSizeAttrs] = register(
    Operator(
        name="bind_size",
        infer=_infer_bind_size,
        reference=lambda a, x, value: x,
        attrs_type=BindSizeAttrs,
        binds=lambda a: (a.size,),
        examples=(Example(((3,), ()), {"size": 3}, ("float32", "int64"), inputs={1: np.array(3)}),),
    )
)
"""`x`, after which the symbol `size` stands for the number in `value`."""


depend_on: Operator[Attrs] = register(
    Operator(
        name="depend_on",
        infer=lambda a, x, other: tensor_type(x),
        reference=lambda a, x, other: x,
        examples=(Example(((3,), (2, 2)), {}, ("float32", "int64")),),
    )
)
"""`x`, once `other` is computed: for a size that only a branch or loop decides, whose results
nothing else uses."""


@dataclass(frozen=True, slots=True)
class HeadAttrs(Attrs):
    """How many elements of `axis` are taken; never more than there are."""

    size: Dim
    axis: int = 0


def _infer_head(a: HeadAttrs, x: Type) -> Type:
    source = tensor_type(x)
    extent = source.shape[check_axis(a.axis, source.ndim)]
    if isinstance(extent, int) and isinstance(a.size, int) and a.size > extent:
        raise TypeMismatch(f"{a.size} elements cannot be taken from axis {a.axis} of {source}")
    return source.with_shape((*source.shape[: a.axis], a.size, *source.shape[a.axis + 1 :]))


def _head(a: HeadAttrs, x: Tensor) -> Tensor:
    shape = (*x.shape[: a.axis], a.size, *x.shape[a.axis + 1 :])
    return te.compute_one(shape, lambda *i: x[i], "head")


head: Operator[HeadAttrs] = register(
    Operator(
        name="head",
        infer=_infer_head,
        reference=lambda a, x: x[(slice(None),) * a.axis + (slice(a.size),)],
        compute=_head,
        attrs_type=HeadAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((5, 2),), {"size": 3}),
            Example(((2, 4),), {"size": 4, "axis": 1}, ("int64",), -9, 9),
            Example(((3,),), {"size": 0}, ("bool",)),
        ),
    )
)


# what is not zero


def _infer_nonzero(_: Attrs, x: Type) -> Type:
    source = check_elements(x, ANY)
    return TupleType((TensorType((product(source.shape),), dt.INDEX), SCALAR))


def product(dims: Sequence[Dim]) -> Dim:
    """Return the product of extents."""
    total: Dim = 1
    for d in dims:
        total = d if int_value(total) == 1 else total if int_value(d) == 1 else total * d
    return total


def is_zero(x: Expr) -> Expr:
    """Return whether an element counts as zero: false, or either zero of a float."""
    if x.dtype == "bool":
        return ~x
    wide = cast(x, "float32") if dt.is_float(x.dtype) and dt.bits(x.dtype) < 32 else x
    return wide == Const.of(0, wide.dtype)


def _nonzero(_: Attrs, x: Tensor) -> list[Tensor]:
    extents = dims_of(x)
    count = product(extents)

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        (source,), (positions, total) = ins, outs
        found, at = counter("found"), counter("at")

        def note(*i: Expr) -> Stmt:
            keep = seq(
                put(positions, (value_of(found),), value_of(at)),
                assign(found, value_of(found) + 1),
            )
            return seq(If(~is_zero(load(source, i)), keep), assign(at, value_of(at) + 1))

        return declared(
            [found, at],
            seq(
                assign(found, 0),
                assign(at, 0),
                nest(extents, note),
                put(total, (), value_of(found)),
                fill_rest(positions, value_of(found), count),
            ),
        )

    made = te.extern([(count,), ()], [x], build, "nonzero", (dt.INDEX, dt.INDEX))
    assert isinstance(made, tuple)  # a list of shapes gives a tuple
    return list(made)


def fill_rest(out: Buffer, start: Expr, extent: ExprLike) -> Stmt:
    """Return the loop that writes zeros from `start` to the end of a vector."""
    return loop(extent - start, lambda j: put(out, (start + j,), ZERO), "rest")


def _reference_nonzero(_: Attrs, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = np.flatnonzero(x)
    return padded(found, x.size), np.array(found.size, np.int64)


def padded(values: np.ndarray, extent: int) -> np.ndarray:
    """Return a vector with zeros behind it, `extent` elements in all."""
    result = np.zeros(extent, np.int64)
    result[: values.size] = values
    return result


nonzero: Operator[Attrs] = register(
    Operator(
        name="nonzero",
        infer=_infer_nonzero,
        reference=_reference_nonzero,
        compute=_nonzero,
        examples=(
            Example(((3, 4),), {}, ("int32",), -1, 1),
            Example(((17,),), {}, ("bool",)),
            Example(((2, 3),), {}, ("uint8",), 0, 1),
            Example(((4,),), inputs={0: np.array([0.0, -0.0, np.nan, 1e-40], np.float32)}),
            Example(((5,),), {}, ("float16",), 0, 1),
            Example(((),), {}, ("float64",)),
            Example(((0, 3),)),
        ),
    )
)
"""(positions, how many): row-major positions of what is not zero, in order; NaN is not zero."""


@dataclass(frozen=True, slots=True)
class UnravelAttrs(Attrs):
    """The shape that positions count in."""

    shape: tuple[Dim, ...] = ()


def _infer_unravel(a: UnravelAttrs, x: Type) -> Type:
    source = check_elements(x, (dt.INDEX,))
    return source.with_shape((len(a.shape), *source.shape))


def _unravel(a: UnravelAttrs, x: Tensor) -> Tensor:
    def coordinate(axis: Expr, *i: Expr) -> Expr:
        value: Expr = Const.of(0)
        for k in range(len(a.shape)):
            inner = product(a.shape[k + 1 :])
            at = x[i] if int_value(inner) == 1 else x[i] // inner
            here = at % a.shape[k] if k else at
            value = here if not k else te.if_then_else(axis == k, here, value)
        return value

    return te.compute_one((len(a.shape), *x.shape), coordinate, "unravel_index")


def _reference_unravel(a: UnravelAttrs, x: np.ndarray) -> np.ndarray:
    shape = [int_value(d) or 0 for d in a.shape]
    rows = np.unravel_index(x, shape) if shape else ()
    return np.array(rows, np.int64).reshape(len(a.shape), *x.shape)


unravel_index: Operator[UnravelAttrs] = register(
    Operator(
        name="unravel_index",
        infer=_infer_unravel,
        reference=_reference_unravel,
        compute=_unravel,
        attrs_type=UnravelAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((5,),), {"shape": (3, 4, 2)}, ("int64",), 0, 23),
            Example(((5,),), {"shape": (7,)}, ("int64",), 0, 6),
            Example(((3,),), {"shape": ()}, ("int64",), 0, 0),
            Example(((0,),), {"shape": (2, 2)}, ("int64",), 0, 0),
        ),
    )
)
"""int64[len(shape), ...]: the coordinates of row-major positions."""
