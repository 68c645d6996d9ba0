# SPDX-License-Identifier: Apache-2.0
"""What edges of a graph carry except tensors: variables by reference, and lists of tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from treadle.errors import ModelError
from treadle.frontend.builders.basic import broadcast
from treadle.frontend.declared import UNKNOWN
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim, TensorType


@dataclass(frozen=True, slots=True)
class Variable:
    """A reference to a variable, by the name it is shared under."""

    name: str


@dataclass(slots=True)
class Element:
    """What is known of the elements of a list; the shape is None until one is set."""

    dtype: str
    shape: tuple[Dim, ...] | None


@dataclass(frozen=True, slots=True)
class TensorList:
    """A list of tensors of one shape, as one tensor with a first axis more.

    A list that was reserved has no `stacked` before its first element says what shape they have.
    """

    length: Dim
    element: Element
    stacked: Node | None = field(default=None)

    def tensor(self) -> Node:
        """Return the elements as one tensor: zeros where none was set.

        Raises: ModelError where nothing says what shape they have.
        """
        if self.stacked is not None:
            return self.stacked
        if self.element.shape is None:
            raise ModelError("a list is read, and nothing says what shape its elements have")
        return broadcast(Constant.of(0, self.element.dtype), (self.length, *self.element.shape))

    def type(self) -> TensorType:
        """Return the type of the elements as one tensor."""
        made = self.tensor().type
        assert isinstance(made, TensorType)
        return made


def reserved(length: Dim, dtype: str, shape: tuple[int, ...] | None) -> TensorList:
    """Return a list of a length whose elements are not set; `shape` may leave sizes open."""
    is_known = shape is not None and UNKNOWN not in shape
    return TensorList(length, Element(dtype, shape if is_known else None))


Value: TypeAlias = Node | Variable | TensorList
"""What an edge carries."""


def tensor_of(value: Value) -> Node:
    """Return a value that is a tensor. Raises ModelError for another one."""
    if isinstance(value, Variable):
        raise ModelError(f"the variable {value.name!r} is used where a tensor is expected")
    if isinstance(value, TensorList):
        raise ModelError("a list of tensors is used where a tensor is expected")
    return value
