# SPDX-License-Identifier: Apache-2.0
"""What makes a graph well formed: every type is inferred again and compared, every Var is bound."""

from __future__ import annotations

from treadle import dtype as dt
from treadle.errors import InternalError, TypeMismatch
from treadle.graph.nodes import (
    Call,
    Constant,
    DeferredConstant,
    Function,
    Node,
    Tuple,
    TupleItem,
    Var,
    topological,
)
from treadle.graph.operator import bodies_of
from treadle.graph.types import TensorType, TupleType


def verify(function: Function) -> None:
    """Check a function and the functions it calls.

    Raises:
        InternalError: a node's type differs from what its operator infers, a variable is no
            parameter of the function it is used in, two parameters share a name, or a call of a
            function does not fit its parameters.
    """
    checked: set[Function] = set()
    stack = [function]
    while stack:
        current = stack.pop()
        if current in checked:
            continue
        checked.add(current)
        _verify_params(current)
        for node in topological([current.body]):
            _verify_node(node, current)
            if isinstance(node, Call):
                stack.extend([node.op] if isinstance(node.op, Function) else bodies_of(node))


def _verify_params(function: Function) -> None:
    names = [p.name for p in function.params]
    if len(set(names)) != len(names) or len(set(function.params)) != len(names):
        raise InternalError(f"two parameters have one name: {names}", at=_place(function))


def _verify_node(node: Node, function: Function) -> None:
    at = f"{_place(function)}, node {node.origin or '(unnamed)'}"
    if isinstance(node, Var):
        if node not in function.params:
            raise InternalError(f"the variable {node.name} is not a parameter", at=at)
    elif isinstance(node, Constant):
        _verify_constant(node, at)
    elif isinstance(node, Tuple):
        _expect(node, TupleType(tuple(f.type for f in node.fields)), at)
    elif isinstance(node, TupleItem):
        _verify_item(node, at)
    elif isinstance(node.op, Function):
        _verify_function_call(node, node.op, at)
    else:
        try:
            inferred = node.op.infer(node.attrs, *(a.type for a in node.args))
        except TypeMismatch as e:
            raise InternalError(f"operator {node.op.name} does not fit: {e}", at=at) from e
        _expect(node, inferred, f"{at}, operator {node.op.name}")


def _verify_constant(node: Constant, at: str) -> None:
    if isinstance(node, DeferredConstant):
        return  # computing large weights just to look at them takes long
    found = TensorType(node.value.shape, dt.from_numpy(node.value.dtype))
    _expect(node, found, at)


def _verify_item(node: TupleItem, at: str) -> None:
    type_ = node.value.type
    if not isinstance(type_, TupleType) or not 0 <= node.index < len(type_.fields):
        raise InternalError(f"a value of type {type_} has no field {node.index}", at=at)
    _expect(node, type_.fields[node.index], at)


def _verify_function_call(node: Call, function: Function, at: str) -> None:
    wanted = tuple(p.type for p in function.params)
    given = tuple(a.type for a in node.args)
    if wanted != given:
        raise InternalError(
            f"{function.name or 'a function'} takes {TupleType(wanted)}, called with"
            f" {TupleType(given)}",
            at=at,
        )
    _expect(node, function.type, at)


def _expect(node: Node, inferred: object, at: str) -> None:
    if node.type != inferred:
        raise InternalError(f"a node says {node.type}, its operands give {inferred}", at=at)


def _place(function: Function) -> str:
    return f"function {function.name or 'main'}"
