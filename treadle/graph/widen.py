# SPDX-License-Identifier: Apache-2.0
"""A copy of a graph that computes with float64 what the graph computes with narrower floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from treadle.errors import TypeMismatch
from treadle.graph.nodes import (
    Call,
    Constant,
    Function,
    Node,
    Tuple,
    TupleItem,
    Var,
    topological,
    with_operands,
)
from treadle.graph.operator import Operator, bodies_of, with_bodies
from treadle.graph.types import TensorType, Type, tensor_type

WIDE = "float64"

Cast = Callable[[Node, str], Node]
"""cast(value, dtype) -> the value as another element type."""


def in_float64(function: Function, cast: Cast) -> Function:
    """Return `function` with float64 in place of every narrower float.

    An operator that takes narrower floats only gets them, and its result is widened again.
    """
    return _Widened(cast).function(function)


def _is_narrow(dtype: object) -> bool:
    return isinstance(dtype, str) and dtype in ("float32", "float16", "bfloat16")


def _wide(type_: TensorType) -> TensorType:
    return type_.with_dtype(WIDE) if _is_narrow(type_.dtype) else type_


class _Widened:
    def __init__(self, cast: Cast) -> None:
        self._cast = cast

    def function(self, function: Function) -> Function:
        params = [Var(p.name, _wide(tensor_type(p.type)), p.origin) for p in function.params]
        done: dict[Node, Node] = dict(zip(function.params, params, strict=True))
        for node in topological([function.body]):
            if node not in done:
                done[node] = self._node(node, done)
        return Function(tuple(params), done[function.body], function.name)

    def _node(self, node: Node, done: dict[Node, Node]) -> Node:
        if isinstance(node, Constant):
            is_narrow = _is_narrow(tensor_type(node.type).dtype)
            return Constant.of(node.value.astype(np.float64)) if is_narrow else node
        if isinstance(node, Tuple):
            return Tuple.of(done[f] for f in node.fields)
        if isinstance(node, TupleItem):
            return TupleItem.of(done[node.value], node.index)
        if isinstance(node, Call) and isinstance(node.op, Operator):
            return self._call(node, node.op, [done[a] for a in node.args])
        return with_operands(node, [done[a] for a in getattr(node, "args", ())])

    def _call(self, node: Call, op: Operator[Any], args: list[Node]) -> Node:
        attrs: Any = node.attrs
        if bodies := bodies_of(node):
            attrs = with_bodies(attrs, {b: self.function(b) for b in bodies})
        elif attrs is not None:
            narrow = [f.name for f in fields(attrs) if _is_narrow(getattr(attrs, f.name))]
            attrs = replace(attrs, **dict.fromkeys(narrow, WIDE))
        try:
            return op.call(attrs, tuple(args), origin=node.origin)
        except TypeMismatch:
            return self._narrow_call(node, op, args)

    def _narrow_call(self, node: Call, op: Operator[Any], args: list[Node]) -> Node:
        """Return a call with operands of the types that the operator was given."""
        given = [
            self._cast(new, _dtype(old.type)) if _dtype(new.type) != _dtype(old.type) else new
            for new, old in zip(args, node.args, strict=True)
        ]
        made = op.call(node.attrs, tuple(given), origin=node.origin)
        if isinstance(made.type, TensorType):
            return self._cast(made, WIDE) if _is_narrow(made.type.dtype) else made
        items = [TupleItem.of(made, k) for k in range(len(made.type.fields))]
        return Tuple.of(self._cast(i, WIDE) if _is_narrow(_dtype(i.type)) else i for i in items)


def _dtype(type_: Type) -> str:
    return type_.dtype if isinstance(type_, TensorType) else ""
