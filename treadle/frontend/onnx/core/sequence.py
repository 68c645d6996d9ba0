# SPDX-License-Identifier: Apache-2.0
"""Sequences and optional values: known to the importer alone, a graph sees their tensors.

A sequence is a `Tuple` of its elements, so its length and every position must be known when the
model is compiled. An optional value is an `OptionalValue` of one element or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np
import onnx

from treadle.errors import ModelError
from treadle.frontend.builders.basic import reshaped, shape_of
from treadle.frontend.onnx.node import OnnxNode, converter
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Constant, Node, Tuple, TupleItem, Var
from treadle.graph.types import Structure, TensorType
from treadle.ops import movement


class OptionalValue(Tuple):
    """A value that may be absent: a tuple of it, or of nothing."""

    __slots__ = ()


def optional_of(value: Node | None) -> OptionalValue:
    """Return a value as an optional one; an empty one for None."""
    fields = () if value is None else (value,)
    whole = Tuple.of(fields)
    return OptionalValue(fields, whole.type)


def structure_of(value: Node) -> Structure:
    """Return the structure of an imported value; shapes of tensors as far as they are known."""
    if isinstance(value, OptionalValue):
        return structure_of(value.fields[0]) if value.fields else None
    if isinstance(value, Tuple):
        return [structure_of(f) for f in value.fields]
    shape = value.type.shape if isinstance(value.type, TensorType) else ()
    return tuple(d for d in shape if isinstance(d, int))


def leaves_of(value: Node, name: str) -> Iterator[tuple[str, Node]]:
    """Yield the tensors of an imported value with a name for each: seq[0], seq[1], ..."""
    if isinstance(value, OptionalValue):
        for f in value.fields:
            yield from leaves_of(f, name)
    elif isinstance(value, Tuple):
        for k, f in enumerate(value.fields):
            yield from leaves_of(f, f"{name}[{k}]")
    else:
        yield name, value


def input_of(declared: onnx.TypeProto, structure: Structure, name: str) -> Node:
    """Return an input that is a sequence or optional: its tensors are variables.

    Raises:
        ModelError: the structure does not fit the declared type.
    """
    kind = declared.WhichOneof("value")
    if kind == "optional_type":
        element = declared.optional_type.elem_type
        present = None if structure is None else input_of(element, structure, name)
        return optional_of(present)
    if kind == "sequence_type" and isinstance(structure, list):
        element = declared.sequence_type.elem_type
        return Tuple.of(input_of(element, s, f"{name}[{k}]") for k, s in enumerate(structure))
    if kind == "tensor_type" and isinstance(structure, tuple):
        dtype = dtype_of(declared.tensor_type.elem_type)
        return Var(name, TensorType(structure, dtype), name)
    raise ModelError(f"input {name!r} is declared as a {kind}; what is given does not fit")


def _sequence(node: OnnxNode, index: int) -> tuple[Node, ...]:
    """Return the elements of input `index`."""
    value = node.input(index)
    if isinstance(value, OptionalValue) and value.fields:
        (value,) = value.fields
    if isinstance(value, OptionalValue) or not isinstance(value, Tuple):
        raise ModelError(f"the input {index} of {node.op} is no sequence: {value.type}")
    return value.fields


def _position(node: OnnxNode, index: int, count: int) -> int:
    """Return a position among `count` places, counted from the front."""
    at = int(node.constant_scalar(index, "position"))
    if not -count <= at < count:
        raise ModelError(f"the position {at} of {node.op} is outside of {count} places")
    return at % count


@converter("SequenceConstruct", since=(11,))
def sequence_construct(node: OnnxNode) -> Node:
    """Convert the making of a sequence."""
    return Tuple.of(node.all_inputs())


@converter("SequenceEmpty", since=(11,))
def sequence_empty(node: OnnxNode) -> Node:
    """Convert a sequence without elements."""
    node.without_effect("dtype")
    return Tuple.of(())


@converter("SequenceAt", since=(11,))
def sequence_at(node: OnnxNode) -> Node:
    """Convert the look-up of one element."""
    elements = _sequence(node, 0)
    return elements[_position(node, 1, len(elements))]


@converter("SequenceInsert", since=(11,))
def sequence_insert(node: OnnxNode) -> Node:
    """Convert an insertion, at the end where no position is given."""
    elements = _sequence(node, 0)
    at = len(elements)
    if node.has_input(2):
        at = int(node.constant_scalar(2, "position"))
        if not -len(elements) <= at <= len(elements):
            raise ModelError(f"the position {at} is outside of {len(elements) + 1} places")
        at += len(elements) if at < 0 else 0
    return Tuple.of((*elements[:at], node.input(1), *elements[at:]))


@converter("SequenceErase", since=(11,))
def sequence_erase(node: OnnxNode) -> Node:
    """Convert a removal, of the last element where no position is given."""
    elements = _sequence(node, 0)
    if not elements:
        raise ModelError("there is nothing to remove from an empty sequence")
    at = _position(node, 1, len(elements)) if node.has_input(1) else len(elements) - 1
    return Tuple.of((*elements[:at], *elements[at + 1 :]))


@converter("SequenceLength", since=(11,))
def sequence_length(node: OnnxNode) -> Node:
    """Convert the number of elements."""
    return Constant.of(len(_sequence(node, 0)), "int64")


@converter("SplitToSequence", since=(11, 24))
def split_to_sequence(node: OnnxNode) -> Node:
    """Convert a split into parts of one size, of given sizes, or of one element each."""
    x, shape = node.input(0), node.shape(0)
    axis = node.axis(node.integer("axis", 0), len(shape))
    keep = node.flag("keepdims", True)
    sizes = _part_sizes(node, shape[axis])
    if len(sizes) < 2:
        parts: list[Node] = [x] * len(sizes)
    else:
        whole = movement.split(x, sections=sizes, axis=axis)
        parts = [TupleItem.of(whole, k) for k in range(len(sizes))]
    if keep or node.has_input(1):
        return Tuple.of(parts)
    rest = (*shape[:axis], *shape[axis + 1 :])
    return Tuple.of(reshaped(p, rest) for p in parts)


def _part_sizes(node: OnnxNode, extent: int) -> tuple[int, ...]:
    given = node.constant(1, "split") if node.has_input(1) else np.array(1)
    if given.ndim == 0:
        size = int(given)
        if size < 1:
            raise ModelError(f"parts of {size} elements are not possible")
        return tuple(min(size, extent - k * size) for k in range(ceil(extent / size)))
    sizes = tuple(int(v) for v in given.reshape(-1))
    if sum(sizes) != extent or any(s < 0 for s in sizes):
        raise ModelError(f"the parts {list(sizes)} do not add up to {extent}")
    return sizes


@converter("ConcatFromSequence", since=(11,))
def concat_from_sequence(node: OnnxNode) -> Node:
    """Convert the joining of all elements, along an axis they have or a new one."""
    elements = _sequence(node, 0)
    if not elements:
        raise ModelError("an empty sequence cannot be joined")
    is_new = node.flag("new_axis")
    shapes = [shape_of(e) for e in elements]
    axis = node.axis(node.integer("axis"), len(shapes[0]) + is_new)
    if is_new:
        elements = tuple(
            reshaped(e, (*s[:axis], 1, *s[axis:])) for e, s in zip(elements, shapes, strict=True)
        )
    return elements[0] if len(elements) == 1 else movement.concat(*elements, axis=axis)


@converter("Optional", since=(15, 28))
def optional(node: OnnxNode) -> Node:
    """Convert the making of an optional value."""
    node.without_effect("type")
    return optional_of(node.optional(0))


@converter("OptionalHasElement", since=(15, 18, 28))
def optional_has_element(node: OnnxNode) -> Node:
    """Convert the question whether there is a value."""
    value = node.optional(0)
    is_empty = value is None or (isinstance(value, OptionalValue) and not value.fields)
    return Constant.of(not is_empty, "bool")


@converter("OptionalGetElement", since=(15, 18, 28))
def optional_get_element(node: OnnxNode) -> Node:
    """Convert the value of an optional one."""
    value = node.input(0)
    if not isinstance(value, OptionalValue):
        return value
    if not value.fields:
        raise ModelError("an optional value without an element has nothing to give")
    return value.fields[0]


def form_of(value: Node) -> Structure:
    """Return the structure of an imported value with nothing said of its tensors' shapes."""
    if isinstance(value, OptionalValue):
        return form_of(value.fields[0]) if value.fields else None
    return [form_of(f) for f in value.fields] if isinstance(value, Tuple) else ()


