# SPDX-License-Identifier: Apache-2.0
"""Reading a model: from a path, bytes or a ModelProto to a checked `Source`."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from treadle.errors import ModelError
from treadle.frontend.onnx.check import check_text
from treadle.frontend.onnx.external import ExternalFiles
from treadle.frontend.onnx.wire import split_weights

_NOT_ONNX = "Treadle reads ONNX models (.onnx); check that the file is one and complete"
_PARSE_LIMIT = 2 << 30


@dataclass(slots=True)
class Source:
    """A parsed model and where its weights lie.

    `weights` are the large initialisers of the main graph by index, as views of the file.
    """

    model: onnx.ModelProto
    name: str
    external: ExternalFiles
    weights: dict[int, memoryview] = field(default_factory=dict)


def open_model(model: onnx.ModelProto | str | os.PathLike[str] | bytes) -> Source:
    """Return the model as a `Source`.

    Raises:
        ModelError: there is no such file, or it is not a complete ONNX model.
    """
    if isinstance(model, onnx.ModelProto):
        name = model.graph.name or "model"
        return _checked(Source(model, name, ExternalFiles(None)))
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parse(memoryview(model), "model", ExternalFiles(None))
    path = Path(model)
    try:
        return _parse(_map(path), path.name, ExternalFiles(path.parent))
    except ModelError as e:
        if e.at:
            raise
        raise ModelError(e.problem, at=str(path), hint=e.hint or _NOT_ONNX) from None


def _map(path: Path) -> memoryview:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelError("this is a folder, not an ONNX file")
        if not stat.S_ISREG(mode):
            raise ModelError("this is not a regular file")
        with path.open("rb") as f:
            size = os.fstat(f.fileno()).st_size
            if size == 0:
                raise ModelError("the file is empty")
            return memoryview(mmap.mmap(f.fileno(), size, access=mmap.ACCESS_READ))
    except OSError as e:
        raise ModelError(f"the file cannot be read: {e.strerror}") from None
    except ValueError:
        raise ModelError("this is not a file name") from None


def _parse(data: memoryview, name: str, external: ExternalFiles) -> Source:
    split = split_weights(data.cast("B"))
    if len(split.model) >= _PARSE_LIMIT:
        raise ModelError(
            f"the model has {len(split.model)} bytes besides its weights; the format ends at 2 GB",
            hint="save the weights as external data",
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(split.model)
    except DecodeError as e:
        raise ModelError(f"this is not an ONNX file: {e}", hint=_NOT_ONNX) from None
    return _checked(Source(model, name, external, split.weights))


def _checked(source: Source) -> Source:
    if not source.model.HasField("graph"):
        raise ModelError("this is not an ONNX file: it holds no graph", hint=_NOT_ONNX)
    check_text(source.model)
    if not source.model.graph.output:
        raise ModelError("the model's graph has no outputs", hint=_NOT_ONNX)
    return source
