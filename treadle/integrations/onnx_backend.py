# SPDX-License-Identifier: Apache-2.0
"""Treadle behind ONNX's backend interface: `prepare(model).run(inputs)`, as onnxruntime.backend.

The module itself is usable as a backend: it has the functions of `onnx.backend.base.Backend`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from treadle.build.compile import compile_model
from treadle.errors import InputError, UnsupportedOperators, UsageError
from treadle.frontend.importer import did_you_mean
from treadle.frontend.onnx.core.sequence import arrays_of, flattened, structure_of_value
from treadle.frontend.onnx.files import open_model
from treadle.frontend.onnx.importer import import_onnx
from treadle.frontend.onnx.node import RuntimeValueError
from treadle.frontend.onnx.resolve import Resolver
from treadle.frontend.onnx.tensors import DTYPES
from treadle.graph.types import Structure

if TYPE_CHECKING:
    from treadle.build.executable import Executable

Model: TypeAlias = "onnx.ModelProto | str | Path | bytes"

CACHED = 8
"""How many executables a prepared model keeps: one per set of shapes and fixed values."""


class TreadleRep(BackendRep):
    """A prepared model.

    A model whose sizes are known is compiled at once. One that leaves sizes open, or takes a shape
    or another parameter as an input, is compiled for the inputs it is run with, and kept.
    """

    def __init__(self, model: Model, target: str, opt_level: int) -> None:
        graph = open_model(model).model.graph
        constant = {t.name for t in graph.initializer}
        constant |= {t.values.name for t in graph.sparse_initializer}
        self._model = model
        self._whole = {i.name for i in graph.input if not _is_tensor(i)}
        self._target = target
        self._opt_level = opt_level
        self._inputs = {i.name: i for i in graph.input if i.name not in constant}
        self._fixed: set[str] = set()
        self._compiled: OrderedDict[object, tuple[Executable, tuple[Structure, ...]]]
        self._compiled = OrderedDict()
        if all(map(_is_static, self._inputs.values())):
            self._prepare()

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:  # Any: the base class's
        """Return the outputs for inputs by position or by name.

        A sequence is a list of arrays, an optional value without an element is None.

        Raises:
            InputError: an input is missing, unknown, or does not fit.
        """
        if kwargs:
            raise UsageError(f"run has no option {sorted(kwargs)[0]!r}")
        values = self._values(inputs)
        executable, structures = self._executable(values)
        given = [
            leaf for n, v in values.items() if n not in self._fixed for leaf in flattened(v, n)
        ]
        results = (o.numpy() for o in executable.run(dict(given)))
        return tuple(arrays_of(s, results) for s in structures)

    def _prepare(self) -> None:
        """Compile now, unless values of inputs must be known."""
        try:
            self._compiled[self._signature({})] = self._compile({})
        except RuntimeValueError as e:
            if not e.inputs:
                raise
            self._fixed.update(e.inputs)

    def _executable(self, arrays: Mapping[str, object]) -> tuple[Executable, tuple[Structure, ...]]:
        key = self._signature(arrays)
        while key not in self._compiled:
            try:
                made = self._compile(arrays)
            except RuntimeValueError as e:
                if not set(e.inputs) - self._fixed:
                    raise
                self._fixed.update(e.inputs)
                key = self._signature(arrays)
            else:
                self._compiled[key] = made
        self._compiled.move_to_end(key)
        if len(self._compiled) > CACHED:
            self._compiled.popitem(last=False)
        return self._compiled[key]

    def _compile(self, arrays: Mapping[str, object]) -> tuple[Executable, tuple[Structure, ...]]:
        values = {n: np.asarray(arrays[n]) for n in self._inputs if n in self._fixed}
        open_ = {
            n: structure_of_value(arrays[n])
            for n, i in self._inputs.items()
            if n in arrays and n not in self._fixed and not _is_static(i)
        }
        shapes = {n: s for n, s in open_.items() if isinstance(s, tuple) and n not in self._whole}
        structures = {n: s for n, s in open_.items() if n in self._whole}
        module = import_onnx(self._model, shapes, values=values, structures=structures).module
        made = compile_model(module, target=self._target, opt_level=self._opt_level)
        return made, module.structures

    def _signature(self, arrays: Mapping[str, object]) -> object:
        """Return what an executable is good for: the open shapes and the fixed values."""
        shapes = [
            structure_of_value(arrays[n]) for n, i in self._inputs.items() if not _is_static(i)
        ]
        fixed = [np.asarray(arrays[n]) for n in self._inputs if n in self._fixed]
        return str(shapes), tuple((v.shape, v.tobytes()) for v in fixed)

    def _values(self, inputs: Any) -> dict[str, object]:
        names = list(self._inputs)
        if not isinstance(inputs, Mapping):
            values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(values) != len(names):
                raise InputError(
                    f"{len(values)} inputs are given, the model takes {len(names)}",
                    hint=f"its inputs are {', '.join(names) or '(none)'}",
                )
            inputs = dict(zip(names, values, strict=True))
        for name in inputs:
            if name not in self._inputs:
                raise InputError(
                    f"the model has no input {name!r}", hint=did_you_mean(str(name), names)
                )
        missing = [n for n in names if n not in inputs]
        if missing:
            raise InputError(f"the input {missing[0]!r} is missing")
        return {n: inputs[n] if n in self._whole else np.asarray(inputs[n]) for n in names}


def _is_tensor(declared: onnx.ValueInfoProto) -> bool:
    return bool(declared.type.WhichOneof("value") == "tensor_type")


def _is_static(declared: onnx.ValueInfoProto) -> bool:
    """True when the data an input is given tells nothing new about its shape."""
    tensor = declared.type.tensor_type
    return tensor.HasField("shape") and all(
        d.WhichOneof("value") == "dim_value" and d.dim_value >= 0 for d in tensor.shape.dim
    )


class TreadleBackend(Backend):
    """Treadle as an `onnx.backend.base.Backend`; options are `target` and `opt_level`."""

    @classmethod
    def is_compatible(cls, model: Model, device: str = "CPU", **kwargs: Any) -> bool:
        """True when every operator of the model has a conversion."""
        source = open_model(model)
        try:
            Resolver(source.model).check(source.model, source.name)
        except UnsupportedOperators:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(
        cls,
        model: Model,
        device: str = "CPU",
        **kwargs: Any,
    ) -> TreadleRep:
        """Return `model` compiled, or ready to be compiled for the inputs it is run with.

        Options are `target` ("llvm" and its flags) and `opt_level` (0 to 4).

        Raises:
            ModelError: the model cannot be read. UnsupportedOperators: it uses unknown operators.
            UsageError: the device is not the CPU, or an option is unknown.
        """
        unknown = sorted(set(kwargs) - {"target", "opt_level"})
        if unknown:
            raise UsageError(f"prepare has no option {unknown[0]!r}")
        if not cls.supports_device(device):
            raise UsageError(f"the device {device!r} is not supported", hint="devices are: CPU")
        return TreadleRep(model, kwargs.get("target", "llvm"), kwargs.get("opt_level", 3))

    @classmethod
    def run_model(
        cls, model: Model, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Return the outputs of `model` for `inputs`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Return the outputs of a single node; `opset_version` says which opset it is from."""
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = list(dict.fromkeys(n for n in node.input if n))
        arrays = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
        model = _single_node(node, {n: np.asarray(arrays[n]) for n in names}, opset)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for "CPU" (with or without a number)."""
        return device.split(":")[0] == "CPU"


def _single_node(
    node: onnx.NodeProto, arrays: Mapping[str, np.ndarray], opset: int
) -> onnx.ModelProto:
    numbers = {name: number for number, name in DTYPES.items()}
    declared = []
    for name, array in arrays.items():
        if array.dtype.name not in numbers:
            raise InputError(f"input {name!r} has elements of {array.dtype}")
        number = numbers[array.dtype.name]
        declared.append(onnx.helper.make_tensor_value_info(name, number, array.shape))
    outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
    graph = onnx.helper.make_graph([node], node.op_type, declared, outputs)
    imports = [onnx.helper.make_opsetid(node.domain, opset)]
    if node.domain:
        imports.append(onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    return onnx.helper.make_model(graph, opset_imports=imports)


is_compatible = TreadleBackend.is_compatible
prepare = TreadleBackend.prepare
run_model = TreadleBackend.run_model
run = TreadleBackend.run_model
run_node = TreadleBackend.run_node
supports_device = TreadleBackend.supports_device
