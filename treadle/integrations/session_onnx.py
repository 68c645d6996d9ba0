# SPDX-License-Identifier: Apache-2.0
"""ONNX files behind a session: compiled once for all sizes, or else for each set of shapes."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from treadle import dtype as dtypes
from treadle.build.compile import compile_model
from treadle.build.executable import Executable
from treadle.build.loaded import Size
from treadle.errors import (
    InternalError,
    ModelError,
    SizesError,
    TypeMismatch,
    UnsupportedOperators,
    UsageError,
)
from treadle.frontend.importer import did_you_mean
from treadle.frontend.onnx.core.sequence import arrays_of
from treadle.frontend.onnx.files import open_model
from treadle.frontend.onnx.importer import import_onnx
from treadle.frontend.onnx.tensors import DTYPES
from treadle.integrations.onnx_backend import TreadleRep
from treadle.integrations.session_model import (
    TYPE_NAMES,
    ModelMetadata,
    NodeArg,
    args_of,
)
from treadle.runtime.executor import Executor
from treadle.settings import get, use

_AVOIDED = (
    "to avoid it, fix sizes that never change, by "
    "SessionOptions.add_free_dimension_override_by_name or when the model is exported"
)
"""What to do where runs compile."""

Source = str | os.PathLike[str] | bytes


class OnnxModel:
    """An ONNX model, ready to run at any sizes its inputs leave open.

    `sizes` fixes sizes by the names they have in the file. Unless it is `quiet`, the first run that
    compiles for its sizes says so in a warning.
    """

    def __init__(
        self, source: Source, opt_level: int, sizes: Mapping[str, int], *, quiet: bool = False
    ) -> None:
        self._is_quiet = quiet
        found = open_model(source).model
        graph = found.graph
        stored = {t.name for t in graph.initializer}
        stored |= {t.values.name for t in graph.sparse_initializer}
        given = [i for i in graph.input if i.name not in stored]
        self.metadata = _metadata(found)
        self.inputs: Sequence[NodeArg] = [_fixed(_arg(i), sizes) for i in given]
        _check_names(sizes, given)
        self.notes: Sequence[str] = ()
        self._compiled: Executable | None = None
        self._plain: Executor | None = None  # where all results are arrays and it checks inputs
        self._each = _CompiledForEach(source, opt_level)
        self._compile(source, opt_level)
        names = {size for i in given for size in _sizes(i.type.tensor_type.shape)}
        outputs = list(map(_arg, graph.output))
        if self._compiled is None:
            outputs = _inferred(outputs, found)
        elif all(isinstance(s, tuple) for s in self._compiled.module.structures):
            if _asks_all(self._compiled.executor, self.inputs):
                self._plain = self._compiled.executor
            made = zip(outputs, args_of(self._compiled)[1], strict=True)
            outputs = [_settled(declared, compiled, names) for declared, compiled in made]
        self.outputs: Sequence[NodeArg] = [_fixed(output, sizes) for output in outputs]

    def _compile(self, source: Source, opt_level: int) -> None:
        """Compile for all sizes, or note why that is impossible."""
        if all(i.dtype is not None for i in self.inputs):
            try:
                self._compiled = self._for_any_size(source, opt_level)
            except (UnsupportedOperators, InternalError):
                raise
            except (ModelError, TypeMismatch) as error:
                reason = " ".join(error.problem.split())
                note = "the model is compiled anew for each new set of shapes or parameters"
                self.notes = (f"{note}: {reason}; {_AVOIDED}",)

    def _for_any_size(self, source: Source, opt_level: int) -> Executable:
        known = {i.name: [s for s in i.shape if isinstance(s, int)] for i in self.inputs}
        ranks = {i.name: len(i.shape) for i in self.inputs if i.is_ranked}
        shapes = {name: sizes for name, sizes in known.items() if len(sizes) == ranks.get(name)}
        module = import_onnx(source, shapes, dynamic=True).module
        made = compile_model(module, opt_level=opt_level)
        _ = made.executor  # made here, where the settings of the session are in force
        return made

    def run_fitting(self, values: Mapping[str, Any]) -> list[np.ndarray] | None:
        """Return all outputs where the values can be used as they are, else None."""
        if self._plain is None:
            return None
        try:
            return self._plain.run_fitting(values)
        except SizesError:
            return None  # `run` says so and compiles for these

    def run(self, values: Mapping[str, Any]) -> Sequence[Any]:
        """Return all outputs: arrays, lists of them, or None.

        Sizes that the program for any sizes refuses, such as those that change how many axes a
        value has, are compiled for when they are met.
        """
        if self._compiled is None:
            return self._each.run(values)
        try:
            made = self._compiled.run(values)
        except SizesError as error:
            self._warn(values, error)
            return self._each.run(values)
        results = (o.numpy() for o in made)
        return [arrays_of(s, results) for s in self._compiled.module.structures]

    def _warn(self, values: Mapping[str, Any], error: SizesError) -> None:
        """Say once that runs of some sizes compile, which ones, and how to avoid it."""
        if self._is_quiet:
            return
        self._is_quiet = True
        sizes = ", ".join(
            f"{name} {'x'.join(map(str, np.shape(value))) or 'of no axes'}"
            for name, value in values.items()
        )
        warnings.warn(
            f"the model is compiled anew for the sizes of this run ({sizes}), and for each set of "
            f"sizes like these: {' '.join(error.problem.split())}; {_AVOIDED}",
            stacklevel=4,  # the caller of InferenceSession.run
        )


class _CompiledForEach:
    """A model that is compiled for each set of shapes, parameters, or elements of sequences."""

    def __init__(self, source: Source, opt_level: int) -> None:
        self._source = source if isinstance(source, bytes) else os.fspath(source)
        self._opt_level = opt_level
        self._threads = get().num_threads
        self._lock = threading.Lock()

    @cached_property
    def _prepared(self) -> TreadleRep:
        return TreadleRep(self._source, "llvm", self._opt_level)

    def run(self, values: Mapping[str, Any]) -> Sequence[Any]:
        """Return all outputs; runs wait for each other, as any may compile."""
        with self._lock, use(num_threads=self._threads):
            return self._prepared.run(values)


def _asks_all(executor: Executor, inputs: Sequence[NodeArg]) -> bool:
    """True where an executor refuses all that inputs as they are declared rule out.

    A size that is fixed by name is open to the executor, whose code is made for all.
    """
    return all(
        size == wanted
        for declared, info in zip(inputs, executor.inputs, strict=True)
        for size, wanted in zip(info.shape, declared.shape, strict=False)  # none where unranked
        if isinstance(wanted, int)
    )


# ---- what a file says ----------------------------------------------------------------------------


def _metadata(model: onnx.ModelProto) -> ModelMetadata:
    return ModelMetadata(
        {entry.key: entry.value for entry in model.metadata_props},
        model.doc_string,
        model.domain,
        model.graph.doc_string,
        model.graph.name,
        model.producer_name,
        model.model_version,
    )


def _type_text(type_: onnx.TypeProto) -> str:
    """Return a type as onnxruntime writes it: seq(tensor(float))."""
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({_type_text(type_.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_type_text(type_.optional_type.elem_type)})"
    if kind == "map_type":
        key = _element_text(type_.map_type.key_type)
        return f"map({key},{_type_text(type_.map_type.value_type)})"
    number = (
        type_.sparse_tensor_type.elem_type
        if kind == "sparse_tensor_type"
        else type_.tensor_type.elem_type
    )
    word = "sparse_tensor" if kind == "sparse_tensor_type" else "tensor"
    return f"{word}({_element_text(number)})"


def _element_text(number: int) -> str:
    if number not in DTYPES:
        return str(onnx.TensorProto.DataType.Name(number)).lower()
    return TYPE_NAMES.get(DTYPES[number], DTYPES[number])


def _arg(declared: onnx.ValueInfoProto) -> NodeArg:
    tensor = declared.type.tensor_type
    is_tensor = declared.type.WhichOneof("value") in ("tensor_type", None)
    name = DTYPES.get(tensor.elem_type) if is_tensor else None
    return NodeArg(
        declared.name,
        _type_text(declared.type),
        list(_sizes(tensor.shape)),
        None if name is None else dtypes.to_numpy(name),
        is_ranked=tensor.HasField("shape"),
    )


def _sizes(shape: onnx.TensorShapeProto) -> Iterator[Size | None]:
    for dim in shape.dim:
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
            yield dim.dim_value
        else:
            yield dim.dim_param or None


def _fixed(arg: NodeArg, sizes: Mapping[str, int]) -> NodeArg:
    shape = [sizes.get(size, size) if isinstance(size, str) else size for size in arg.shape]
    return replace(arg, shape=shape)


def _check_names(sizes: Mapping[str, int], inputs: Sequence[onnx.ValueInfoProto]) -> None:
    known = {size for i in inputs for size in _sizes(i.type.tensor_type.shape)}
    for name in sizes:
        if name not in known:
            named = [size for size in known if isinstance(size, str)]
            raise UsageError(f"no input has a size {name!r}", hint=did_you_mean(name, named))


def _inferred(declared: list[NodeArg], model: onnx.ModelProto) -> list[NodeArg]:
    """Return outputs with the types that follow from the inputs, where the file leaves them out."""
    if all("undefined" not in output.type for output in declared):
        return declared
    known = {o.name: _arg(o) for o in onnx.shape_inference.infer_shapes(model).graph.output}
    return [known.get(output.name, output) for output in declared]


def _settled(declared: NodeArg, found: NodeArg, names: Container[Size | None]) -> NodeArg:
    """Return an output with what compiling has found, where the file leaves that open.

    `names` are those that the file gives to sizes of inputs; the compiler's own are left out.
    """
    if declared.is_optional:
        return declared
    shape = [s if isinstance(s, int) or s in names else None for s in found.shape]
    if declared.is_ranked and len(declared.shape) == len(shape):
        shape = [
            mine if mine is not None and not isinstance(theirs, int) else theirs
            for mine, theirs in zip(declared.shape, shape, strict=True)
        ]
    return replace(found, name=declared.name, shape=shape)
