# SPDX-License-Identifier: Apache-2.0
"""Builders of tensors made from numbers: ranges, one-hot vectors, one value everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.expr.nodes import convert, maximum
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    counted,
    dims_of,
    element_type,
    reshaped,
)
from treadle.frontend.builders.dynamic_operands import Measure, range_at_run
from treadle.frontend.symbolic import size_values
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, normal_size, tensor_type
from treadle.ops import elementwise, sizes

BYTE_LIMIT = 64 << 20
"""Tensors computed from numbers while importing may have this many bytes."""

FILL_LIMIT = 1 << 30
"""Tensors filled with one value (at run time) may have this many bytes."""


def range_of_numbers(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> Constant:
    """Return start, start + delta, ... before `limit`: numbers of rank 0 and of one type."""
    if delta == 0:
        raise ModelError("the step of a range is 0")
    first, last, step = (_exact(v) for v in (start, limit, delta))
    count = max(ceil((last - first) / step), 0)
    check_size((count,), start.itemsize)
    if dt.is_float(start.dtype.name) and start.itemsize == 2:
        values = first + np.arange(count, dtype="float32") * np.float32(step)
    else:
        values = start + np.arange(count).astype(start.dtype) * delta
    return Constant.of(np.asarray(values).astype(start.dtype))


def _exact(value: np.ndarray) -> int | float:
    return int(value) if value.dtype.kind in "iu" else float(value)


def range_of_sizes(start: Dim, limit: Dim, step: int, dtype: str = "int64") -> Node:
    """Return start, start + step, ... before `limit`, where the bounds may be symbolic sizes."""
    if step == 0:
        raise ModelError("the step of a range is 0")
    span = convert(limit) - start if step > 0 else convert(start) - limit
    size = normal_size(maximum((span + (abs(step) - 1)) // abs(step), 0))
    return sizes.arange(start=start, step=step, size=size, dtype=dtype)


def number_range(start: Node, limit: Node, delta: Node, measure: Measure) -> Node:
    """Return start, start + delta, ... before a limit: scalars, which a run may compute."""
    known = [n for n in (start, limit, delta) if isinstance(n, Constant)]
    if len(known) == 3:
        return range_of_numbers(*(n.value for n in known))
    bounds = [size_values(n) for n in (start, limit)]
    if bounds[0] is not None and bounds[1] is not None and isinstance(delta, Constant):
        first, last = (b.reshape(-1)[0] for b in bounds if b is not None)
        return range_of_sizes(first, last, int(delta.value), element_type(start))
    return range_at_run(start, limit, delta, measure)


def filled_with(value: Node, shape: Sequence[Dim]) -> Node:
    """Return a tensor of one value, which a run may compute."""
    return filled(value, shape) if isinstance(value, Constant) else broadcast(value, shape)


def filled(fill: Constant, shape: Sequence[Dim]) -> Node:
    """Return a tensor of one value, a constant of rank 0. Raises ModelError for too large a one."""
    known = tuple(d for d in shape if isinstance(d, int))
    if any(d < 0 for d in known):
        raise ModelError(f"the shape {list(shape)} has a negative dimension")
    check_size(known, fill.value.itemsize, FILL_LIMIT)
    return broadcast(fill, shape)


def one_hot(indices: Node, depth: Dim, off: Node, on: Node, axis: int) -> Node:
    """Return `on` where an index is, `off` elsewhere, along a new axis of `depth` classes.

    Negative indices count from the end; an index outside of all classes chooses none.
    """
    shape, ndim = dims_of(indices), len(dims_of(indices))
    known = tuple(d for d in (*shape, depth) if isinstance(d, int))
    check_size(known, dt.itemsize(tensor_type(on.type).dtype))
    spread = reshaped(converted(indices, "int64"), (*shape[:axis], 1, *shape[axis:]))
    wide = (depth, *(1,) * (ndim - axis))
    from_front, from_end = reshaped(counted(depth), wide), reshaped(counted(depth, -depth), wide)
    here = elementwise.logical_or(
        elementwise.equal(spread, from_front), elementwise.equal(spread, from_end)
    )
    return elementwise.where(here, on, off)


def check_size(shape: Sequence[int], itemsize: int, limit: int = BYTE_LIMIT) -> None:
    """Raise ModelError for a constant of more bytes than `limit`."""
    if prod(shape) * itemsize > limit:
        raise ModelError(f"a constant of shape {list(shape)} is larger than {limit >> 20} MB")
