# SPDX-License-Identifier: Apache-2.0
"""What importers of every kind of file share: inputs of an operator, mapped files, given shapes."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index as as_index
from pathlib import Path

import numpy as np

from treadle.errors import InputError, ModelError
from treadle.frontend.builders.basic import axis_from_front
from treadle.frontend.builders.dynamic_operands import MeasuredSizes, elements_of
from treadle.frontend.symbolic import is_sizes, size_values
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, TensorType, tensor_type


@dataclass(slots=True)
class ImportedOperator:
    """An operator of a file with its inputs already converted; None for optional ones left out."""

    op: str
    version: int
    origin: str
    inputs: tuple[Node | None, ...]
    measured: MeasuredSizes = field(kw_only=True)
    """Sizes that are the numbers of values computed at run time."""
    notes: list[str] = field(default_factory=list, kw_only=True)
    """What the user should know of the conversion."""

    def has_input(self, index: int) -> bool:
        """True when the optional input `index` is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> Node:
        """Return input `index`. Raises ModelError when it is missing."""
        node = self.optional(index)
        if node is None:
            raise ModelError(f"{self.op} lacks its input {index}")
        return node

    def optional(self, index: int) -> Node | None:
        """Return input `index`, or None when it is not given."""
        return self.inputs[index] if index < len(self.inputs) else None

    def all_inputs(self) -> list[Node]:
        """Return the inputs of a variadic operator. Raises ModelError for a gap or none."""
        return [self.input(k) for k in range(max(1, len(self.inputs)))]

    def type(self, index: int) -> TensorType:
        """Return the type of input `index`."""
        return tensor_type(self.input(index).type)

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of input `index` as ints. Raises TypeMismatch when it is symbolic."""
        return self.type(index).static_shape

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Return the shape of input `index`; sizes may be symbolic."""
        return self.type(index).shape

    def axis(self, value: int, ndim: int) -> int:
        """Return an axis of a rank-`ndim` tensor counted from the front."""
        return axis_from_front(value, ndim, self.op)

    def is_computed(self, *indices: int) -> bool:
        """True when one of the inputs is given and only a run knows its value."""
        given = [self.optional(k) for k in indices]
        return any(v is not None and not isinstance(v, Constant) and not is_sizes(v) for v in given)

    def elements(self, index: int) -> list[Node]:
        """Return the elements of a list of integers (or of one number) as int64 scalars."""
        return elements_of(self.input(index), f"input {index} of {self.op}")

    def measure(self, value: Node) -> Dim:
        """Return the symbolic size that is the number in an int64 scalar; a number if constant."""
        return self.measured.measure(value)


@dataclass(slots=True)
class ParameterInputs(ImportedOperator):
    """An operator of TensorFlow or TFLite: its axes and shapes are inputs too."""

    def rank(self, index: int) -> int:
        """Return how many axes input `index` has."""
        return self.type(index).ndim

    def constant(self, index: int, what: str) -> np.ndarray:
        """Return the value of input `index`. Raises ModelError when only a run knows it."""
        node = self.input(index)
        if isinstance(node, Constant):
            return node.value
        raise ModelError(
            f"the {what} of {self.op} must be known when the model is compiled; "
            "a value computed at run time is not supported here",
            hint="make it a constant, or give the shapes of the inputs with --input-shapes",
        )

    def constant_ints(self, index: int, what: str) -> tuple[int, ...]:
        """Return the elements of an integer input that is known, in order."""
        value = self.constant(index, what)
        if value.dtype.kind not in "iu":
            raise ModelError(f"the {what} of {self.op} must be integers, not {value.dtype}")
        return tuple(int(v) for v in value.reshape(-1))

    def constant_number(self, index: int, what: str) -> float:
        """Return the one number that an input holds, which is known."""
        value = self.constant(index, what)
        if value.size != 1:
            raise ModelError(f"the {what} of {self.op} must be one number, not {self.type(index)}")
        return float(value.reshape(()))

    def constant_axis(self, index: int, ndim: int) -> int:
        """Return the axis of a rank-`ndim` tensor that an input names, counted from the front."""
        return self.axis(int(self.constant_number(index, "axis")), ndim)

    def sizes(self, index: int, what: str) -> tuple[Dim, ...]:
        """Return the elements of an integer input, which may be symbolic sizes.

        What a run computes becomes a size that is measured.
        """
        source = self.input(index)
        if isinstance(source, Constant):
            return self.constant_ints(index, what)
        values = size_values(source)
        if values is not None:
            return tuple(values.reshape(-1))
        return tuple(self.measure(v) for v in self.elements(index))


def mapped_file(path: Path, kind: str) -> memoryview:
    """Return the bytes of a file, mapped into memory; `kind` is such as "an ONNX file".

    Raises: ModelError where it is none that can be read, or empty.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelError(f"this is a folder, not {kind}")
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


def given_sizes(name: str, shape: object, example: Sequence[int]) -> tuple[int, ...]:
    """Return a shape that a user gives for an input; `example` is one for the hint.

    Raises: InputError unless it is whole numbers.
    """
    try:
        if not isinstance(shape, str | bytes):
            return tuple(as_index(size) for size in shape)  # type: ignore[attr-defined]
    except TypeError:
        pass
    raise InputError(
        f"the shape of input {name!r} is {shape!r}, which is no sequence of whole numbers",
        hint=f"such as shapes={{{name!r}: {tuple(example)}}}",
    )
