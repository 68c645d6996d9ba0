# SPDX-License-Identifier: Apache-2.0
"""What a program of torch.export says of the sizes that it was traced for.

torch keeps the ranges of symbols, and as text what else a trace has found out and gone by:
"L['x'].size()[0] <= 20". What is read of such a text is arithmetic of sizes; nothing runs it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from torch.utils._sympy import functions

from treadle.expr.nodes import convert
from treadle.frontend.builders.basic import checked
from treadle.frontend.torch.sizes import Symbols, expression_of
from treadle.graph.nodes import Node
from treadle.graph.types import normal_size

_LEAST = 2
"""What torch takes sizes to be at least, unasked; its programs run at 0 and 1 all the same."""


@dataclass(frozen=True, slots=True)
class Condition:
    """`a` is at most `b`, two expressions of sizes; `text` is how the program says it."""

    a: sympy.Basic
    b: sympy.Basic
    text: str


_COMPARISONS = (ast.Lt, ast.LtE, ast.Eq, ast.NotEq, ast.GtE, ast.Gt)


class _Unread(Exception):
    """A condition is more than arithmetic of sizes."""


def texts_of(program: ExportedProgram) -> Sequence[str]:
    """Return what a trace has gone by, as torch writes it; programs made from this one lack it."""
    found: Sequence[str] = getattr(program, "_guards_code", None) or ()
    return found


def conditions_of(
    program: ExportedProgram, inputs: Sequence[fx.Node], texts: Sequence[str]
) -> tuple[list[Condition], list[str]]:
    """Return what a program asks of the sizes of its inputs, and the texts that cannot be read.

    `inputs` are the placeholders of the user's inputs, `texts` conditions of the program.
    """
    found, unread = list(_ranges(program, inputs)), []
    if texts:
        read = _Reader(_arguments(program, inputs))
        for text in texts:
            try:
                found += read.conditions(text)
            except _Unread:
                unread.append(text)
    return found, unread


def _ranges(program: ExportedProgram, inputs: Sequence[fx.Node]) -> Iterator[Condition]:
    """Yield what the ranges of symbols say that are sizes of inputs."""
    for node in inputs:
        for axis, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            symbol = expression_of(size)
            limits = program.range_constraints.get(symbol)
            if limits is None:
                continue
            name = f"{node.name}.size({axis})"
            if isinstance(limits.lower, sympy.Integer) and limits.lower > _LEAST:
                yield Condition(limits.lower, symbol, f"{name} >= {limits.lower}")
            if isinstance(limits.upper, sympy.Integer):
                yield Condition(symbol, limits.upper, f"{name} <= {limits.upper}")


def _arguments(program: ExportedProgram, inputs: Sequence[fx.Node]) -> Mapping[str, Any]:
    """Return the inputs by names of arguments, inside of what lists and dictionaries hold them."""
    (entry, *_) = program.module_call_graph
    signature: Any = entry.signature  # torch counts as without types
    args, kwargs = pytree.tree_unflatten(list(inputs), signature.in_spec)
    names = signature.forward_arg_names or ()
    return {**dict(zip(names, args, strict=False)), **kwargs}


def with_conditions(x: Node, conditions: Sequence[Condition], symbols: Symbols) -> Node:
    """Return `x`, which every run refuses whose sizes are not as the conditions say."""
    for condition in conditions:
        a, b = symbols.dim_of(condition.a), symbols.dim_of(condition.b)
        below = min([0, *(d for d in (a, b) if isinstance(d, int))])
        a, b = normal_size(convert(a) - below), normal_size(convert(b) - below)
        x = checked(x, "asked", a, b, reason=condition.text)
    return x


# ---- texts ---------------------------------------------------------------------------------------


class _Reader:
    """Reads conditions; `arguments` is what the name L stands for in them."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments

    def conditions(self, text: str) -> Iterator[Condition]:
        """Yield the conditions that a comparison stands for. Raises: _Unread."""
        try:
            tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
            raise _Unread from e
        if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
            raise _Unread
        if not isinstance(tree.ops[0], _COMPARISONS):
            raise _Unread
        a, b = self._number(tree.left), self._number(tree.comparators[0])
        said = text.replace("L['", "").replace("']", "")
        if isinstance(tree.ops[0], (ast.LtE, ast.Eq)):
            yield Condition(a, b, said)
        if isinstance(tree.ops[0], (ast.GtE, ast.Eq)):
            yield Condition(b, a, said)
        if isinstance(tree.ops[0], ast.Lt):
            yield Condition(a + 1, b, said)
        if isinstance(tree.ops[0], ast.Gt):
            yield Condition(b + 1, a, said)
        if isinstance(tree.ops[0], ast.NotEq):
            yield Condition(1 + functions.Min(a, b), functions.Max(a, b), said)

    def _number(self, tree: ast.expr) -> Any:
        if isinstance(tree, ast.Constant) and type(tree.value) in (int, float):
            return sympy.sympify(tree.value)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            return -self._number(tree.operand)
        if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
            return _OPERATORS[type(tree.op)](self._number(tree.left), self._number(tree.right))
        if isinstance(tree, ast.Call) and ast.unparse(tree.func) in _FUNCTIONS:
            return _FUNCTIONS[ast.unparse(tree.func)](*map(self._number, tree.args))
        if isinstance(tree, ast.Subscript):
            return self._size(tree)
        raise _Unread

    def _size(self, tree: ast.Subscript) -> Any:
        """Return the size that L['x'].size()[1] names."""
        call, axis = tree.value, tree.slice
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            raise _Unread
        node = self._value(call.func.value)
        shape = getattr(node.meta.get("val"), "shape", ()) if isinstance(node, fx.Node) else ()
        if call.func.attr != "size" or not isinstance(axis, ast.Constant):
            raise _Unread
        if not isinstance(axis.value, int) or not 0 <= axis.value < len(shape):
            raise _Unread
        return expression_of(shape[axis.value])

    def _value(self, tree: ast.expr) -> Any:
        """Return what L['x'][0] names."""
        if isinstance(tree, ast.Name) and tree.id == "L":
            return self._arguments
        if isinstance(tree, ast.Subscript) and isinstance(tree.slice, ast.Constant):
            try:
                return self._value(tree.value)[tree.slice.value]
            except (KeyError, IndexError, TypeError) as e:
                raise _Unread from e
        raise _Unread


_OPERATORS: Mapping[type, Callable[..., Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: functions.FloorDiv,
    ast.Mod: functions.Mod,
    ast.Div: functions.FloatTrueDiv,
}

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "math.trunc": functions.TruncToInt,
    "math.floor": functions.FloorToInt,
    "math.ceil": functions.CeilToInt,
    "torch.sym_float": functions.ToFloat,
    "max": functions.Max,
    "min": functions.Min,
}
