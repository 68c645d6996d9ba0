# SPDX-License-Identifier: Apache-2.0
"""A .tflite file as plain records: subgraphs of tensors and operators, and views of the weights.

Everything that one part of a file says of another is checked here: numbers of tensors, buffers and
subgraphs, and that weights have as many bytes as their shapes need.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError, UsageError
from treadle.frontend.inputs import mapped_file
from treadle.frontend.tflite.formats import IDENTIFIER, AnyTflite
from treadle.frontend.tflite.schema import CUSTOM, ELEMENT_TYPES, OPERATORS, PLACEHOLDER
from treadle.frontend.tflite.sparse import densified
from treadle.frontend.tflite.wire import Table, check_range

_NOT_TFLITE = "Treadle reads TFLite models (.tflite); check that the file is one and complete"
_VERSION = 3
_MOST_RANK = 32
_MOST_ELEMENTS = 1 << 40
_MOST_PARTS = 1 << 20
"""More tensors or operators than any model has; each costs memory while importing."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """Real numbers are (integer - zero point) * scale: one of each, or one per entry of `axis`."""

    scales: np.ndarray
    zero_points: np.ndarray
    axis: int

    @property
    def is_per_channel(self) -> bool:
        """True when there are several scales."""
        return self.scales.size > 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a subgraph: -1 in `shape` stands for a size that is not known.

    `value` is what a constant holds; variables keep their values from one run to the next.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    value: np.ndarray | None
    quantization: Quantization | None
    is_variable: bool


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """One operator of a subgraph; -1 among the inputs stands for one that is left out."""

    op: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options_type: int
    options: Table | None
    custom_options: memoryview


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Tensors, and operators in the order in which they run."""

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[OperatorUse, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TfliteModel:
    """A model; the first subgraph is what runs."""

    name: str
    subgraphs: tuple[Subgraph, ...]


def open_tflite(model: AnyTflite) -> TfliteModel:
    """Return a model from its file's name, its bytes or an open file.

    Raises:
        ModelError: there is no such file, or it is not a complete TFLite model.
        UsageError: it is something else than a model's file or its bytes.
    """
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        try:
            return _parsed(mapped_file(path, "a TFLite file"), path.name)
        except ModelError as e:
            at = e.at or str(path)
            raise ModelError(e.problem, at=at, hint=e.hint or _NOT_TFLITE) from None
    content = model if isinstance(model, (bytes, bytearray, memoryview)) else _read(model)
    try:
        return _parsed(memoryview(content).cast("B"), "model")
    except ModelError as e:
        raise ModelError(e.problem, at=e.at or "model", hint=e.hint or _NOT_TFLITE) from None


def _read(model: object) -> bytes:
    read = getattr(model, "read", None)
    data = read() if callable(read) else None
    if isinstance(data, bytes):
        return data
    raise UsageError(
        f"a model of type {type(model).__qualname__} cannot be read",
        hint="give the path of a .tflite file, its bytes, or the file opened in mode 'rb'",
    )


def _parsed(data: memoryview, name: str) -> TfliteModel:
    if len(data) < 8 or bytes(data[4:8]) != IDENTIFIER:
        raise ModelError("this is not a TFLite file: it does not hold 'TFL3' at byte 4")
    root = Table.root(data)
    version = root.integer(0, "uint32")
    if version != _VERSION:
        raise ModelError(f"the file has version {version} of the format, {_VERSION} is supported")
    reader = _Reader(root)
    subgraphs = tuple(reader.subgraph(k, table) for k, table in enumerate(root.tables(2)))
    if not subgraphs:
        raise ModelError("the file holds no subgraph")
    return TfliteModel(name, subgraphs)


class _Reader:
    """Reads subgraphs with the operator codes and buffers that all of them share."""

    def __init__(self, root: Table) -> None:
        self._data = root.data
        self._parts = 0
        self._codes = [self._code(t) for t in root.tables(1)]
        self._buffers = list(root.tables(4))

    def _count(self, what: str) -> None:
        """Refuse a file whose vectors name the same few tables over and over."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise ModelError(f"the file has more than {_MOST_PARTS} {what}")

    def _code(self, table: Table) -> tuple[str, int]:
        self._count("operator codes")
        number = max(table.integer(0, "int8"), table.integer(3, "int32"))
        if number == PLACEHOLDER or not 0 <= number < len(OPERATORS):
            raise ModelError(f"the file uses an operator with number {number}, which is not known")
        version = table.integer(2, "int32", 1)
        if number != CUSTOM:
            return OPERATORS[number], version
        return f"CUSTOM.{table.text(1)}", version

    def subgraph(self, index: int, table: Table) -> Subgraph:
        """Return subgraph `index`."""
        name = table.text(4) or f"subgraph {index}"
        tensors = tuple(self._tensor(k, t) for k, t in enumerate(table.tables(0)))
        at = f"subgraph {index}"
        operators = tuple(
            self._operator(f"{at}, operator {k}", t, len(tensors))
            for k, t in enumerate(table.tables(3))
        )
        inputs = _indices(table, 1, len(tensors), f"{at}, inputs")
        outputs = _indices(table, 2, len(tensors), f"{at}, outputs")
        if -1 in (*inputs, *outputs):
            raise ModelError(f"an input or output of {at} is left out")
        return Subgraph(name, tensors, operators, inputs, outputs)

    def _operator(self, at: str, table: Table, tensors: int) -> OperatorUse:
        self._count("operators")
        number = table.integer(0, "uint32")
        if number >= len(self._codes):
            raise ModelError(f"{at} has the operator code {number} of {len(self._codes)}")
        op, version = self._codes[number]
        return OperatorUse(
            op,
            version,
            _indices(table, 1, tensors, at),
            _indices(table, 2, tensors, at),
            _indices(table, 8, tensors, at),
            table.integer(3, "uint8"),
            table.table(4),
            self._custom_options(table),
        )

    def _custom_options(self, table: Table) -> memoryview:
        start, size = table.integer(9, "uint64"), table.integer(10, "uint64")
        if not size:
            return table.bytes(5)
        check_range(self._data, start, size)
        return self._data[start : start + size]

    def _tensor(self, index: int, table: Table) -> Tensor:
        self._count("tensors")
        name = table.text(3) or f"tensor_{index}"
        try:
            return self._checked_tensor(name, table)
        except ModelError as e:
            raise ModelError(e.problem, at=f"tensor {name}", hint=e.hint) from None

    def _checked_tensor(self, name: str, table: Table) -> Tensor:
        number = table.integer(1, "int8")
        if not 0 <= number < len(ELEMENT_TYPES):
            raise ModelError(f"the element type {number} is not known")
        shape = _shape(table.numbers(0, "int32"))
        signature = _shape(table.numbers(7, "int32"))
        stored, dtype = ELEMENT_TYPES[number], _graph_type(ELEMENT_TYPES[number])
        sparsity = table.table(6)
        value = self._value(table.integer(2, "uint32"), stored, shape, sparsity)
        full = signature if value is None and len(signature) == len(shape) else shape
        return Tensor(
            name,
            dtype,
            full,
            value,
            _quantization(table.table(4), shape),
            table.integer(5, "bool") == 1,
        )

    def _value(
        self, index: int, dtype: str, shape: tuple[int, ...], sparsity: Table | None
    ) -> np.ndarray | None:
        """Return what a constant holds; buffer 0 and empty ones stand for no value."""
        if index >= len(self._buffers):
            raise ModelError(f"it is in buffer {index} of {len(self._buffers)}")
        raw = self._raw(self._buffers[index])
        if not len(raw) or not index or dtype in _NAMELESS:
            return None
        if -1 in shape:
            raise ModelError(f"it is a constant of the unknown shape {list(shape)}")
        if sparsity is not None:
            return densified(sparsity, raw, _dtype_of(dtype), shape)
        return _array(raw, dtype, shape)

    def _raw(self, buffer: Table) -> memoryview:
        """Return the bytes of a buffer, which large files hold behind the FlatBuffer."""
        start, size = buffer.integer(1, "uint64"), buffer.integer(2, "uint64")
        if start <= 1:
            return buffer.bytes(0)
        check_range(self._data, start, size)
        return self._data[start : start + size]


_HALF_BYTES = "INT4"
_NAMELESS = frozenset({"STRING", "COMPLEX64", "COMPLEX128", "RESOURCE", "VARIANT"})
"""Types of which there are no arrays."""


def _graph_type(name: str) -> str:
    return "int8" if name == _HALF_BYTES else name


def _dtype_of(name: str) -> np.dtype:
    return np.dtype(dt.to_numpy(_graph_type(name)))


def _array(raw: memoryview, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the elements in some bytes, a view of them where they are of whole bytes."""
    count, kind = prod(shape), _dtype_of(dtype)
    wanted = -(-count // 2) if dtype == _HALF_BYTES else count * kind.itemsize
    if len(raw) != wanted:
        raise ModelError(f"{dtype}{list(shape)} takes {wanted} bytes, the file has {len(raw)}")
    if dtype == "bool":
        truths: np.ndarray = np.frombuffer(raw, "uint8").astype(bool)
        return truths.reshape(shape)
    if dtype == _HALF_BYTES:
        halves = np.frombuffer(raw, "int8")
        pairs: np.ndarray = np.empty((len(halves), 2), "int8")
        pairs[:, 0], pairs[:, 1] = (halves << 4) >> 4, halves >> 4
        return pairs.reshape(-1)[:count].reshape(shape)
    values = np.frombuffer(raw, kind).reshape(shape)
    return values if values.flags.aligned else values.copy()


def _shape(values: np.ndarray | None) -> tuple[int, ...]:
    shape = () if values is None else tuple(int(v) for v in values[: _MOST_RANK + 1])
    if len(shape) > _MOST_RANK or any(d < -1 for d in shape):
        raise ModelError(f"its shape {list(shape)} is none")
    if prod(max(d, 1) for d in shape) > _MOST_ELEMENTS:
        raise ModelError(f"its shape {list(shape)} has more elements than memory")
    return shape


def _indices(table: Table, field: int, count: int, at: str) -> tuple[int, ...]:
    """Return a list of tensor numbers. Raises ModelError for one that is none of `count`."""
    values = table.numbers(field, "int32")
    if values is None:
        return ()
    if values.size > _MOST_PARTS:
        raise ModelError(f"{at} names {values.size} tensors")
    made = tuple(int(v) for v in values)
    wrong = [v for v in made if not -1 <= v < count]
    if wrong:
        raise ModelError(f"{at} names tensor {wrong[0]}, there are {count}")
    return made


def _quantization(table: Table | None, shape: tuple[int, ...]) -> Quantization | None:
    """Return how a tensor is quantised; a table without scales says nothing."""
    scales = None if table is None else table.numbers(2, "float32")
    if table is None or scales is None or not scales.size:
        return None
    points = table.numbers(3, "int64")
    zero_points = np.zeros(1, "int64") if points is None or not points.size else points
    axis = table.integer(6, "int32")
    _check_quantization(scales, zero_points, axis, shape)
    return Quantization(scales.astype("float32"), zero_points.astype("int64"), axis)


def _check_quantization(
    scales: np.ndarray, zero_points: np.ndarray, axis: int, shape: tuple[int, ...]
) -> None:
    if not np.isfinite(scales).all() or (scales < 0).any():
        raise ModelError("its quantisation has a scale that is no positive number")
    if (np.abs(zero_points) > 1 << 31).any():
        raise ModelError("its quantisation has a zero point outside of 32 bits")
    if zero_points.size not in (1, scales.size):
        raise ModelError(
            f"its quantisation has {scales.size} scales and {zero_points.size} zero points"
        )
    if scales.size > 1 and not (0 <= axis < len(shape) and shape[axis] in (-1, scales.size)):
        raise ModelError(f"its {scales.size} scales do not fit axis {axis} of {list(shape)}")
