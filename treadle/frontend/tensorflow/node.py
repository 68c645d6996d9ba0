# SPDX-License-Identifier: Apache-2.0
"""One TensorFlow operator as a converter sees it, and the table of converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from treadle.frontend.importer import ConverterTable
from treadle.frontend.inputs import ParameterInputs
from treadle.frontend.tensorflow.graph import Attributes
from treadle.frontend.tensorflow.tensors import check_numbers
from treadle.graph.nodes import Node

DOMAIN = "tensorflow"
"""What messages call the operators of."""


@dataclass(slots=True)
class TfNode(ParameterInputs):
    """An operator of the model with its inputs already converted."""

    attributes: Attributes

    def dtype(self, name: str, default: str = "float32") -> str:
        """Return the element type that an attribute names. Raises ModelError for no numbers."""
        return check_numbers(self.attributes.dtype(name, default), f"the result of {self.op}")


Result: TypeAlias = Node | Sequence[Node]
ConvertFn: TypeAlias = Callable[[TfNode], Result]
CONVERTERS: ConverterTable[ConvertFn] = ConverterTable()


def converter(*names: str) -> Callable[[ConvertFn], ConvertFn]:
    """Return a decorator that registers the converter of operators."""
    return CONVERTERS.converter(*names, since=(1,), domain=DOMAIN)
