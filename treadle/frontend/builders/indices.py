# SPDX-License-Identifier: Apache-2.0
"""Indices of a model: those that are known are checked here, the others by every run."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, dims_of
from treadle.frontend.symbolic import size_values
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, known_sizes, tensor_type
from treadle.ops import indexing, scatter
from treadle.ops.index_checks import INDEX_TYPES, check_indices, outside


def checked_indices(
    data: Node, indices: Node, axis: int, count: int = 1, *, op: str = "the operator"
) -> Node:
    """Return `indices` of `count` axes of `data` from `axis` on, checked; negative ones wrap.

    Raises: ModelError, about `op`, when one that is known is outside of its axis.
    """
    extents = dims_of(data)[axis : axis + count]
    if tensor_type(indices.type).dtype not in INDEX_TYPES:
        indices = converted(indices, "int64")
    if isinstance(indices, Constant):
        _check_known(op, data, indices, extents, axis)
        if all(isinstance(e, int) for e in extents) or _are_ends(indices):
            return indices
    if size_values(indices) is not None and size_values(data) is not None:
        return indices  # arithmetic on shapes, which is done while importing
    return check_indices(indices, extents=tuple(extents), axis=axis)


def gathered_nd(x: Node, places: Node, op: str = "the operator") -> Node:
    """Return the slices of `x` at coordinates, which are the last axis of `places`."""
    (depth,) = known_sizes(dims_of(places)[-1:])
    return indexing.gather_nd(x, checked_indices(x, places, 0, depth, op=op))


def scattered_nd(
    x: Node, places: Node, updates: Node, reduction: str, op: str = "the operator"
) -> Node:
    """Return `x` with slices at coordinates, the last axis of `places`, updated by a reduction."""
    (depth,) = known_sizes(dims_of(places)[-1:])
    at = checked_indices(x, places, 0, depth, op=op)
    return scatter.scatter_nd(x, at, updates, reduction=reduction)


def _check_known(op: str, data: Node, indices: Constant, extents: Sequence[Dim], axis: int) -> None:
    found = outside(tuple(extents), indices.value) if indices.value.size else None
    if found is not None:
        raise ModelError(
            f"the index {found[0]} of {op} is outside axis {axis + found[1]} of {data.type}"
        )


def _are_ends(indices: Constant) -> bool:
    """True for the first and the last element, which every axis has that is not empty."""
    return all(index in (0, -1) for index in indices.value.reshape(-1).tolist())
