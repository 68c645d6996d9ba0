# SPDX-License-Identifier: Apache-2.0
"""Lists of tensors (TensorArray): one tensor with a first axis more, written row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from treadle.errors import ModelError
from treadle.expr.nodes import int_value
from treadle.frontend.builders.basic import converted, dims_of, element_type, reshaped
from treadle.frontend.builders.indices import checked_indices
from treadle.frontend.builders.movement import taken
from treadle.frontend.declared import UNKNOWN
from treadle.frontend.symbolic import sizes_node
from treadle.frontend.tensorflow.context import Context, SpecialFn, SpecialNode
from treadle.frontend.tensorflow.tensors import check_numbers
from treadle.frontend.tensorflow.values import Element, TensorList, Value, reserved
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim
from treadle.ops import scatter


def _reserved(context: Context, use: SpecialNode) -> Sequence[Value]:
    """Return a list of which the first input says what shape its elements have."""
    dtype = check_numbers(use.attributes.dtype("element_dtype"), "a list")
    return [reserved(use.size(1), dtype, _element_shape(use, 0))]


def _element_shape(use: SpecialNode, index: int) -> tuple[int, ...] | None:
    """Return the shape that an input says elements have; sizes may be unknown, or all of it."""
    if not dims_of(use.tensor(index)):
        return None
    known = [int_value(d) for d in use.sizes(index)]
    return tuple(UNKNOWN if d is None else d for d in known)


def _from_tensor(context: Context, use: SpecialNode) -> Sequence[Value]:
    x = use.tensor(0)
    length, *shape = dims_of(x)
    return [TensorList(length, Element(element_type(x), tuple(shape)), x)]


def _item(context: Context, use: SpecialNode) -> Sequence[Value]:
    index = reshaped(use.tensor(1), ())
    return [taken(use.tensors(0).tensor(), index, 0, use.node.op)]


def _gathered(context: Context, use: SpecialNode) -> Sequence[Value]:
    return [taken(use.tensors(0).tensor(), use.tensor(1), 0, use.node.op)]


def _with_item(context: Context, use: SpecialNode) -> Sequence[Value]:
    """Return a list with another element; the first one says what shape all of them have."""
    found, item = use.tensors(0), use.tensor(2)
    _learn(found, item)
    index = reshaped(converted(use.tensor(1), "int64"), (1, 1))
    rows = found.tensor()
    at = checked_indices(rows, index, 0, 1, op=use.node.op)
    made = scatter.scatter_nd(rows, at, reshaped(item, (1, *dims_of(item))))
    return [replace(found, stacked=made)]


def _learn(found: TensorList, item: Node) -> None:
    """Tell all that hold a reserved list what its elements are."""
    if found.element.shape is None:
        found.element.shape = dims_of(item)
    if found.element.dtype != element_type(item):
        raise ModelError(f"{item.type} is set in a list of {found.element.dtype}")


def _stacked(context: Context, use: SpecialNode) -> Sequence[Value]:
    found = use.tensors(0)
    if found.element.shape is None:
        shape = _element_shape(use, 1)
        if shape is not None and UNKNOWN not in shape:
            found.element.shape = shape
    return [found.tensor()]


def _length(context: Context, use: SpecialNode) -> Sequence[Value]:
    return [sizes_node((use.tensors(0).length,), (), "int32")]


def _shape(context: Context, use: SpecialNode) -> Sequence[Value]:
    shape: tuple[Dim, ...] | None = use.tensors(0).element.shape
    dtype = use.attributes.dtype("shape_type", "int32")
    if shape is None:
        return [Constant.of(UNKNOWN, dtype)]
    return [sizes_node(shape, (len(shape),), dtype)]


def _scattered(context: Context, use: SpecialNode) -> Sequence[Value]:
    """Return a list of elements at given places, the others zero."""
    x, places = use.tensor(0), use.tensor(1)
    length: Dim = use.size(3) if len(use.inputs) > 3 else UNKNOWN
    if length == UNKNOWN:
        length = dims_of(x)[0]
    element = Element(element_type(x), dims_of(x)[1:])
    rows = TensorList(length, element).tensor()
    at = checked_indices(rows, reshaped(places, (*dims_of(places), 1)), 0, 1, op=use.node.op)
    return [TensorList(length, element, scatter.scatter_nd(rows, at, x))]


LISTS: Mapping[str, SpecialFn] = {
    "TensorListReserve": _reserved,
    "TensorListFromTensor": _from_tensor,
    "TensorListGetItem": _item,
    "TensorListGather": _gathered,
    "TensorListSetItem": _with_item,
    "TensorListStack": _stacked,
    "TensorListLength": _length,
    "TensorListElementShape": _shape,
    "TensorListScatter": _scattered,
    "TensorListScatterV2": _scattered,
}
"""The operators on lists."""
