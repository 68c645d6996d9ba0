# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on sizes while importing: what computes shapes from shapes becomes sizes again.

Exporters write shape arithmetic as tensor operations (Shape, Gather, Concat, Mul, ...). Where sizes
are symbolic these are evaluated on arrays of expressions, by the operators' own NumPy references
where elements only move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle.expr.nodes import Expr, ExprLike, convert, int_value, maximum, minimum
from treadle.graph.nodes import Call, Constant, Node, TupleItem, operands, topological
from treadle.graph.operator import Operator
from treadle.graph.types import Dim, TensorType, known_true, normal_size
from treadle.ops import elementwise, indexing, movement, reshaping
from treadle.ops import reduce as reductions
from treadle.ops.sizes import SizesAttrs, sizes

_MOST_ELEMENTS = 64
_MOVES = frozenset(
    {
        *(reshaping.reshape, reshaping.transpose, reshaping.broadcast_to, indexing.gather),
        *(movement.concat, movement.slice_, movement.split, movement.tile),
    }
)


_HOLD_SIZES = frozenset({"int64", "int32", "uint64", "uint32"})
"""Integer types that an extent is taken to fit; exporters send shapes through int32."""


class _Unknown(Exception):
    """A value cannot be told before the model runs."""


def is_sizes(node: Node) -> bool:
    """True for a tensor of sizes, some of them symbolic, of any integer type that holds them."""
    return _sizes_attrs(node) is not None


def size_values(node: Node) -> np.ndarray | None:
    """Return the elements of a constant or of sizes, as Python ints and expressions."""
    if isinstance(node, Constant):
        return node.value.astype(object)
    attrs = _sizes_attrs(node)
    if attrs is None:
        return None
    return np.array(attrs.values, dtype=object).reshape(attrs.shape)


def _sizes_attrs(node: Node) -> SizesAttrs | None:
    """Return what a tensor of sizes holds; those of a type but int64 are `sizes` under a cast."""
    if isinstance(node, Call) and node.op is elementwise.cast:
        assert isinstance(node.type, TensorType)
        if node.type.dtype not in _HOLD_SIZES:
            return None
        node = node.args[0]
    if not isinstance(node, Call) or node.op is not sizes:
        return None
    assert isinstance(node.attrs, SizesAttrs)
    return node.attrs


def sizes_node(values: Sequence[Dim], shape: Sequence[int], dtype: str = "int64") -> Node:
    """Return a tensor of sizes: a constant where all are known."""
    known = [int_value(v) for v in values]
    if None not in known:
        return Constant.of(np.array(known, dt.to_numpy(dtype)).reshape(tuple(shape)))
    made = sizes(values=tuple(values), shape=tuple(shape))
    return made if dtype == "int64" else elementwise.cast(made, dtype=dtype)


def fold_sizes(node: Node) -> Node:
    """Return what computes with sizes as sizes again; `node` itself where that is not possible."""
    if not _is_small(node) or isinstance(node, Constant) or is_sizes(node):
        return node
    order = topological([node])
    leaves = [n for n in order if not operands(n)]
    if not any(map(is_sizes, leaves)) or not all(size_values(n) is not None for n in leaves):
        return node
    values: dict[Node, Any] = {}  # an array, or a tuple of arrays
    try:
        for n in order:
            values[n] = _evaluate(n, values)
    except _Unknown:
        return node
    assert isinstance(node.type, TensorType)
    elements = [v if isinstance(v, Expr) else int(v) for v in values[node].reshape(-1)]
    if node.type.dtype in _HOLD_SIZES:
        return sizes_node(elements, node.type.static_shape, node.type.dtype)
    if all(isinstance(v, int) for v in elements):
        kind = dt.to_numpy(node.type.dtype)
        return Constant.of(np.array(elements).astype(kind).reshape(node.type.static_shape))
    return node


def _is_small(node: Node) -> bool:
    type_ = node.type
    if not isinstance(type_, TensorType):
        return False
    return type_.is_static and type_.size <= _MOST_ELEMENTS and not dt.is_float(type_.dtype)


def _evaluate(node: Node, values: dict[Node, Any]) -> Any:  # an array, or a tuple of arrays
    known = size_values(node)
    if known is not None:
        return known
    if isinstance(node, TupleItem):
        return values[node.value][node.index]
    if not isinstance(node, Call) or not isinstance(node.op, Operator):
        raise _Unknown
    arrays = [values[a] for a in node.args]
    if node.op in _MOVES:
        return node.op.reference(node.attrs, *arrays)
    return _computed(node, arrays)


def _computed(node: Call, arrays: list[np.ndarray]) -> np.ndarray:
    op: Any = node.op
    attrs: Any = node.attrs
    if op is elementwise.cast:
        if attrs.dtype == "bool":
            return _each(lambda v: _decided(convert(v) != 0), arrays[0])
        if attrs.dtype not in _HOLD_SIZES:
            raise _Unknown
        return arrays[0]
    if op in (reductions.prod, reductions.sum_):
        fold = np.prod if op is reductions.prod else np.sum
        made = fold(arrays[0], axis=attrs.axes or None, keepdims=attrs.keepdims)
        return np.asarray(made, object)
    if op not in _SCALARS:
        raise _Unknown
    return _each(_SCALARS[op], *arrays)


def _each(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    made = np.frompyfunc(function, len(arrays), 1)(*arrays)
    return np.asarray(made, object)


def _normal(function: Callable[..., ExprLike]) -> Callable[..., Any]:
    """Return a function of sizes with its result in normal form."""

    def apply(*args: Any) -> Any:  # Any: ints or expressions
        made = function(*args)
        return normal_size(made) if isinstance(made, Expr) else int(made)

    return apply


def _decided(condition: Expr | bool) -> bool:
    known = known_true(condition)
    if known is None:
        raise _Unknown
    return known


def _quotient(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int) and b:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if not _decided(convert(a) >= 0) or not _decided(convert(b) > 0):
        raise _Unknown
    return convert(a) // b


def _remainder(a: Dim, b: Dim) -> Dim:
    if not _decided(convert(a) >= 0) or not _decided(convert(b) > 0):
        raise _Unknown
    return convert(a) % b


def _compare(test: Callable[[Expr, Expr], Expr]) -> Callable[..., bool]:
    return lambda a, b: _decided(test(convert(a), convert(b)))


_SCALARS: dict[Any, Callable[..., Any]] = {  # Any: operators of all kinds of attributes
    elementwise.add: _normal(lambda a, b: a + b),
    elementwise.subtract: _normal(lambda a, b: a - b),
    elementwise.multiply: _normal(lambda a, b: a * b),
    elementwise.divide: _normal(_quotient),
    elementwise.mod: _normal(_remainder),
    elementwise.negative: _normal(lambda a: 0 - a),
    elementwise.maximum: _normal(lambda a, b: maximum(convert(a), b)),
    elementwise.minimum: _normal(lambda a, b: minimum(convert(a), b)),
    elementwise.equal: _compare(lambda a, b: a == b),
    elementwise.not_equal: _compare(lambda a, b: a != b),
    elementwise.less: _compare(lambda a, b: a < b),
    elementwise.less_equal: _compare(lambda a, b: a <= b),
    elementwise.greater: _compare(lambda a, b: a > b),
    elementwise.greater_equal: _compare(lambda a, b: a >= b),
    elementwise.logical_and: lambda a, b: a and b,
    elementwise.logical_or: lambda a, b: a or b,
    elementwise.not_: lambda a: not a,
    elementwise.where: lambda c, a, b: a if c else b,
}
