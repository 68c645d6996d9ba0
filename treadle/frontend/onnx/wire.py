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
from treadle.frontend.protobuf import BYTES, Field, fields

MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_RAW_DATA = 7, 5, 9
"""Field numbers of the ONNX schema on the way to a weight's bytes."""

LARGE = 4096
"""Weights of at least this many bytes stay in the file."""


@dataclass(slots=True)
class Split:
    """A model without its large weights, and those weights by initialiser index."""

    model: bytes
    weights: dict[int, memoryview] = field(default_factory=dict)


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


def _graph_without_weights(data: memoryview, graph: Field, weights: dict[int, memoryview]) -> bytes:
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


def _tensor_without_data(data: memoryview, tensor: Field) -> tuple[bytes, memoryview | None]:
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


def _fields(data: memoryview, start: int, end: int) -> Iterator[Field]:
    return fields(data, start, end, "an ONNX")


def _tag(number: int, length: int) -> bytes:
    out = bytearray([number << 3 | BYTES])
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    return bytes(out)
