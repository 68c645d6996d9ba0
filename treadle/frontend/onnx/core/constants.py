# SPDX-License-Identifier: Apache-2.0
"""Converters of operators that make tensors from numbers: constants, ranges, one-hot vectors."""

from __future__ import annotations

from math import ceil, prod

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.expr.nodes import convert, int_value, maximum
from treadle.frontend.builders.basic import broadcast, converted, counted, reshaped
from treadle.frontend.onnx.core.dynamic_operands import (
    elements,
    filled_computed,
    is_computed,
    range_computed,
)
from treadle.frontend.onnx.core.movement import cut
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.frontend.symbolic import is_sizes, size_values
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, normal_size
from treadle.ops import elementwise, sizes

BYTE_LIMIT = 64 << 20
"""Tensors computed from numbers while importing may have this many bytes."""

FILL_LIMIT = 1 << 30
"""Tensors filled with one value (at run time) may have this many bytes."""


@converter("Constant", since=(1, 9, 11, 12, 13, 19, 21, 23, 24, 25))
def constant(node: OnnxNode) -> Node:
    """Convert a tensor, a number or a list of numbers written in the node."""
    given = sorted(node.attributes)
    if len(given) != 1:
        raise ModelError(f"a Constant has one value, this one has {given or 'none'}")
    return Constant.of(_value(node, given[0]), origin=node.origin)


def _value(node: OnnxNode, kind: str) -> np.ndarray:
    value: np.ndarray | None = None
    if kind == "value":
        value = node.tensor("value")
    elif kind == "sparse_value":
        value = node.sparse_tensor("sparse_value")
    elif kind == "value_float":
        value = np.array(node.number("value_float"), dtype="float32")
    elif kind == "value_floats":
        value = np.array(node.numbers("value_floats"), dtype="float32")
    elif kind == "value_int":
        value = np.array(node.integer("value_int"), dtype="int64")
    elif kind == "value_ints":
        value = np.array(node.integers("value_ints"), dtype="int64")
    if value is None:
        raise ModelError(f"a Constant of {kind} is not supported")
    return value


@converter("ConstantOfShape", since=(9, 20, 21, 23, 24, 25))
def constant_of_shape(node: OnnxNode) -> Node:
    """Convert a tensor filled with one value."""
    if is_computed(node, 0):
        return filled_computed(node, _fill(node))
    shape = node.sizes(0, "shape")
    known = tuple(d for d in shape if isinstance(d, int))
    if any(d < 0 for d in known):
        raise ModelError(f"the shape {list(shape)} has a negative dimension")
    fill = _fill(node)
    _check_size(known, fill.value.itemsize, FILL_LIMIT)
    return broadcast(fill, shape)


def _fill(node: OnnxNode) -> Constant:
    value = node.tensor("value")
    fill = np.zeros(1, dtype="float32") if value is None else value
    if fill.size != 1:
        raise ModelError(f"the value of ConstantOfShape has {fill.size} elements, not 1")
    return Constant.of(fill.reshape(()))


@converter("Range", since=(11, 27))
def value_range(node: OnnxNode) -> Node:
    """Convert start, start + delta, … below limit, from constants."""
    node.without_effect("stash_type")
    if is_computed(node, 0, 1, 2):
        return range_computed(node)
    if any(is_sizes(node.input(k)) for k in range(3)):
        return _symbolic_range(node)
    start, limit, delta = (
        node.constant_scalar(k, w) for k, w in enumerate(("start", "limit", "delta"))
    )
    if delta == 0:
        raise ModelError("the delta of Range is 0")
    first, last, step = (_exact(v) for v in (start, limit, delta))
    count = max(ceil((last - first) / step), 0)
    _check_size((count,), start.itemsize)
    if dt.is_float(start.dtype.name) and start.itemsize == 2:
        values = first + np.arange(count, dtype="float32") * np.float32(step)
    else:
        values = start + np.arange(count).astype(start.dtype) * delta
    return Constant.of(np.asarray(values).astype(start.dtype))


def _symbolic_range(node: OnnxNode) -> Node:
    """Convert a range whose bounds are sizes."""
    (start,), (limit,), (delta,) = (
        node.sizes(k, w) for k, w in enumerate(("start", "limit", "delta"))
    )
    step = int_value(delta)
    if not step:
        raise ModelError(f"the delta of Range is {delta}, a known number other than 0 is needed")
    span = convert(limit) - start if step > 0 else convert(start) - limit
    size = normal_size(maximum((span + (abs(step) - 1)) // abs(step), 0))
    return sizes.count(start=start, step=step, size=size, dtype=node.type(0).dtype)


def _exact(value: np.ndarray) -> int | float:
    return int(value) if value.dtype.kind in "iu" else float(value)


@converter("EyeLike", since=(9, 22))
def eye_like(node: OnnxNode) -> Node:
    """Convert a matrix with ones on one diagonal, of the shape of the input."""
    type_, k = node.type(0), node.integer("k", 0)
    if type_.ndim != 2:
        raise ModelError(f"EyeLike makes matrices, not {type_}")
    number = node.integer("dtype", 0)
    dtype = dtype_of(number) if number else type_.dtype
    if not type_.is_static:
        row, column = (sizes.count(start=0, step=1, size=d) for d in type_.shape)
        beyond = elementwise.subtract(column, reshaped(row, (type_.shape[0], 1)))
        return converted(elementwise.equal(beyond, Constant.of(k, "int64")), dtype)
    shape = type_.static_shape
    _check_size(shape, dt.itemsize(dtype))
    return Constant.of(np.eye(shape[0], shape[1], k=k, dtype="int8").astype(dt.to_numpy(dtype)))


@converter("OneHot", since=(9, 11, 28))
def one_hot(node: OnnxNode) -> Node:
    """Convert indices to vectors with one "on" value; negative indices count from the end."""
    indices, values = node.input(0), node.input(2)
    depth = _depth(node)
    ndim = node.type(0).ndim
    axis = node.axis(node.integer("axis", -1), ndim + 1)
    shape = node.dims(0)
    spread = reshaped(converted(indices, "int64"), (*shape[:axis], 1, *shape[axis:]))
    known = tuple(d for d in (*shape, depth) if isinstance(d, int))
    _check_size(known, dt.itemsize(node.type(2).dtype))
    wide = (depth, *(1,) * (ndim - axis))
    from_front, from_end = reshaped(counted(depth), wide), reshaped(counted(depth, -depth), wide)
    here = elementwise.logical_or(
        elementwise.equal(spread, from_front), elementwise.equal(spread, from_end)
    )
    off, on = (_element(values, k) for k in (0, 1))
    return elementwise.where(here, on, off)


def _depth(node: OnnxNode) -> Dim:
    """Return how many classes there are: a number, or one that a run knows."""
    if is_computed(node, 1):
        return node.measure(elements(node, 1)[0])
    if _is_of_sizes(node.input(1)):
        return node.sizes(1, "depth")[0]
    depth = int(node.constant_scalar(1, "depth"))
    if depth < 1:
        raise ModelError(f"the depth of OneHot is {depth}, at least 1 is needed")
    return depth


def _is_of_sizes(value: Node) -> bool:
    return not isinstance(value, Constant) and size_values(value) is not None


def _element(values: Node, index: int) -> Node:
    return reshaped(cut(values, [(index, index + 1)], (1,), (0,)), ())


def _check_size(shape: tuple[int, ...], itemsize: int, limit: int = BYTE_LIMIT) -> None:
    if prod(shape) * itemsize > limit:
        raise ModelError(f"a constant of shape {list(shape)} is larger than {limit >> 20} MB")
