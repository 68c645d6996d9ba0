# SPDX-License-Identifier: Apache-2.0
"""TFLite files made for tests: graphs of tensors and operators, written as FlatBuffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from treadle.frontend.tflite.schema import CUSTOM, ELEMENT_TYPES, OPERATORS, PLACEHOLDER, options_of

NP = {
    name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    for name in ELEMENT_TYPES
    if not name.isupper()
}
SLOTS = {
    "bool": "PrependBoolSlot",
    "int8": "PrependInt8Slot",
    "uint8": "PrependUint8Slot",
    "int32": "PrependInt32Slot",
    "uint32": "PrependUint32Slot",
    "float32": "PrependFloat32Slot",
}


VERSIONS = {"BROADCAST_TO": 2}
"""Operators of which the interpreter knows no version 1."""


@dataclass(frozen=True)
class Scale:
    """How a tensor is quantised: one scale, or one per entry of an axis."""

    scale: float | Sequence[float]
    zero: int | Sequence[int] = 0
    axis: int = 0


@dataclass
class TensorSpec:
    name: str
    shape: tuple[int, ...]
    dtype: str
    value: np.ndarray | None = None
    scale: Scale | None = None
    signature: tuple[int, ...] | None = None
    is_variable: bool = False


@dataclass
class OpSpec:
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] | None
    custom: bytes = b""


@dataclass
class Graph:
    """A subgraph in the making; methods return the numbers of tensors."""

    name: str = "main"
    tensors: list[TensorSpec] = field(default_factory=list)
    ops: list[OpSpec] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def _add(self, spec: TensorSpec) -> int:
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        scale: Scale | None = None,
        signature: Sequence[int] | None = None,
    ) -> int:
        spec = TensorSpec(name, tuple(shape), dtype, None, scale)
        spec.signature = None if signature is None else tuple(signature)
        self.inputs.append(self._add(spec))
        return self.inputs[-1]

    def constant(self, value: Any, dtype: str = "", scale: Scale | None = None) -> int:
        array = np.asarray(value)
        array = array.astype(NP[dtype]) if dtype else array
        name = f"constant_{len(self.tensors)}"
        return self._add(TensorSpec(name, array.shape, array.dtype.name, array, scale))

    def variable(
        self, shape: Sequence[int], dtype: str = "float32", scale: Scale | None = None
    ) -> int:
        name = f"variable_{len(self.tensors)}"
        return self._add(TensorSpec(name, tuple(shape), dtype, None, scale, None, True))

    def op(
        self,
        op: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        dtype: str = "float32",
        scale: Scale | None = None,
        options: Mapping[str, Any] | None = None,
        custom: bytes = b"",
        name: str = "",
    ) -> int:
        """Add an operator of one result."""
        return self.multi(op, inputs, [(shape, dtype, scale)], options, custom, name)[0]

    def multi(
        self,
        op: str,
        inputs: Sequence[int],
        results: Sequence[tuple[Any, ...]],
        options: Mapping[str, Any] | None = None,
        custom: bytes = b"",
        name: str = "",
    ) -> list[int]:
        """Add an operator of results (shape, dtype, scale)."""
        made = []
        for shape, dtype, scale in results:
            called = name or f"{op.lower()}_{len(self.tensors)}"
            made.append(self._add(TensorSpec(called, tuple(shape), dtype, None, scale)))
        self.ops.append(OpSpec(op, tuple(inputs), tuple(made), options, custom))
        return made

    def result(self, *tensors: int) -> Graph:
        self.outputs += tensors
        return self


def model(*graphs: Graph) -> bytes:
    """Return the bytes of a file of these subgraphs."""
    import flatbuffers

    return _Writer(flatbuffers.Builder(1 << 12)).model(graphs)


class _Writer:
    def __init__(self, builder: Any) -> None:
        self.b = builder
        self.codes: list[str] = []
        self.buffers: list[bytes] = [b""]

    def model(self, graphs: Sequence[Graph]) -> bytes:
        made = [self._graph(g) for g in graphs]
        subgraphs = self._offsets(made)
        codes = self._offsets([self._code(op) for op in self.codes])
        buffers = self._offsets(
            [self._table([(0, "o", self._raw(d) if d else 0)], 3) for d in self.buffers]
        )
        root = self._table(
            [(0, "uint32", 3), (1, "o", codes), (2, "o", subgraphs), (4, "o", buffers)], 8
        )
        self.b.Finish(root, b"TFL3")
        return bytes(self.b.Output())

    def _raw(self, data: bytes) -> int:
        self.b.StartVector(1, len(data), 16)
        self.b.head -= len(data)
        self.b.Bytes[self.b.head : self.b.head + len(data)] = data
        return int(self.b.EndVector())

    def _vector(self, values: Sequence[Any], kind: str) -> int:
        return int(self.b.CreateNumpyVector(np.asarray(values, kind)))

    def _offsets(self, values: Sequence[int]) -> int:
        self.b.StartVector(4, len(values), 4)
        for v in reversed(values):
            self.b.PrependUOffsetTRelative(v)
        return int(self.b.EndVector())

    def _table(self, fields: Sequence[tuple[int, str, Any]], count: int) -> int:
        self.b.StartObject(count)
        for slot, kind, value in fields:
            if kind == "o":
                if value:
                    self.b.PrependUOffsetTRelativeSlot(slot, value, 0)
            else:
                getattr(self.b, SLOTS[kind])(slot, value, None)
        return int(self.b.EndObject())

    def _code(self, op: str) -> int:
        name, _, custom = op.partition(".")
        number = OPERATORS.index(name)
        text = self.b.CreateString(custom) if number == CUSTOM else 0
        old = min(number, PLACEHOLDER)
        return self._table(
            [
                (0, "int8", old),
                (1, "o", text),
                (2, "int32", VERSIONS.get(op, 1)),
                (3, "int32", number),
            ],
            4,
        )

    def _graph(self, graph: Graph) -> int:
        tensors = self._offsets([self._tensor(t) for t in graph.tensors])
        ops = self._offsets([self._op(o) for o in graph.ops])
        ins, outs = self._vector(graph.inputs, "int32"), self._vector(graph.outputs, "int32")
        name = self.b.CreateString(graph.name)
        return self._table(
            [(0, "o", tensors), (1, "o", ins), (2, "o", outs), (3, "o", ops), (4, "o", name)], 5
        )

    def _tensor(self, t: TensorSpec) -> int:
        buffer = 0
        if t.value is not None:
            buffer = len(self.buffers)
            self.buffers.append(np.ascontiguousarray(t.value).tobytes())
        shape = self._vector(t.shape, "int32")
        signature = 0 if t.signature is None else self._vector(t.signature, "int32")
        name = self.b.CreateString(t.name)
        how = self._quantization(t.scale)
        kind = ELEMENT_TYPES.index(t.dtype)
        return self._table(
            [
                (0, "o", shape),
                (1, "int8", kind),
                (2, "uint32", buffer),
                (3, "o", name),
                (4, "o", how),
                (5, "bool", t.is_variable),
                (7, "o", signature),
            ],
            10,
        )

    def _quantization(self, scale: Scale | None) -> int:
        if scale is None:
            return 0
        scales = self._vector(np.atleast_1d(scale.scale), "float32")
        zeros = np.broadcast_to(np.atleast_1d(scale.zero), np.atleast_1d(scale.scale).shape)
        points = self._vector(zeros, "int64")
        return self._table([(2, "o", scales), (3, "o", points), (6, "int32", scale.axis)], 7)

    def _op(self, o: OpSpec) -> int:
        if o.op not in self.codes:
            self.codes.append(o.op)
        number, fields = options_of(o.op)
        options = 0
        if number and o.options is not None:
            values = []
            for name, value in o.options.items():
                place, kind, _ = fields[name]
                if kind.startswith("["):
                    values.append((place, "o", self._vector(value, kind[1:-1])))
                else:
                    values.append((place, kind, value))
            options = self._table(values, max(len(fields), 1))
        ins, outs = self._vector(o.inputs, "int32"), self._vector(o.outputs, "int32")
        custom = self._vector(np.frombuffer(o.custom, "uint8"), "uint8") if o.custom else 0
        return self._table(
            [
                (0, "uint32", self.codes.index(o.op)),
                (1, "o", ins),
                (2, "o", outs),
                (3, "uint8", number if options else 0),
                (4, "o", options),
                (5, "o", custom),
            ],
            13,
        )
