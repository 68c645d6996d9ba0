# SPDX-License-Identifier: Apache-2.0
"""What operators of more than tensors need of an import, and how they are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from treadle.errors import ModelError
from treadle.frontend.builders.basic import reshaped
from treadle.frontend.builders.dynamic_operands import MeasuredSizes, elements_of
from treadle.frontend.symbolic import size_values
from treadle.frontend.tensorflow.graph import Attributes, FunctionDef, NodeDef
from treadle.frontend.tensorflow.values import TensorList, Value, Variable, tensor_of
from treadle.graph.nodes import Node
from treadle.graph.types import Dim


class Context(ABC):
    """What an import does for its operators."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Add a note that a user should read."""

    @abstractmethod
    def function(self, name: str) -> FunctionDef:
        """Return a function. Raises ModelError for a name of none."""

    @abstractmethod
    def called(self, name: str, arguments: Sequence[Value], prefix: str) -> list[Value]:
        """Return the results of a function for some arguments."""

    @abstractmethod
    def variable(self, name: str) -> Node:
        """Return the saved value of a variable. Raises ModelError where there is none."""


@dataclass(frozen=True, slots=True)
class SpecialNode:
    """An operator with the values of its inputs; `nodes` are those it stands among."""

    node: NodeDef
    inputs: tuple[Value, ...]
    origin: str
    nodes: Mapping[str, NodeDef]
    measured: MeasuredSizes

    @property
    def attributes(self) -> Attributes:
        """The attributes of the operator."""
        return self.node.attributes

    def value(self, index: int) -> Value:
        """Return an input. Raises ModelError when it is missing."""
        if index >= len(self.inputs):
            raise ModelError(f"{self.node.op} lacks its input {index}")
        return self.inputs[index]

    def tensor(self, index: int) -> Node:
        """Return an input that is a tensor. Raises ModelError for another one."""
        return tensor_of(self.value(index))

    def tensors(self, index: int) -> TensorList:
        """Return an input that is a list. Raises ModelError for another one."""
        found = self.value(index)
        if not isinstance(found, TensorList):
            raise ModelError(f"input {index} of {self.node.op} is no list of tensors")
        return found

    def variable(self, index: int) -> Variable:
        """Return an input that is a variable. Raises ModelError for another one."""
        found = self.value(index)
        if not isinstance(found, Variable):
            raise ModelError(f"input {index} of {self.node.op} is no variable")
        return found

    def size(self, index: int) -> Dim:
        """Return the number that an input holds as a size, measured where a run computes it."""
        (made,) = self.sizes(index, one=True)
        return made

    def sizes(self, index: int, *, one: bool = False) -> list[Dim]:
        """Return the numbers that an input lists as sizes; with `one` it holds one of them."""
        value = reshaped(self.tensor(index), (1,)) if one else self.tensor(index)
        known = size_values(value)
        if known is not None:
            return [d if not isinstance(d, int) else int(d) for d in known.reshape(-1)]
        found = elements_of(value, f"input {index} of {self.node.op}")
        return [self.measured.measure(v) for v in found]


SpecialFn: TypeAlias = Callable[[Context, SpecialNode], Sequence[Value]]
"""Converts an operator: returns its results."""
