# SPDX-License-Identifier: Apache-2.0
"""Operators that read where other data says: gather, gather_elements, gather_nd.

Indices wrap once when negative and are clamped to the extent, so none can read outside its tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, int_value
from treadle.graph.operator import Attrs, Example, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule, equal, filled, within
from treadle.graph.types import (
    Dim,
    Type,
    shapes_may_agree,
    tensor_type,
)
from treadle.ops.movement import AxisAttrs
from treadle.ops.numeric import (
    INTEGERS,
    check_axis,
    check_elements,
    dims_of,
)
from treadle.te.operations import Tensor


def _infer_gather(a: AxisAttrs, data: Type, indices: Type) -> Type:
    source, at = tensor_type(data), check_elements(indices, INTEGERS, "the index")
    check_axis(a.axis, source.ndim)
    return source.with_shape(source.shape[: a.axis] + at.shape + source.shape[a.axis + 1 :])


_MOST_SHORT = (1 << 31) - 1
"""The largest int32."""


def position_in(index: Expr, extent: Dim) -> Expr:
    """Return an index from data as a position: negative ones wrap, the rest is clamped.

    That is done in 32 bits where index and extent have no more: twice as many to a vector.
    """
    is_short = index.dtype == "int32" and isinstance(extent, int) and extent <= _MOST_SHORT
    at = index if is_short else nodes.cast(index, dt.INDEX)
    at = nodes.select(at < 0, at + extent, at)
    return nodes.cast(te.max(te.min(at, extent - 1), 0), dt.INDEX)


def _gather_rules(a: AxisAttrs, result: Type, data: Type, indices: Type) -> Iterator[SizeRule]:
    return filled(data, (a.axis,), result)


def numpy_positions(indices: np.ndarray, extent: int) -> np.ndarray:
    """Return indices as positions, as `position_in` does."""
    at = indices.astype(np.int64)
    return np.clip(np.where(at < 0, at + extent, at), 0, max(extent - 1, 0))


def _gather(a: AxisAttrs, data: Tensor, indices: Tensor) -> Tensor:
    n, extent = indices.ndim, dims_of(data)[a.axis]

    def read(*i: Expr) -> Expr:
        at = indices[i[a.axis : a.axis + n]]
        return data[(*i[: a.axis], position_in(at, extent), *i[a.axis + n :])]

    shape = (*data.shape[: a.axis], *indices.shape, *data.shape[a.axis + 1 :])
    return te.compute_one(shape, read, "gather")


gather: Operator[AxisAttrs] = register(
    Operator(
        name="gather",
        infer=_infer_gather,
        reference=lambda a, x, i: np.asarray(
            np.take(x, numpy_positions(i, x.shape[a.axis]), a.axis)
        ),
        compute=_gather,
        rules=_gather_rules,
        attrs_type=AxisAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((7, 3), (2, 4)), {}, ("float32", "int64"), -7, 6),
            Example(((3, 7, 2), (5,)), {"axis": 1}, ("float32", "int32"), -7, 6),
            Example(((3, 7), ()), {"axis": 1}, ("int64", "int64"), -7, 6),
            Example(((6,), ()), {}, ("float32", "int64"), -9, 9),
            Example(((6, 2), (3,)), {}, ("uint8", "uint8"), 0, 5),
        ),
    )
)


def _infer_gather_elements(a: AxisAttrs, data: Type, indices: Type) -> Type:
    source, at = tensor_type(data), check_elements(indices, INTEGERS, "the index")
    check_axis(a.axis, source.ndim)
    if at.ndim != source.ndim or any(
        k != a.axis and isinstance(p, int) and isinstance(q, int) and q > p
        for k, (p, q) in enumerate(zip(source.shape, at.shape, strict=True))
    ):
        raise TypeMismatch(f"indices {at} do not fit {source} along axis {a.axis}")
    return source.with_shape(at.shape)


def _gather_elements(a: AxisAttrs, data: Tensor, indices: Tensor) -> Tensor:
    extent = dims_of(data)[a.axis]

    def read(*i: Expr) -> Expr:
        return data[(*i[: a.axis], position_in(indices[i], extent), *i[a.axis + 1 :])]

    return te.compute_one(indices.shape, read, "gather_elements")


def _gather_elements_rules(
    a: AxisAttrs, result: Type, data: Type, indices: Type
) -> Iterator[SizeRule]:
    at = tensor_type(indices)
    yield from filled(data, (a.axis,), result)
    yield from within(at.shape, data, (k for k in range(at.ndim) if k != a.axis))


def _numpy_gather_elements(a: AxisAttrs, x: np.ndarray, i: np.ndarray) -> np.ndarray:
    inside = tuple(slice(None) if k == a.axis else slice(n) for k, n in enumerate(i.shape))
    return np.take_along_axis(x[inside], numpy_positions(i, x.shape[a.axis]), a.axis)


gather_elements: Operator[AxisAttrs] = register(
    Operator(
        name="gather_elements",
        infer=_infer_gather_elements,
        reference=_numpy_gather_elements,
        compute=_gather_elements,
        rules=_gather_elements_rules,
        attrs_type=AxisAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((3, 5), (3, 5)), {"axis": 0}, ("float32", "int64"), -3, 2),
            Example(((3, 5), (2, 7)), {"axis": 1}, ("float32", "int32"), -5, 4),
            Example(((5,), (2,)), {}, ("int64", "int64"), -5, 4),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class GatherNdAttrs(Attrs):
    """How many leading axes `data` and `indices` share."""

    batch_dims: int = 0


def _infer_gather_nd(a: GatherNdAttrs, data: Type, indices: Type) -> Type:
    source, at = tensor_type(data), check_elements(indices, INTEGERS, "the index")
    depth = at.shape[-1] if at.ndim else 0
    if not isinstance(depth, int) or at.ndim < 1:
        raise TypeMismatch(f"the last extent of the indices {at} must be known")
    b = a.batch_dims
    if not 0 <= b < at.ndim or b + depth > source.ndim:
        raise TypeMismatch(f"indices {at} with batch_dims={b} are too deep for {source}")
    if not shapes_may_agree(at.shape[:b], source.shape[:b]):
        raise TypeMismatch(f"indices {at} and {source} differ in their {b} batch extents")
    return source.with_shape(at.shape[:-1] + source.shape[b + depth :])


def _gather_nd(a: GatherNdAttrs, data: Tensor, indices: Tensor) -> Tensor:
    b, outer, dims = a.batch_dims, indices.ndim - 1, dims_of(data)
    depth = int_value(indices.shape[-1]) or 0

    def read(*i: Expr) -> Expr:
        at = [position_in(indices[(*i[:outer], k)], dims[b + k]) for k in range(depth)]
        return data[(*i[:b], *at, *i[outer:])]

    shape = (*indices.shape[:-1], *data.shape[b + depth :])
    return te.compute_one(shape, read, "gather_nd")


def _gather_nd_rules(
    a: GatherNdAttrs, result: Type, data: Type, indices: Type
) -> Iterator[SizeRule]:
    b, at = a.batch_dims, tensor_type(indices).shape
    depth = at[-1] if isinstance(at[-1], int) else 0
    yield from filled(data, range(b, b + depth), result)
    yield from equal(zip(at[:b], tensor_type(data).shape[:b], strict=True))


def _numpy_gather_nd(a: GatherNdAttrs, x: np.ndarray, i: np.ndarray) -> np.ndarray:
    b, outer = a.batch_dims, i.shape[:-1]
    batch = [
        np.arange(n).reshape((-1,) + (1,) * (len(outer) - 1 - k)) for k, n in enumerate(outer[:b])
    ]
    at = [numpy_positions(i[..., k], x.shape[b + k]) for k in range(i.shape[-1])]
    if not batch and not at:
        return np.broadcast_to(x, outer + x.shape)
    taken = x[(*batch, *at)]
    return np.broadcast_to(taken, outer + x.shape[b + len(at) :])


gather_nd: Operator[GatherNdAttrs] = register(
    Operator(
        name="gather_nd",
        infer=_infer_gather_nd,
        reference=_numpy_gather_nd,
        compute=_gather_nd,
        rules=_gather_nd_rules,
        attrs_type=GatherNdAttrs,
        fusion=Fusion.INJECTIVE,
        examples=(
            Example(((3, 4, 5), (6, 2)), {}, ("float32", "int64"), -3, 2),
            Example(((3, 4, 5), (6, 3)), {}, ("float32", "int64"), -3, 2),
            Example(((2, 4, 5), (2, 3, 1)), {"batch_dims": 1}, ("float32", "int64"), -4, 3),
            Example(((4,), (1,)), {}, ("float32", "int64"), -4, 3),
        ),
    )
)
