# SPDX-License-Identifier: Apache-2.0
"""One call of an operator as a converter sees it, and the table of converters.

A converter is called as the operator is: `convert(node, *args, **kwargs)`, with tensors as graph
nodes, symbolic sizes as sizes, element types by name. What says where and how a result lies in
memory (device, layout, memory format, pinning) is left out: a graph has none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import torch

from treadle.errors import ModelError
from treadle.expr.nodes import Expr
from treadle.frontend.builders.basic import (
    axes_from_front,
    axis_from_front,
    converted,
    dims_of,
    element_type,
)
from treadle.frontend.builders.dynamic_operands import MeasuredSizes
from treadle.frontend.importer import ConverterTable
from treadle.frontend.symbolic import sizes_node
from treadle.frontend.torch.sizes import Symbols, expression_of
from treadle.frontend.torch.tensors import dtype_name, torch_dtype
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim

Operand: TypeAlias = Node | Dim | float
"""A tensor, a size or a number; what operators with a Scalar or a Tensor take."""


@dataclass(slots=True)
class AtenNode:
    """A call of an operator.

    `op` is its name such as "aten.add.Tensor", `origin` what the node is called in the program,
    `result` what torch says of its results: tensors without elements, sizes, lists of them.
    """

    op: str
    origin: str
    result: Any
    symbols: Symbols
    measured: MeasuredSizes
    notes: list[str] = field(default_factory=list)
    """What the user should know of the conversion."""
    given: tuple[Any, ...] = ()
    """What torch says of the arguments that are tensors, None of the others."""

    def _tensor(self, index: int) -> torch.Tensor:
        """Return what torch says of a result that is a tensor."""
        found = self.result[index] if isinstance(self.result, (tuple, list)) else self.result
        if isinstance(found, torch.Tensor):
            return found
        raise ModelError(f"the result {index} of {self.op} is no tensor")

    def dtype(self, index: int = 0) -> str:
        """Return the element type of a result, that of the parts of complex numbers."""
        return dtype_name(self._tensor(index).dtype)

    def dims(self, index: int = 0) -> tuple[Dim, ...]:
        """Return the shape of a result; sizes may be symbolic."""
        return tuple(self.symbols.dim(d) for d in self._tensor(index).shape)

    def memory_order(self, index: int) -> tuple[int, ...] | None:
        """Return the axes of an argument as they lie in memory, the outermost first.

        None where it is no tensor of torch that begins its memory and leaves no gaps in it, or
        where the order of its axes depends on sizes that are symbolic.
        """
        found = self.given[index]
        if not isinstance(found, torch.Tensor) or found.storage_offset() != 0:
            return None
        order, strides = tuple(range(found.dim())), found.stride()
        if all(isinstance(s, int) for s in strides):
            order = tuple(sorted(order, key=lambda k: -strides[k]))
        return order if found.permute(order).is_contiguous() else None

    def measure(self, value: Node) -> Dim:
        """Return the symbolic size that is the number in an int64 scalar; a number if constant."""
        return self.measured.measure(value)

    def bind_dims(self, dims: Sequence[Dim], index: int = 0) -> None:
        """Say what the sizes are that torch leaves to the run in the shape of a result."""
        for size, dim in zip(self._tensor(index).shape, dims, strict=True):
            expression = expression_of(size)
            if expression.is_Symbol and not self.symbols.is_known_symbol(expression):
                self.symbols.bind(expression, dim)

    def axis(self, value: int, x: Node) -> int:
        """Return an axis of `x` counted from the front; a scalar has an axis 0 too."""
        return axis_from_front(value, max(len(dims_of(x)), 1), self.op)

    def axes(self, values: int | Sequence[int] | None, x: Node) -> tuple[int, ...]:
        """Return axes counted from the front; all of them where none are given."""
        ndim = len(dims_of(x))
        if values is None or values == [] or ndim == 0:
            return tuple(range(ndim))
        listed = [values] if isinstance(values, int) else values
        return axes_from_front(listed, ndim, self.op)


def operand(value: Operand, dtype: str) -> Node:
    """Return a tensor, a size or a number as a tensor of type `dtype`."""
    if isinstance(value, Expr):
        return converted(sizes_node((value,), ()), dtype)
    if isinstance(value, (bool, int, float)):
        return Constant.of(_wrapped(value, dtype), dtype)
    return converted(value, dtype)


def _wrapped(value: float, dtype: str) -> float:
    """Return a number as it is in `dtype`, in which an integer may wrap around."""
    if dtype == "bool":
        return bool(value)
    kind = torch_dtype(dtype)
    return value if kind.is_floating_point else int(torch.tensor(int(value)).to(kind))


def sum_dtype(dtype: str) -> str:
    """Return the type in which sums are kept until they are rounded to `dtype` once."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def common_dtype(a: Operand, b: Operand) -> str:
    """Return the element type that torch compares or combines two values in."""
    return dtype_name(torch.result_type(_typed(a), _typed(b)))


def _typed(value: Operand) -> object:
    """Return a value as torch's rules of promotion see it."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Expr):
        return 1
    shape = (1,) * len(dims_of(value))
    return torch.empty(shape, dtype=torch_dtype(element_type(value)), device="meta")


Result: TypeAlias = Any
"""A graph node, a size, or a list of results; None for one that nobody reads."""

ConvertFn: TypeAlias = Callable[..., Result]
CONVERTERS: ConverterTable[ConvertFn] = ConverterTable()

OF_COMPLEX: ConverterTable[ConvertFn] = ConverterTable()
"""Converters of calls in which complex numbers are among the operands or results."""


_F = TypeVar("_F", bound=ConvertFn)


def aten(*names: str) -> Callable[[_F], _F]:
    """Return a decorator that registers a converter of operators: "relu", "add.Tensor"."""
    return _registers("aten", names)


def prims(*names: str) -> Callable[[_F], _F]:
    """Return a decorator that registers a converter of torch's primitives."""
    return _registers("prims", names)


def quantized_decomposed(*names: str) -> Callable[[_F], _F]:
    """Return a decorator that registers a converter of the operators of quantised programs."""
    return _registers("quantized_decomposed", names)


def transformers(*names: str) -> Callable[[_F], _F]:
    """Return a decorator that registers a converter of the operators that transformers adds."""
    return _registers("transformers", names)


def _registers(domain: str, names: Sequence[str]) -> Callable[[_F], _F]:
    full = [name if "." in name else f"{name}.default" for name in names]

    def register(function: _F) -> _F:
        CONVERTERS.converter(*full, since=(1,), domain=domain)(function)
        return function

    return register


def of_complex(*names: str, domain: str = "aten") -> Callable[[_F], _F]:
    """Return a decorator that registers a converter for complex operands or results.

    Operands are `Complex` where torch has complex tensors, nodes where it has real ones.
    """
    full = [name if "." in name else f"{name}.default" for name in names]

    def register(function: _F) -> _F:
        OF_COMPLEX.converter(*full, since=(1,), domain=domain)(function)
        return function

    return register


def converter_of(op: str, *, is_complex: bool = False) -> ConvertFn | None:
    """Return the converter of an operator, "aten.add.Tensor"; None where there is none.

    `is_complex` says that there are complex numbers among its operands or results.
    """
    domain, _, name = op.partition(".")
    return (OF_COMPLEX if is_complex else CONVERTERS).find(domain, name, 1, exact=True)
