# SPDX-License-Identifier: Apache-2.0
"""Converters of operators that make tensors from numbers: constants, ranges, one-hot vectors."""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import converted, reshaped
from treadle.frontend.builders.dynamic_operands import filled_at_run, range_at_run
from treadle.frontend.builders.movement import cut
from treadle.frontend.builders.ranges import (
    check_size,
    filled,
    one_hot,
    range_of_numbers,
    range_of_sizes,
)
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.frontend.symbolic import is_sizes, size_values
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim
from treadle.ops import elementwise, sizes


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
    if node.is_computed(0):
        return filled_at_run(_fill(node), node.elements(0), node.measure)
    return filled(_fill(node), node.sizes(0, "shape"))


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
    if node.is_computed(0, 1, 2):
        bounds = [reshaped(node.input(k), ()) for k in range(3)]
        return range_at_run(bounds[0], bounds[1], bounds[2], node.measure)
    if any(is_sizes(node.input(k)) for k in range(3)):
        return _symbolic_range(node)
    numbers = [node.constant_scalar(k, w) for k, w in enumerate(("start", "limit", "delta"))]
    return range_of_numbers(numbers[0], numbers[1], numbers[2])


def _symbolic_range(node: OnnxNode) -> Node:
    """Convert a range whose bounds are sizes."""
    (start,), (limit,), (delta,) = (
        node.sizes(k, w) for k, w in enumerate(("start", "limit", "delta"))
    )
    step = int_value(delta)
    if not step:
        raise ModelError(f"the delta of Range is {delta}, a known number other than 0 is needed")
    return range_of_sizes(start, limit, step, node.type(0).dtype)


@converter("EyeLike", since=(9, 22))
def eye_like(node: OnnxNode) -> Node:
    """Convert a matrix with ones on one diagonal, of the shape of the input."""
    type_, k = node.type(0), node.integer("k", 0)
    if type_.ndim != 2:
        raise ModelError(f"EyeLike makes matrices, not {type_}")
    number = node.integer("dtype", 0)
    dtype = dtype_of(number) if number else type_.dtype
    if not type_.is_static:
        row, column = (sizes.arange(start=0, step=1, size=d) for d in type_.shape)
        beyond = elementwise.subtract(column, reshaped(row, (type_.shape[0], 1)))
        return converted(elementwise.equal(beyond, Constant.of(k, "int64")), dtype)
    shape = type_.static_shape
    check_size(shape, dt.itemsize(dtype))
    return Constant.of(np.eye(shape[0], shape[1], k=k, dtype="int8").astype(dt.to_numpy(dtype)))


@converter("OneHot", since=(9, 11, 28))
def convert_one_hot(node: OnnxNode) -> Node:
    """Convert indices to vectors with one "on" value; negative indices count from the end."""
    values, depth = node.input(2), _depth(node)
    axis = node.axis(node.integer("axis", -1), node.type(0).ndim + 1)
    return one_hot(node.input(0), depth, _element(values, 0), _element(values, 1), axis)


def _depth(node: OnnxNode) -> Dim:
    """Return how many classes there are: a number, or one that a run knows."""
    if node.is_computed(1):
        return node.measure(node.elements(1)[0])
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
