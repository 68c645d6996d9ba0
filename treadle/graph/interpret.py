# SPDX-License-Identifier: Apache-2.0
"""Run a graph with the operators' NumPy references: the oracle of tests and of `--check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias

import numpy as np

from treadle import dtype as dt
from treadle.errors import InputError, InternalError
from treadle.expr import nodes as ex
from treadle.expr.traversal import walk
from treadle.graph.nodes import (
    Call,
    Constant,
    Function,
    Node,
    Tuple,
    Var,
    operands,
)
from treadle.graph.operator import Attrs
from treadle.graph.symbols import in_order
from treadle.graph.types import Dim, TensorType, Type, tensor_type

Value: TypeAlias = "np.ndarray | tuple[Value, ...]"
Sizes: TypeAlias = dict[ex.Expr, int]
"""What the symbolic sizes of a run are."""


def run(function: Function, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of `function` for inputs given by parameter name.

    Raises:
        InputError: an input is missing or unknown, or has the wrong dtype, rank or shape.
    """
    names = [p.name for p in function.params]
    unknown = sorted(set(inputs) - set(names))
    if unknown:
        raise InputError(f"the graph has no input {unknown[0]!r}", hint=f"inputs: {names}")
    missing = [n for n in names if n not in inputs]
    if missing:
        raise InputError(f"the input {missing[0]!r} is missing", hint=f"inputs: {names}")
    result = evaluate(function, [inputs[n] for n in names])
    return leaves(result)


def evaluate(function: Function, args: Sequence[np.ndarray]) -> Value:
    """Return the value of `function` for arguments in the order of its parameters."""
    sizes: Sizes = {}
    arrays = [np.asarray(a) for a in args]
    for param, array in zip(function.params, arrays, strict=True):
        _bind(tensor_type(param.type), array, sizes, f"input {param.name}")
    return _evaluate(function, arrays, sizes)


def _evaluate(function: Function, args: Sequence[Value], sizes: Sizes) -> Value:
    order, deciders = in_order(function)
    decided: dict[Node, list[Dim]] = {}
    for symbol, decider in deciders.items():
        decided.setdefault(decider, []).append(symbol)
    waiting = _use_counts(order, function.body)
    values: dict[Node, Value] = dict(zip(function.params, args, strict=True))
    for node in order:
        if node not in values:
            values[node] = _value(node, [values[o] for o in operands(node)], sizes)
        for size in decided.get(node, ()):
            _learn(size, values[node], sizes)
        for operand in operands(node):
            waiting[operand] -= 1
            if not waiting[operand]:
                del values[operand]
    return values[function.body]


def _use_counts(order: Sequence[Node], root: Node) -> dict[Node, int]:
    counts = dict.fromkeys(order, 0)
    counts[root] = 1
    for node in order:
        for operand in operands(node):
            counts[operand] += 1
    return counts


def _value(node: Node, args: list[Value], sizes: Sizes) -> Value:
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Tuple):
        return tuple(args)
    if isinstance(node, Call):
        return _call(node, args, sizes)
    if isinstance(node, Var):
        raise InternalError(f"the variable {node.name} is not a parameter of the function")
    return args[0][node.index]


def _call(node: Call, args: list[Value], sizes: Sizes) -> Value:
    if isinstance(node.op, Function):
        return _evaluate(node.op, args, sizes)
    attrs = _attrs_with_sizes(node.attrs, sizes) if node.attrs is not None else None
    if node.op.control is not None:
        result = _as_value(node.op.control(lambda f, a: _body(f, a, sizes), attrs, *args))
    else:
        result = _as_value(node.op.reference(attrs, *args))
    _check(
        node.type,
        result,
        sizes,
        f"operator {node.op.name}, node {node.origin or '(unnamed)'}",
    )
    return result


def _body(function: Function, args: Sequence[np.ndarray], sizes: Sizes) -> list[np.ndarray]:
    """Return the results of the body of control flow: its sizes end with it."""
    inner = dict(sizes)
    for param, array in zip(function.params, args, strict=True):
        own = {d for d in tensor_type(param.type).shape if isinstance(d, ex.Var)}
        inner = {d: n for d, n in inner.items() if d not in own}
        _bind(tensor_type(param.type), np.asarray(array), inner, f"parameter {param.name}")
    return leaves(_evaluate(function, [np.asarray(a) for a in args], inner))


