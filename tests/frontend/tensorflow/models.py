# SPDX-License-Identifier: Apache-2.0
"""GraphDefs and SavedModels made for tests: protobuf messages written field by field."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import treadle
from treadle.build.reading import from_tensorflow
from treadle.frontend.tensorflow.checkpoint import _crc32c
from treadle.frontend.tensorflow.tensors import DTYPES

NUMBERS = {name: number for number, name in DTYPES.items()}


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def chunk(number: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def single(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)


def shape_message(shape: Sequence[int] | None) -> bytes:
    if shape is None:
        return integer(3, 1)
    return b"".join(chunk(2, integer(1, d)) for d in shape)


def tensor_message(value: np.ndarray) -> bytes:
    head = integer(1, NUMBERS[value.dtype.name]) + chunk(2, shape_message(value.shape))
    return head + chunk(4, np.ascontiguousarray(value).tobytes())


@dataclass(frozen=True)
class Kind:
    """The element type that an attribute names."""

    name: str


@dataclass(frozen=True)
class Shape:
    """The shape that an attribute holds."""

    dims: tuple[int, ...] | None


@dataclass(frozen=True)
class Called:
    """The function that an attribute names."""

    name: str


@dataclass(frozen=True)
class Texts:
    """A tensor of texts."""

    values: tuple[str, ...]


def attribute(value: Any) -> bytes:
    match value:
        case bool():
            return integer(5, int(value))
        case int():
            return integer(3, value)
        case float():
            return single(4, value)
        case str():
            return chunk(2, value)
        case Kind():
            return integer(6, NUMBERS[value.name])
        case Shape():
            return chunk(7, shape_message(value.dims))
        case Called():
            return chunk(10, chunk(1, value.name))
        case Texts():
            head = integer(1, NUMBERS["STRING"]) + chunk(2, shape_message([len(value.values)]))
            return chunk(8, head + b"".join(chunk(8, v) for v in value.values))
        case np.ndarray():
            return chunk(8, tensor_message(value))
        case [Called(), *_]:
            return chunk(1, b"".join(chunk(9, chunk(1, v.name)) for v in value))
        case _:
            return chunk(1, chunk(3, b"".join(varint(v) for v in value)))


def node_message(name: str, op: str, inputs: Sequence[str], attributes: Mapping[str, Any]) -> bytes:
    made = chunk(1, name) + chunk(2, op) + b"".join(chunk(3, i) for i in inputs)
    for key, value in attributes.items():
        made += chunk(5, chunk(1, key) + chunk(2, attribute(value)))
    return made


@dataclass
class Nodes:
    """Nodes of a graph or a function, in order."""

    parts: list[bytes] = field(default_factory=list)
    count: int = 0

    def node(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        self.count += 1
        name = name or f"{op.lower()}_{self.count}"
        self.parts.append(node_message(name, op, inputs, attributes))
        return name

    def constant(self, value: Any, dtype: str = "float32", name: str = "") -> str:
        array = np.asarray(value, dtype)
        return self.node("Const", name=name, value=array, dtype=Kind(array.dtype.name))


@dataclass
class Function(Nodes):
    """A function: its arguments, and what its results are."""

    name: str = "f"
    arguments: Sequence[str] = ()
    results: Mapping[str, str] = field(default_factory=dict)

    def called(self) -> Called:
        """Return what an attribute names this function by."""
        return Called(self.name)

    def message(self) -> bytes:
        signature = chunk(1, self.name)
        signature += b"".join(chunk(2, chunk(1, a)) for a in self.arguments)
        signature += b"".join(chunk(3, chunk(1, r)) for r in self.results)
        made = chunk(1, signature) + b"".join(chunk(3, p) for p in self.parts)
        for key, value in self.results.items():
            made += chunk(4, chunk(1, key) + chunk(2, value))
        return made


@dataclass
class Graph(Nodes):
    """A graph with its functions."""

    functions: list[Function] = field(default_factory=list)

    def input(self, name: str, shape: Sequence[int] | None, dtype: str = "float32") -> str:
        dims = None if shape is None else tuple(shape)
        return self.node("Placeholder", name=name, dtype=Kind(dtype), shape=Shape(dims))

    def function(self, name: str, arguments: Sequence[str]) -> Function:
        made = Function(name=name, arguments=arguments)
        self.functions.append(made)
        return made

    def message(self) -> bytes:
        made = b"".join(chunk(1, p) for p in self.parts)
        if self.functions:
            made += chunk(2, b"".join(chunk(1, f.message()) for f in self.functions))
        return made

    def write(self, folder: Path, name: str = "graph.pb") -> Path:
        path = folder / name
        path.write_bytes(self.message())
        return path


def computed(
    graph: Graph, folder: Path, inputs: Mapping[str, np.ndarray], **options: Any
) -> list[np.ndarray]:
    """Return the outputs of a graph by Treadle."""
    module = from_tensorflow(graph.write(folder), **options)
    return [np.asarray(v) for v in treadle.compile(module).run(dict(inputs))]


def checkpoint_files(folder: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint `variables` of one file, as TensorFlow does."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = {"": integer(1, 1)}
    data = b""
    for key in sorted(tensors):
        value = tensors[key]
        raw = np.ascontiguousarray(value).tobytes()
        entries[key] = (
            integer(1, NUMBERS[value.dtype.name])
            + chunk(2, shape_message(value.shape))
            + integer(4, len(data))
            + integer(5, len(raw))
        )
        data += raw
    (folder / "variables.data-00000-of-00001").write_bytes(data)
    (folder / "variables.index").write_bytes(table_file(entries))


def table_file(entries: Mapping[str, bytes]) -> bytes:
    """Return a sorted table of one block; keys share what they begin with alike."""
    block, last = b"", b""
    for key, value in sorted(entries.items()):
        raw = key.encode()
        shared = 0
        while shared < min(len(raw), len(last)) and raw[shared] == last[shared]:
            shared += 1
        block += varint(shared) + varint(len(raw) - shared) + varint(len(value))
        block += raw[shared:] + value
        last = raw
    block += struct.pack("<II", 0, 1)
    out = _stored(block)
    handle = varint(0) + varint(len(block))
    index = varint(0) + varint(1) + varint(len(handle)) + b"~" + handle + struct.pack("<II", 0, 1)
    at = len(out)
    out += _stored(index)
    footer = varint(at) + varint(len(index)) + varint(at) + varint(len(index))
    return out + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def _stored(block: bytes) -> bytes:
    crc = _crc32c(memoryview(block + b"\0"))
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return block + b"\0" + struct.pack("<I", masked)


def saved_model(
    folder: Path,
    graph: Graph,
    inputs: Mapping[str, tuple[str, str, Sequence[int] | None]],
    outputs: Mapping[str, tuple[str, str]],
    restore: str = "",
    tags: Sequence[str] = ("serve",),
) -> Path:
    """Write a SavedModel whose `serving_default` has these (node, type, shape)."""
    signature = b""
    for key, (name, dtype, shape) in inputs.items():
        info = chunk(1, name) + integer(2, NUMBERS[dtype]) + chunk(3, shape_message(shape))
        signature += chunk(1, chunk(1, key) + chunk(2, info))
    for key, (name, dtype) in outputs.items():
        info = chunk(1, name) + integer(2, NUMBERS[dtype])
        signature += chunk(2, chunk(1, key) + chunk(2, info))
    meta = chunk(1, b"".join(chunk(4, t) for t in tags)) + chunk(2, graph.message())
    meta += chunk(3, chunk(3, restore)) if restore else b""
    meta += chunk(5, chunk(1, "serving_default") + chunk(2, signature))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(integer(1, 1) + chunk(2, meta))
    return folder