def tensors_of(value: Node) -> list[Node]:
    """Return the tensors that an imported value consists of, in order."""
    return [tensor for _, tensor in leaves_of(value, "")]


def grouped(form: Structure, tensors: Iterator[Node]) -> Node:
    """Return tensors as a value of some form: a tensor, a sequence, or an absent value."""
    if form is None:
        return optional_of(None)
    if isinstance(form, list):
        return Tuple.of([grouped(f, tensors) for f in form])
    return next(tensors)


def arrays_of(structure: Structure, arrays: Iterator[np.ndarray]) -> object:
    """Return arrays grouped as a structure says: sequences as lists, empty optionals as None."""
    if structure is None:
        return None
    if isinstance(structure, list):
        return [arrays_of(s, arrays) for s in structure]
    return next(arrays)


def flattened(value: object, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a value with the names their inputs have."""
    if isinstance(value, Sequence):
        for k, v in enumerate(value):
            yield from flattened(v, f"{name}[{k}]")
    elif value is not None:
        yield name, np.asarray(value)


def structure_of_value(value: object) -> Structure:
    """Return the structure of a value: arrays, lists of them, or None."""
    if value is None:
        return None
    if isinstance(value, Sequence):
        return [structure_of_value(v) for v in value]
    return tuple(np.shape(np.asarray(value)))
