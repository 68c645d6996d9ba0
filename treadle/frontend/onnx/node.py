# SPDX-License-Identifier: Apache-2.0
"""One ONNX node as a converter sees it (typed inputs, checked attributes), and the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np
import onnx

from treadle.errors import ModelError
from treadle.frontend.builders.basic import axes_from_front
from treadle.frontend.importer import ConverterTable
from treadle.frontend.inputs import ImportedOperator
from treadle.frontend.onnx.external import ExternalFiles
from treadle.frontend.onnx.tensors import sparse_to_array, to_array
from treadle.frontend.symbolic import size_values
from treadle.graph.nodes import Constant, Node, Var, topological
from treadle.graph.types import Dim

_A = onnx.AttributeProto
_T = TypeVar("_T")


class RuntimeValueError(ModelError):
    """A parameter that must be known when compiling is computed or given at run time.

    `inputs` names the graph inputs it depends on; fixing their values makes the model importable.
    `source` is the value that had to be known.
    """

    inputs: tuple[str, ...] = ()
    source: Node | None = None

    def completed(self, at: str, hint: str) -> RuntimeValueError:
        """Return this error with a place and a hint where it has none, and its inputs named."""
        error = RuntimeValueError(self.problem, at=self.at or at, hint=self.hint or hint)
        if self.source is not None:
            error.source = self.source
            error.inputs = tuple(n.name for n in topological([self.source]) if isinstance(n, Var))
        return error


@dataclass(slots=True)
class OnnxNode(ImportedOperator):
    """A node of the model with its inputs already converted.

    `version` is the opset in which this form of the operator appeared.
    An attribute that is present and never read is an error, so nothing is ignored by accident.
    """

    outputs: tuple[str, ...]
    attributes: Mapping[str, onnx.AttributeProto]
    external: ExternalFiles
    read: set[str] = field(default_factory=set)

    def sizes(self, index: int, what: str) -> tuple[Dim, ...]:
        """Return the elements of a 1-D (or scalar) integer input, which may be symbolic sizes.

        Raises:
            RuntimeValueError: they are not known when the model is compiled.
        """
        source = self.input(index)
        values = None if isinstance(source, Constant) else size_values(source)
        if values is None:
            return self.constant_ints(index, what)
        return tuple(values.reshape(-1))

    def wants(self, output: int) -> bool:
        """True when output `output` has a name, so somebody may use it."""
        return output < len(self.outputs) and bool(self.outputs[output])

    def constant(self, index: int, what: str) -> np.ndarray:
        """Return the value of input `index`, called `what` in the error.

        Raises:
            RuntimeValueError: the value is not known when the model is compiled.
        """
        node = self.input(index)
        if isinstance(node, Constant):
            return node.value
        error = RuntimeValueError(
            f"the {what} of {self.op} must be known when the model is compiled; "
            "a value computed at run time is not supported here",
            hint="make it an initializer, or fold it with onnxsim or the exporter's "
            "constant folding",
        )
        error.source = node
        raise error

    def optional_constant(self, index: int, what: str) -> np.ndarray | None:
        """Return the value of input `index`, or None when it is not given."""
        return self.constant(index, what) if self.has_input(index) else None

    def constant_ints(self, index: int, what: str) -> tuple[int, ...]:
        """Return the value of a 1-D (or scalar) integer input as ints."""
        value = self.constant(index, what)
        if value.ndim > 1 or value.dtype.kind not in "iu":
            raise ModelError(
                f"the {what} of {self.op} must be a list of integers, "
                f"not {value.dtype}{list(value.shape)}"
            )
        return tuple(int(v) for v in np.atleast_1d(value))

    def constant_scalar(self, index: int, what: str) -> np.ndarray:
        """Return the value of an input that holds one number, as a rank-0 array."""
        value = self.constant(index, what)
        if value.size != 1:
            raise ModelError(f"the {what} of {self.op} must be one number, not {self.type(index)}")
        return value.reshape(())

    def _attribute(self, name: str, kind: int) -> onnx.AttributeProto | None:
        self.read.add(name)
        found = self.attributes.get(name)
        if found is None:
            return None
        if found.type != kind:
            kinds = {v: k for k, v in _A.AttributeType.items()}
            raise ModelError(
                f"attribute {name!r} of {self.op} must be of type {kinds[kind]}, "
                f"not {kinds.get(found.type, found.type)}"
            )
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute; without a default it is required."""
        found = self._attribute(name, _A.INT)
        return int(found.i) if found else self._required(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an integer attribute that is 0 or 1 as a truth value."""
        value = self.integer(name, int(default))
        if value not in (0, 1):
            raise ModelError(f"the attribute {name!r} of {self.op} is {value}, not 0 or 1")
        return value == 1

    def number(self, name: str, default: float | None = None) -> float:
        """Return a float attribute; without a default it is required.

        Attributes are float32, defaults too: a float64 operand meets 0.01 rounded to 24 digits.
        """
        found = self._attribute(name, _A.FLOAT)
        return float(found.f) if found else float(np.float32(self._required(name, default)))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string attribute; without a default it is required."""
        found = self._attribute(name, _A.STRING)
        return _text(found.s) if found else self._required(name, default)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return a list-of-integers attribute, or None when it is absent."""
        found = self._attribute(name, _A.INTS)
        return tuple(int(v) for v in found.ints) if found else None

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Return a list-of-floats attribute, or None when it is absent."""
        found = self._attribute(name, _A.FLOATS)
        return tuple(float(v) for v in found.floats) if found else None

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return a list-of-strings attribute, or None when it is absent."""
        found = self._attribute(name, _A.STRINGS)
        return tuple(_text(v) for v in found.strings) if found else None

    def tensor(self, name: str) -> np.ndarray | None:
        """Return a tensor attribute, or None when it is absent."""
        found = self._attribute(name, _A.TENSOR)
        return to_array(found.t, self.external) if found else None

    def sparse_tensor(self, name: str) -> np.ndarray | None:
        """Return a sparse tensor attribute written out, or None when it is absent."""
        found = self._attribute(name, _A.SPARSE_TENSOR)
        return sparse_to_array(found.sparse_tensor, self.external) if found else None

    def without_effect(self, *names: str) -> None:
        """Declare attributes that do not change the result of inference."""
        self.read.update(names)

    def _required(self, name: str, default: _T | None) -> _T:
        if default is None:
            raise ModelError(f"{self.op} lacks its attribute {name!r}")
        return default

    def axes(self, values: Sequence[int], ndim: int) -> tuple[int, ...]:
        """Return axes counted from the front. Raises ModelError for one given twice."""
        return axes_from_front(values, ndim, self.op)


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"a string attribute is not text: {value[:40]!r}") from None


Result: TypeAlias = Node | Sequence[Node]
ConvertFn: TypeAlias = Callable[[OnnxNode], Result]
CONVERTERS: ConverterTable[ConvertFn] = ConverterTable()
converter = CONVERTERS.converter
