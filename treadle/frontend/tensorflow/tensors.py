# SPDX-License-Identifier: Apache-2.0
"""Element types, shapes and tensors of TensorFlow's messages, checked for sense and size."""

from __future__ import annotations

from math import prod

import numpy as np

from treadle.dtype import to_numpy
from treadle.errors import ModelError
from treadle.frontend.declared import UNKNOWN
from treadle.frontend.protobuf import Message

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "STRING",
    8: "COMPLEX64", 9: "int64", 10: "bool", 11: "QINT8", 12: "QUINT8", 13: "QINT32",
    14: "bfloat16", 15: "QINT16", 16: "QUINT16", 17: "uint16", 18: "COMPLEX128", 19: "float16",
    20: "RESOURCE", 21: "VARIANT", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""The element types by number (types.proto); those in capitals are no numbers of the graph."""

_REFERENCE = 100
"""What the number of a reference to a variable is greater by than that of its elements."""

_MOST_RANK = 16
_MOST_BYTES = 1 << 40

_VALUES = {
    "float32": 5, "float64": 6, "int32": 7, "int16": 7, "int8": 7, "uint8": 7, "uint16": 7,
    "int64": 10, "bool": 11, "float16": 13, "bfloat16": 13, "uint32": 16, "uint64": 17,
}  # fmt: skip
"""The field of a TensorProto that lists elements of a type."""

_FILL_BYTES = 1 << 30
"""What a tensor may take that a file writes as fewer elements than it has."""


def dtype_of(number: int) -> str:
    """Return the name of an element type; in capitals where the graph has none like it."""
    plain = number - _REFERENCE if number > _REFERENCE else number
    if plain not in DTYPES:
        raise ModelError(f"the element type {number} is not known")
    return DTYPES[plain]


def check_numbers(dtype: str, what: str) -> str:
    """Return an element type. Raises ModelError, about `what` is of it, unless it is of numbers."""
    if dtype.isupper():
        raise ModelError(
            f"{what} has elements of {dtype.lower()}, which is not supported",
            hint="export the part of the model that computes with numbers",
        )
    return dtype


def shape_of_message(message: Message | None) -> tuple[int, ...] | None:
    """Return a TensorShapeProto, None where it knows no rank; unknown sizes are `UNKNOWN`."""
    if message is None or message.integer(3):
        return None
    shape = tuple(dim.integer(1) for dim in message.messages(2))
    if len(shape) > _MOST_RANK or any(d < UNKNOWN for d in shape):
        raise ModelError(f"the shape {list(shape[:_MOST_RANK])} is none")
    return shape


def known_shape(message: Message | None) -> tuple[int, ...]:
    """Return the shape of a stored tensor. Raises ModelError for one that is not known."""
    shape = shape_of_message(message)
    if shape is None or UNKNOWN in shape:
        raise ModelError("a stored tensor has no known shape")
    return shape


def stored_array(raw: memoryview, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return elements as a view of the bytes they are stored in (a copy where not aligned).

    Raises: ModelError unless the bytes are as many as the shape says.
    """
    kind = to_numpy(dtype)
    if prod(shape) * kind.itemsize != len(raw):
        raise ModelError(f"{len(raw)} bytes are stored for {dtype}{list(shape)}")
    values = np.frombuffer(raw, kind).reshape(shape)
    return values if values.flags.aligned else values.copy()


def array_of(message: Message, what: str) -> np.ndarray:
    """Return the elements of a TensorProto; `what` it is of is named in errors."""
    dtype = check_numbers(dtype_of(message.integer(1)), what)
    shape = known_shape(message.message(2) or Message(message.data[:0], message.kind))
    if prod(shape) * to_numpy(dtype).itemsize > _MOST_BYTES:
        raise ModelError(f"{what} of shape {list(shape)} has more elements than memory")
    raw = message.bytes(4)
    if len(raw):
        return stored_array(raw, dtype, shape)
    return _filled(_listed(message, dtype), dtype, shape, what)


def _listed(message: Message, dtype: str) -> np.ndarray:
    """Return the elements that a tensor lists one by one."""
    field = _VALUES[dtype]
    if dtype in ("float32", "float64"):
        return message.array(field, dtype)
    values = message.integers(field)
    if field == _VALUES["float16"]:
        return np.array([v & 0xFFFF for v in values], "uint16").view(to_numpy(dtype))
    if dtype == "uint64":
        return np.array([v % (1 << 64) for v in values], dtype)
    return np.array(values, "int64").astype(to_numpy(dtype))


def _filled(values: np.ndarray, dtype: str, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Return a tensor of listed elements, of which the last one stands for all that are left."""
    count = prod(shape)
    if values.size > count:
        raise ModelError(f"{what} of shape {list(shape)} lists {values.size} elements")
    if values.size == count:
        return values.reshape(shape)
    if count * values.itemsize > _FILL_BYTES:
        raise ModelError(f"{what} of shape {list(shape)} is filled with more than 1 GB")
    last = values[-1] if values.size else to_numpy(dtype).type(0)
    made: np.ndarray = np.full(count, last, to_numpy(dtype))
    made[: values.size] = values
    return made.reshape(shape)
