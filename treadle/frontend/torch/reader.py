# SPDX-License-Identifier: Apache-2.0
"""Walks the nodes of an fx graph and keeps what each is in the graph that is made."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from treadle.errors import ModelError
from treadle.expr.nodes import Expr
from treadle.frontend.builders.complex_numbers import Complex, joined, paired
from treadle.frontend.builders.dynamic_operands import MeasuredSizes
from treadle.frontend.importer import Folder, UnsupportedList, stamp_origin
from treadle.frontend.symbolic import sizes_node
from treadle.frontend.torch.control import CONTROL
from treadle.frontend.torch.core.checks import is_check
from treadle.frontend.torch.diagnostics import placed, target_name
from treadle.frontend.torch.families import FAMILIES
from treadle.frontend.torch.node import AtenNode, ConvertFn, Result, converter_of
from treadle.frontend.torch.parts import has_complex, nodes_of, with_nodes
from treadle.frontend.torch.sizes import Symbols
from treadle.frontend.torch.tensors import array_of, dtype_name
from treadle.graph.nodes import Constant, Node, Var
from treadle.graph.types import TensorType, may_agree

assert FAMILIES  # the table of converters is filled by importing them

_PLACES = frozenset({"device", "layout", "memory_format", "pin_memory", "non_blocking"})
"""Keyword arguments that say where and how a result lies in memory."""

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)

Value = Any
"""What a node of fx is here: a graph node, complex numbers as two of them, a size, a number, None,
or a list of them."""


class Reader:
    """The values of a program's nodes, by node, as far as they are converted.

    `symbols` are the sizes they speak of, `notes` what a user should read.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self.symbols = Symbols()
        self.notes: dict[str, None] = {}
        self._values: dict[fx.Node, Value] = {}
        self._measured: dict[Any, Node] = {}
        self._folder = Folder()

    @property
    def measured(self) -> dict[Any, Node]:
        """Sizes that the model itself computes, with their numbers."""
        return self._measured | self.symbols.computed.values

    # ---- inputs ----------------------------------------------------------------------------------

    def add_input(self, node: fx.Node, name: str) -> Var:
        """Let a tensor be a parameter of the graph; return it: of complex numbers [..., 2]."""
        fake = node.meta["val"]
        with placed(node, self.program):
            for size in fake.shape:
                self.symbols.add_input_size(size)
            shape = tuple(self.symbols.dim(d) for d in fake.shape)
            pair = (2,) if fake.is_complex() else ()
            made = Var(name, TensorType((*shape, *pair), dtype_name(fake.dtype)), name)
        self.set_tensor(node, made)
        return made

    def set_tensor(self, node: fx.Node, value: Node) -> None:
        """Let a node be a tensor; where it is of complex numbers the value is [..., 2]."""
        self._values[node] = paired(value) if _is_complex(node) else value

    def set_value(self, node: fx.Node, value: Value) -> None:
        """Let a node be a value that is known."""
        self._values[node] = value

    def set_attribute(self, node: fx.Node, value: Any) -> None:
        """Let a node be an attribute of its module: a tensor, or the graph of a branch."""
        if isinstance(value, torch.Tensor):
            made = Constant.of(array_of(value, str(node.target)), origin=node.name)
            value = paired(made) if value.is_complex() else made
        self._values[node] = value

    # ---- nodes -----------------------------------------------------------------------------------

    def read(self, node: fx.Node) -> None:
        """Convert a call. Raises: ModelError that names the node and its place in the source."""
        with placed(node, self.program):
            self._values[node] = self._converted(node)

    def _converted(self, node: fx.Node) -> Value:
        if is_check(node):
            return None  # where it does not hold, results are not numbers
        if node.target is operator.getitem:
            source, index = node.args
            return self.value(source)[index]
        known = node.meta.get("val")
        if isinstance(known, torch.SymBool):
            return None  # what is said of sizes, which checks alone read
        if isinstance(known, _NUMBERS) and self.symbols.is_known(known):
            return self.symbols.number(known)
        return self._called(node)

    def _called(self, node: fx.Node) -> Value:
        name = target_name(node)
        if name in CONTROL:
            return self._controlled(node, name)
        convert = _converter(node)
        if convert is None:
            why = _reason(node)
            raise ModelError(f"the operator {name} is not supported{why and ' for '}{why}")
        call = AtenNode(
            name,
            node.name,
            node.meta.get("val"),
            self.symbols,
            MeasuredSizes(node.name),
            given=tuple(a.meta.get("val") if isinstance(a, fx.Node) else None for a in node.args),
        )
        args = [self.value(a) for a in node.args]
        kwargs = {k: self.value(v) for k, v in node.kwargs.items() if k not in _PLACES}
        result = self._settled(node, convert(call, *args, **kwargs), [*args, *kwargs.values()])
        self._measured.update(call.measured.values)
        stamp_origin(call.measured.values.values(), nodes_of(args), node.name)
        self.notes.update(dict.fromkeys(call.notes))
        _check(call.result, result, self.symbols)
        return result

    # ---- operators whose operands are graphs -----------------------------------------------------

    def _controlled(self, node: fx.Node, name: str) -> list[Node | Complex]:
        args = _as_tensors(self.value(node.args))
        known = node.meta["val"]
        shapes = [(*map(self.symbols.dim, r.shape), *((2,) * r.is_complex())) for r in known]
        made = CONTROL[name](self._inlined, args, shapes, node.name)
        stamp_origin(made, list(nodes_of(args)), node.name)
        return [paired(m) if r.is_complex() else m for m, r in zip(made, known, strict=True)]

    def _inlined(self, module: fx.GraphModule, operands: Sequence[Value]) -> list[Node]:
        """Return the results of a graph that is given values; complex numbers are [..., 2]."""
        inner = Reader(self.program)
        inner.symbols = self.symbols
        given = iter(operands)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                value = next(given)
                inner.set_value(node, paired(value) if _is_complex(node) else value)
            elif node.op == "get_attr":
                inner.set_attribute(node, getattr(module, str(node.target)))
            elif node.op == "call_function":
                inner.read(node)
        if inner._measured:
            raise ModelError("a branch or loop in which sizes depend on data is not supported")
        self.notes.update(inner.notes)
        (output,) = (n for n in module.graph.nodes if n.op == "output")
        results = output.args[0]
        listed = results if isinstance(results, (list, tuple)) else [results]
        return [inner.tensor(n) for n in listed]

    def _settled(self, node: fx.Node, result: Result, given: Sequence[Value]) -> Result:
        """Return a result with origins, and with what is known by now folded."""
        sources = list(nodes_of(given))
        folded = self._folder.fold_results(nodes_of(result), sources)
        stamp_origin(folded, sources, node.name)
        return with_nodes(result, folded)

    # ---- values ----------------------------------------------------------------------------------

    def value(self, arg: Any) -> Value:
        """Return what an argument of fx is here: nodes by their values, types by name."""
        if isinstance(arg, fx.Node):
            return graph_of(arg) or self._values[arg]
        if isinstance(arg, (list, tuple)):
            return [self.value(a) for a in arg]
        if isinstance(arg, torch.dtype):
            return dtype_name(arg)
        if isinstance(arg, torch.SymInt):
            return self.symbols.dim(arg)
        return arg

    def tensor(self, node: fx.Node) -> Node:
        """Return the value of a node as a tensor; a size or a number as one of rank 0.

        Complex numbers are [..., 2].
        """
        value = self._values[node]
        if isinstance(value, Complex):
            return joined(value)
        if isinstance(value, Node):
            return value
        if isinstance(value, (Expr, int)) and not isinstance(value, bool):
            return sizes_node((value,), ())
        if isinstance(value, (bool, float)):
            return Constant.of(value, "bool" if isinstance(value, bool) else "float64")
        raise ModelError(f"the result {node.name} is no tensor")


