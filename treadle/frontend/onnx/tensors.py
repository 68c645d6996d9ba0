# SPDX-License-Identifier: Apache-2.0
"""TensorProto and SparseTensorProto to NumPy arrays; large ones as views, never copies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod

import numpy as np
import onnx

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.onnx.external import ExternalFiles

SPARSE_LIMIT = 64 << 20
"""A sparse tensor may become this many bytes when written out."""

_P = onnx.TensorProto
DTYPES: dict[int, str] = {
    _P.FLOAT: "float32",
    _P.UINT8: "uint8",
    _P.INT8: "int8",
    _P.UINT16: "uint16",
    _P.INT16: "int16",
    _P.INT32: "int32",
    _P.INT64: "int64",
    _P.BOOL: "bool",
    _P.FLOAT16: "float16",
    _P.DOUBLE: "float64",
    _P.UINT32: "uint32",
    _P.UINT64: "uint64",
    _P.BFLOAT16: "bfloat16",
    _P.FLOAT8E4M3FN: "float8_e4m3fn",
    _P.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    _P.FLOAT8E5M2: "float8_e5m2",
    _P.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    _P.FLOAT8E8M0: "float8_e8m0fnu",
    _P.FLOAT4E2M1: "float4_e2m1fn",
    _P.INT4: "int4",
    _P.UINT4: "uint4",
    _P.INT2: "int2",
    _P.UINT2: "uint2",
}

_FIELDS: dict[str, str] = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}
"""Where values lie when they are not raw bytes; every other type uses `int32_data`."""


def dtype_of(element_type: int) -> str:
    """Return the element type of an ONNX type number. Raises ModelError for the others."""
    if element_type in DTYPES:
        return DTYPES[element_type]
    names = {v: k.lower() for k, v in _P.DataType.items()}
    name = names.get(element_type, f"number {element_type}")
    raise ModelError(
        f"the element type {name} is not supported",
        hint=f"supported are {', '.join(DTYPES.values())}",
    )


def to_array(
    tensor: onnx.TensorProto, external: ExternalFiles, raw: memoryview | None = None
) -> np.ndarray:
    """Return the values of `tensor`: a view of `raw`, of its file, or of its bytes.

    Raises:
        ModelError: the shape is impossible, or does not agree with the data.
    """
    dtype = dtype_of(tensor.data_type)
    shape = _shape(tensor.dims)
    if tensor.HasField("segment"):
        raise ModelError("tensors stored in segments are not supported")
    nbytes = _stored_bytes(prod(shape), dtype)
    if tensor.data_location == _P.EXTERNAL:
        entries = {e.key: e.value for e in tensor.external_data}
        return _from_bytes(external.read(entries, nbytes), shape, dtype)
    if raw is not None:
        return _from_bytes(raw, shape, dtype)
    if tensor.HasField("raw_data"):
        return _from_bytes(memoryview(tensor.raw_data), shape, dtype)
    return _from_values(tensor, shape, dtype)


def _shape(dims: Sequence[int]) -> tuple[int, ...]:
    if any(d < 0 for d in dims):
        raise ModelError(f"a tensor has the shape {list(dims)} with a negative dimension")
    if prod(dims) > 1 << 48:
        raise ModelError(f"a tensor of shape {list(dims)} fits in no memory")
    return tuple(dims)


def _stored_bytes(count: int, dtype: str) -> int:
    """Return the bytes of `count` elements in a file, where those below 8 bits are packed."""
    return -(-count * dt.NARROW_BITS.get(dtype, dt.bits(dtype)) // 8)


def _unpacked(data: np.ndarray, count: int, dtype: str) -> np.ndarray:
    """Return elements of fewer than 8 bits, the first in the lowest bits, in a byte each."""
    width = dt.NARROW_BITS[dtype]
    if width < 8:
        parts = data[:, None] >> np.arange(0, 8, width, dtype="uint8") & ((1 << width) - 1)
        data = parts.reshape(-1)[:count]
    return data.view(dt.to_numpy(dtype))


def _from_bytes(data: memoryview, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    nbytes = _stored_bytes(prod(shape), dtype)
    if len(data) != nbytes:
        raise ModelError(
            f"a tensor of shape {list(shape)} and type {dtype} needs {nbytes} bytes, "
            f"the file holds {len(data)}"
        )
    if dt.is_narrow(dtype):
        return _unpacked(np.frombuffer(data, dtype="uint8"), prod(shape), dtype).reshape(shape)
    values = np.frombuffer(data, dtype=dt.to_numpy(dtype)).reshape(shape)
    if dtype == "bool" and bool(np.any(values.view("uint8") > 1)):
        raise ModelError("a bool tensor holds bytes other than 0 and 1")
    return values.byteswap() if sys.byteorder == "big" else values


def _from_values(tensor: onnx.TensorProto, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    name = _FIELDS.get(dtype, "int32_data")
    values = getattr(tensor, name)
    needed = _stored_bytes(prod(shape), dtype) if dt.is_narrow(dtype) else prod(shape)
    if len(values) != needed:
        raise ModelError(
            f"a tensor of shape {list(shape)} needs {needed} values, "
            f"the file holds {len(values)} in {name}"
        )
    if dt.is_narrow(dtype):
        packed = np.array(values, dtype="int64").astype("uint8")
        return _unpacked(packed, prod(shape), dtype).reshape(shape)
    if dtype in ("float16", "bfloat16"):  # bit patterns
        bits = np.array(values, dtype="int64").astype("uint16")
        return bits.view(dt.to_numpy(dtype)).reshape(shape)
    kind = {"float_data": "float32", "double_data": "float64", "uint64_data": "uint64"}
    return np.array(values, dtype=kind.get(name, "int64")).astype(dt.to_numpy(dtype)).reshape(shape)


def sparse_to_array(sparse: onnx.SparseTensorProto, external: ExternalFiles) -> np.ndarray:
    """Return a sparse tensor written out, with every index checked.

    Raises:
        ModelError: the tensor is too large, or its indices do not fit its shape.
    """
    shape = _shape(sparse.dims)
    values = to_array(sparse.values, external)
    indices = to_array(sparse.indices, external)
    if prod(shape) * values.itemsize > SPARSE_LIMIT:
        raise ModelError(f"a sparse tensor of shape {list(shape)} is too large to write out")
    count = values.size
    if values.ndim != 1 or indices.shape not in ((count,), (count, len(shape))):
        raise ModelError(
            f"a sparse tensor has {list(values.shape)} values and {list(indices.shape)} indices"
        )
    if indices.ndim == 2:
        bounds = np.array(shape, dtype="int64")
        if bool(np.any(indices < 0)) or bool(np.any(indices >= bounds)):
            raise ModelError(f"a sparse tensor has an index outside its shape {list(shape)}")
        indices = np.ravel_multi_index(tuple(indices.T), shape) if count else indices[:, 0]
    elif bool(np.any(indices < 0)) or bool(np.any(indices >= prod(shape))):
        raise ModelError(f"a sparse tensor has an index outside its shape {list(shape)}")
    flat = np.zeros(prod(shape), dtype=values.dtype)
    flat[indices] = values
    return flat.reshape(shape)
