# SPDX-License-Identifier: Apache-2.0
"""One TFLite operator as a converter sees it, and the table of converters.

Values are what the file stores: a quantised tensor is one of integers. A converter that computes
with real numbers takes them from `real` and gives its result to `stored`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, element_type
from treadle.frontend.builders.layout import in_one_layout
from treadle.frontend.importer import ConverterTable
from treadle.frontend.inputs import ParameterInputs
from treadle.frontend.tflite.model import Tensor
from treadle.frontend.tflite.quantized import dequantized_tensor, quantized_tensor
from treadle.frontend.tflite.schema import ACTIVATIONS, PADDINGS, OptionField
from treadle.frontend.tflite.wire import Table
from treadle.graph.nodes import Node
from treadle.ops import elementwise


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an operator; what is left out has the default of the schema."""

    fields: Mapping[str, OptionField]
    table: Table | None

    def integer(self, name: str) -> int:
        """Return an integer."""
        return int(self._number(name))

    def number(self, name: str) -> float:
        """Return a number."""
        return float(self._number(name))

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        return self._number(name) != 0

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers, empty where it is left out."""
        option = self.fields[name]
        found = None if self.table is None else self.table.numbers(option.place, option.kind[1:-1])
        return () if found is None else tuple(int(v) for v in found)

    def choice(self, name: str, words: Sequence[str]) -> str:
        """Return the word that a number stands for. Raises ModelError for a number of none."""
        number = self.integer(name)
        if not 0 <= number < len(words):
            raise ModelError(f"the option {name} is {number}, which is not known")
        return words[number]

    def _number(self, name: str) -> int | float:
        option = self.fields[name]
        if self.table is None:
            return option.default
        return self.table.number(option.place, option.kind, option.default)


@dataclass(slots=True)
class TfliteNode(ParameterInputs):
    """An operator of the model with its inputs already converted.

    `tensors` and `results` are what the file says of inputs and outputs.
    """

    tensors: tuple[Tensor | None, ...]
    results: tuple[Tensor, ...]
    options: Options
    custom_options: memoryview

    def tensor(self, index: int) -> Tensor:
        """Return what the file says of input `index`."""
        found = self.tensors[index] if index < len(self.tensors) else None
        if found is None:
            raise ModelError(f"{self.op} lacks its input {index}")
        return found

    def result(self, index: int = 0) -> Tensor:
        """Return what the file says of output `index`."""
        if index >= len(self.results):
            raise ModelError(f"{self.op} lacks its output {index}")
        return self.results[index]

    def is_quantized(self, index: int) -> bool:
        """True when input `index` is of integers with a scale."""
        return is_quantized(self.tensor(index))

    def real(self, index: int) -> Node:
        """Return input `index` as real numbers: float32 where it is quantised."""
        return real_value(self.input(index), self.tensor(index))

    def optional_real(self, index: int) -> Node | None:
        """Return input `index` as real numbers, None when it is not given."""
        return self.real(index) if self.has_input(index) else None

    def stored(self, value: Node, index: int = 0) -> Node:
        """Return real numbers as output `index` stores them."""
        return stored_value(value, self.result(index))

    def moved(self, value: Node, index: int = 0, source: int = 0) -> Node:
        """Return stored elements of input `source` as output `index` stores them.

        They are the same unless the two are quantised differently.
        """
        before, after = self.tensor(source), self.result(index)
        if not is_quantized(after) or _same_quantization(before, after):
            return value
        return stored_value(real_value(value, before), after)

    def keeps_scale(self, source: int = 0) -> bool:
        """True when input `source` and the result are quantised alike."""
        before, after = self.tensor(source), self.result()
        return is_quantized(after) and _same_quantization(before, after)

    def activated(self, value: Node) -> Node:
        """Return real numbers after the fused activation of this operator."""
        return activated(value, self.activation)

    @property
    def activation(self) -> str:
        """The fused activation."""
        return self.options.choice("fused_activation_function", ACTIVATIONS)

    @property
    def padding(self) -> str:
        """The padding of a window: SAME or VALID."""
        return self.options.choice("padding", PADDINGS)


def is_quantized(tensor: Tensor) -> bool:
    """True for a tensor of integers with a scale."""
    return tensor.quantization is not None and tensor.dtype in INTEGER_TYPES


def _same_quantization(a: Tensor, b: Tensor) -> bool:
    p, q = a.quantization, b.quantization
    if p is None or q is None:
        return p is q
    same_points = np.array_equal(p.zero_points, q.zero_points)
    return a.dtype == b.dtype and same_points and np.array_equal(p.scales, q.scales)


def real_value(value: Node, tensor: Tensor) -> Node:
    """Return the real numbers that the stored elements of a tensor stand for."""
    if tensor.quantization is None or not is_quantized(tensor):
        return value
    how = tensor.quantization
    if how.is_per_channel:
        return dequantized_tensor(value, how)
    return in_one_layout(lambda x: dequantized_tensor(x, how), value)


def stored_value(value: Node, tensor: Tensor) -> Node:
    """Return real numbers as a tensor stores them; those that are no integers stay as they are."""
    if tensor.quantization is None or not is_quantized(tensor):
        return value
    if not dt.is_float(element_type(value)):
        return value
    how, dtype = tensor.quantization, tensor.dtype
    if how.is_per_channel:
        return quantized_tensor(value, how, dtype)
    return in_one_layout(lambda x: quantized_tensor(x, how, dtype), value)


def activated(value: Node, activation: str) -> Node:
    """Return the value of a fused activation. Raises ModelError for one that is not supported."""
    functions: dict[str, Callable[[Node], Node]] = {
        "NONE": lambda x: x,
        "RELU": elementwise.relu,
        "RELU_N1_TO_1": lambda x: elementwise.clip(x, min=-1.0, max=1.0),
        "RELU6": lambda x: elementwise.clip(x, min=0.0, max=6.0),
        "TANH": elementwise.tanh,
    }
    if activation not in functions:
        raise ModelError(f"the fused activation {activation} is not supported")
    if activation == "NONE":
        return value
    return in_one_layout(functions[activation], value)


def integer_bias(node: TfliteNode, index: int) -> Node | None:
    """Return a bias of integers, None where it is left out. Raises ModelError for another one."""
    bias = node.optional(index)
    if bias is not None and element_type(bias) not in ("int32", "int64"):
        raise ModelError(f"the bias of {node.op} is {bias.type}, not integers")
    return bias


def in_float32(value: Node) -> Node:
    """Return half-precision numbers as float32."""
    dtype = element_type(value)
    return converted(value, "float32") if dt.is_float(dtype) and dt.bits(dtype) == 16 else value


Result: TypeAlias = Node | Sequence[Node]
ConvertFn: TypeAlias = Callable[[TfliteNode], Result]
CONVERTERS: ConverterTable[ConvertFn] = ConverterTable()

INTEGER_TYPES = ("int8", "uint8", "int16", "int32", "int64")
"""What tensors with a scale are of; the wide ones are biases."""

NEWEST = 1 << 30
"""Versions of operators add types and options, which converters read as they find them: any is
taken."""


def converter(*names: str) -> Callable[[ConvertFn], ConvertFn]:
    """Return a decorator that registers the converter of operators, of all their versions."""
    return CONVERTERS.converter(*names, since=(1,), domain="tflite")