def graph_of(node: fx.Node) -> fx.GraphModule | None:
    """Return the graph that a node names as an attribute of its module; None for other nodes."""
    if node.op != "get_attr" or node.graph.owning_module is None:
        return None
    found = getattr(node.graph.owning_module, str(node.target), None)
    return found if isinstance(found, fx.GraphModule) else None


def _check(expected: Any, made: Result, symbols: Symbols) -> None:
    """Compare a result with what torch says of it: a converter that errs must not go unseen."""
    if isinstance(expected, (list, tuple)) and isinstance(made, (list, tuple)):
        for e, m in zip(expected, made, strict=False):
            _check(e, m, symbols)
    if not isinstance(expected, torch.Tensor) or not isinstance(made, (Node, Complex)):
        return
    wanted = TensorType(tuple(map(symbols.dim, expected.shape)), dtype_name(expected.dtype))
    if expected.is_complex() != isinstance(made, Complex):
        raise ModelError(f"the conversion gives {made} where torch has {expected.dtype}")
    for part in nodes_of(made):
        if not _fits(part, wanted):
            raise ModelError(f"the conversion gives {part.type} where torch has {wanted}")


def _fits(made: Node, wanted: TensorType) -> bool:
    kind = made.type
    if not isinstance(kind, TensorType) or kind.dtype != wanted.dtype:
        return False
    return kind.ndim == wanted.ndim and all(
        may_agree(a, b) for a, b in zip(kind.shape, wanted.shape, strict=True)
    )


def _converter(node: fx.Node) -> ConvertFn | None:
    """Return the converter of a call: of its operator, for the numbers that it has."""
    return converter_of(target_name(node), is_complex=has_complex(node))


def _as_tensors(value: Value) -> Value:
    """Return a value with its complex numbers as [..., 2]."""
    if isinstance(value, (list, tuple)):
        return [_as_tensors(v) for v in value]
    return joined(value) if isinstance(value, Complex) else value


def _is_complex(node: fx.Node) -> bool:
    known = node.meta.get("val")
    return isinstance(known, torch.Tensor) and known.is_complex()


def _reason(node: fx.Node) -> str:
    """Return what an operator has no converter for, where it is not all that it takes."""
    return "complex numbers" if has_complex(node) else ""


def raise_if_unsupported(nodes: Iterable[fx.Node], at: str) -> None:
    """Raise UnsupportedOperators that lists every operator of a program without a converter."""
    missing = UnsupportedList()
    for node in nodes:
        if node.op != "call_function" or node.target is operator.getitem or is_check(node):
            continue
        name = target_name(node)
        is_size = isinstance(node.meta.get("val"), (*_NUMBERS, torch.SymBool))
        if not is_size and name not in CONTROL and _converter(node) is None:
            domain, _, op = name.partition(".") if "." in name else ("torch", "", name)
            why = _reason(node)
            missing.add(domain, op, None, node.name, f"for {why}" if why else "")
    missing.raise_if_any(at)
