# SPDX-License-Identifier: Apache-2.0
"""Splits the bytes of an .onnx file into a small model and views of its large weights.

Parsing a model with the protobuf library copies every weight twice. Here the few fields on the
way to `TensorProto.raw_data` are walked by hand, the large ones are left out of what the library
parses, and stay views of the (memory-mapped) file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from treadle.errors import ModelError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_RAW_DATA = 7, 5, 9
"""Field numbers of the ONNX schema on the way to a weight's bytes."""

LARGE = 4096
"""Weights of at least this many bytes stay in the file."""


@dataclass(slots=True)
class Split:
    """A model without its large weights, and those weights by initialiser index."""

    model: bytes
    weights: dict[int, memoryview] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    wire: int
    start: int  # of the tag
    body: int  # of the payload
    end: int


def split_weights(data: memoryview) -> Split:
    """Return the model of `data` with its large initialisers taken out.

    Raises:
        ModelError: the bytes are no protobuf message, or end early.
    """
    split = Split(b"")
    parts: list[bytes] = []
    seen = False
    for f in _fields(data, 0, len(data)):
        if f.number == MODEL_GRAPH and f.wire == BYTES:
            if seen:
                raise ModelError("this is not an ONNX file: it holds two graphs")
            seen = True
            graph = _graph_without_weights(data, f, split.weights)
            parts.append(_tag(MODEL_GRAPH, len(graph)) + graph)
        else:
            parts.append(bytes(data[f.start : f.end]))
    split.model = b"".join(parts)
    return split


def _graph_without_weights(
    data: memoryview, graph: _Field, weights: dict[int, memoryview]
) -> bytes:
    parts: list[bytes] = []
    index = 0
    for f in _fields(data, graph.body, graph.end):
        if f.number != GRAPH_INITIALIZER or f.wire != BYTES:
            parts.append(bytes(data[f.start : f.end]))
            continue
        tensor, raw = _tensor_without_data(data, f)
        if raw is not None:
            weights[index] = raw
        parts.append(_tag(GRAPH_INITIALIZER, len(tensor)) + tensor)
        index += 1
    return b"".join(parts)


def _tensor_without_data(data: memoryview, tensor: _Field) -> tuple[bytes, memoryview | None]:
    if tensor.end - tensor.body < LARGE:
        return bytes(data[tensor.body : tensor.end]), None
    parts: list[bytes] = []
    raw = None
    for f in _fields(data, tensor.body, tensor.end):
        if f.number == TENSOR_RAW_DATA and f.wire == BYTES and f.end - f.body >= LARGE:
            raw = data[f.body : f.end]
        else:
            parts.append(bytes(data[f.start : f.end]))
    return b"".join(parts), raw


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
    at = start
    while at < end:
        tag, body = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise _malformed(at)
        stop = _field_end(data, body, end, wire, at)
        if wire == BYTES:
            length, body = _varint(data, body, end)
            stop = body + length
        if stop > end:
            raise _truncated(at, stop - end)
        yield _Field(number, wire, at, body, stop)
        at = stop


def _field_end(data: memoryview, body: int, end: int, wire: int, at: int) -> int:
    if wire == VARINT:
        return _varint(data, body, end)[1]
    if wire == FIXED64:
        return body + 8
    if wire == FIXED32:
        return body + 4
    if wire == BYTES:
        return body
    raise _malformed(at)


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _truncated(at, 1)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _malformed(at)


def _tag(number: int, length: int) -> bytes:
    out = bytearray([number << 3 | BYTES])
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    return bytes(out)


def _malformed(at: int) -> ModelError:
    return ModelError(f"this is not an ONNX file: byte {at} starts no protobuf field")


def _truncated(at: int, missing: int) -> ModelError:
    return ModelError(f"the ONNX data is cut off: the field at byte {at} lacks {missing} bytes")