def _learn(size: Dim, value: Value, sizes: Sizes) -> None:
    """Note the number that a value gives a symbolic size."""
    if not isinstance(size, ex.Expr) or isinstance(value, tuple):
        return
    number = int(value)
    if number < 0:
        raise InputError(f"the size {size} cannot be {number}")
    sizes[size] = number


def _as_value(result: object) -> Value:
    if isinstance(result, (tuple, list)):
        return tuple(_as_value(r) for r in result)
    return np.asarray(result)


def _attrs_with_sizes(attrs: Attrs, sizes: Sizes) -> Attrs:
    """Return the record with symbolic dimensions in its fields replaced by their sizes."""
    if not sizes:
        return attrs
    changed: dict[str, Any] = {}  # fields of any type
    for f in fields(attrs):
        value = getattr(attrs, f.name)
        if isinstance(value, ex.Expr):
            number = _dim_value(value, sizes)
            changed[f.name] = value if number is None else number
        if isinstance(value, tuple) and any(isinstance(v, ex.Expr) for v in value):
            known = tuple(_dim_value(v, sizes) if isinstance(v, ex.Expr) else v for v in value)
            changed[f.name] = tuple(
                v if k is None else k for k, v in zip(known, value, strict=True)
            )
    return replace(attrs, **changed) if changed else attrs


def _dim_value(dim: Dim, sizes: Sizes) -> int | None:
    """Return the number a dimension stands for, None where a symbol in it is not known."""
    if not isinstance(dim, ex.Expr):
        return dim
    values: dict[ex.Expr, int] = {}
    for node in walk(dim):
        number = sizes.get(node) if isinstance(node, ex.Var) else ex.int_value(node)
        if number is None and isinstance(node, ex.Binary):
            number = _fold(node, values)
        if isinstance(node, ex.Select):
            number = values[node.then if values[node.cond] else node.other]
        if number is None:
            return None
        values[node] = number
    return values[dim]


def _fold(node: ex.Binary, values: Mapping[ex.Expr, int]) -> int | None:
    a, b = values[node.a], values[node.b]
    if node.op in ("floordiv", "floormod", "truncdiv", "truncmod") and b == 0:
        return None
    table = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "floordiv": lambda: a // b,
        "floormod": lambda: a % b,
        "truncdiv": lambda: _truncdiv(a, b),
        "truncmod": lambda: a - b * _truncdiv(a, b),
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
        "eq": lambda: int(a == b),
    }
    compute = table.get(node.op)
    return None if compute is None else compute()


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _bind(type_: TensorType, array: np.ndarray, sizes: Sizes, what: str) -> None:
    """Check an input against its type and learn the sizes its symbols have."""
    if array.dtype != dt.to_numpy(type_.dtype):
        raise InputError(f"{what} has the dtype {array.dtype}, expected {type_.dtype}")
    if array.ndim != type_.ndim:
        raise InputError(f"{what} has {array.ndim} dimensions, expected {type_}")
    for dim, size in zip(type_.shape, array.shape, strict=True):
        if isinstance(dim, ex.Var):
            sizes.setdefault(dim, size)
        known = _dim_value(dim, sizes)
        if known is not None and known != size:
            raise InputError(f"{what} has the shape {array.shape}, expected {type_}")


def _check(type_: Type, value: Value, sizes: Sizes, what: str) -> None:
    """Check that a reference gives what `infer` promised."""
    if isinstance(value, tuple):
        if isinstance(type_, TensorType) or len(type_.fields) != len(value):
            raise InternalError(f"the reference gives {len(value)} values for {type_}", at=what)
        for t, v in zip(type_.fields, value, strict=True):
            _check(t, v, sizes, what)
        return
    if not isinstance(type_, TensorType):
        raise InternalError(f"the reference gives an array for the type {type_}", at=what)
    for dim, size in zip(type_.shape, value.shape, strict=False):
        if isinstance(dim, ex.Var):
            sizes.setdefault(dim, size)
    dims = [_dim_value(d, sizes) for d in type_.shape]
    fits = len(dims) == value.ndim and all(
        d is None or d == s for d, s in zip(dims, value.shape, strict=True)
    )
    if not fits or value.dtype != dt.to_numpy(type_.dtype):
        raise InternalError(
            f"the reference gives {value.dtype}{list(value.shape)} for {type_}", at=what
        )


def leaves(value: Value) -> list[np.ndarray]:
    """Return the arrays of a value, of tuples in order."""
    if isinstance(value, np.ndarray):
        return [value]
    return [leaf for v in value for leaf in leaves(v)]
