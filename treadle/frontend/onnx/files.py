# SPDX-License-Identifier: Apache-2.0
"""Reading a model: from a path, bytes or a ModelProto to a checked `Source`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Union

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from treadle.errors import ModelError, UsageError
from treadle.frontend.inputs import mapped_file
from treadle.frontend.onnx.diagnostics import check_text
from treadle.frontend.onnx.external import ExternalFiles
from treadle.frontend.onnx.wire import split_weights

_NOT_ONNX = "Treadle reads ONNX models (.onnx); check that the file is one and complete"
_PARSE_LIMIT = 2 << 30
_EXPORTS = {
    "torch": "compile a module with its example inputs: treadle.compile(module, inputs)",
    "keras": "export it first: model.export('model.onnx', format='onnx')",
    "tensorflow": "export it first, for example with tf2onnx",
    "sklearn": "export it first, for example with skl2onnx",
    "xgboost": "export it first, for example with onnxmltools",
    "lightgbm": "export it first, for example with onnxmltools",
}
"""How models of other packages become ONNX models."""


@dataclass(slots=True)
class Source:
    """A parsed model and where its weights lie.

    `weights` are the large initialisers of the main graph by index, as views of the file.
    """

    model: onnx.ModelProto
    name: str
    external: ExternalFiles
    weights: dict[int, memoryview] = field(default_factory=dict)


AnyModel = Union[onnx.ModelProto, str, "os.PathLike[str]", bytes, bytearray, memoryview, IO[bytes]]
"""What a model can be read from; objects of exporters that have a `model_proto` are taken, too."""


def open_model(model: AnyModel) -> Source:
    """Return the model as a `Source`.

    Raises:
        ModelError: there is no such file, or it is not a complete ONNX model.
        UsageError: it is something else than a model, its file or its bytes.
    """
    exported = getattr(model, "model_proto", None)  # an ONNXProgram of torch.onnx.export
    if isinstance(exported, onnx.ModelProto):
        model = exported
    if isinstance(model, onnx.ModelProto):
        name = model.graph.name or "model"
        return _checked(Source(model, name, ExternalFiles(None)))
    content = _content(model)
    if content is not None:
        return _parse(memoryview(content), "model", ExternalFiles(None))
    if not isinstance(model, (str, os.PathLike)):
        raise _no_model(model)
    path = Path(model)
    try:
        return _parse(mapped_file(path, "an ONNX file"), path.name, ExternalFiles(path.parent))
    except ModelError as e:
        if e.at:
            raise
        raise ModelError(e.problem, at=str(path), hint=e.hint or _NOT_ONNX) from None


def _content(model: object) -> bytes | bytearray | memoryview | None:
    """Return the bytes of a model that is not a file's name."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return model
    read = None if isinstance(model, (str, os.PathLike)) else getattr(model, "read", None)
    data = read() if callable(read) else None
    if isinstance(data, str):
        raise UsageError("the model's file is open as text", hint='open it with mode "rb"')
    return data if isinstance(data, bytes) else None


def _no_model(model: object) -> UsageError:
    """Return the error for what is neither an ONNX model nor where one is."""
    kind = type(model)
    origins = {c.__module__.partition(".")[0] for c in kind.__mro__}
    advice = [text for package, text in _EXPORTS.items() if package in origins]
    return UsageError(
        f"a model of type {kind.__module__}.{kind.__qualname__} cannot be compiled",
        hint=(advice or ["give the path of an ONNX file, its bytes, or a ModelProto"])[0],
    )


def _parse(data: memoryview, name: str, external: ExternalFiles) -> Source:
    split = split_weights(data.cast("B"))
    if len(split.model) >= _PARSE_LIMIT:
        raise ModelError(
            f"the model has {len(split.model)} bytes without its weights; the format ends at 2 GB",
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
