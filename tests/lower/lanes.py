# SPDX-License-Identifier: Apache-2.0
"""Vectors of NumPy values through expressions, bit by bit as a machine computes them.

Every node is rounded to its own type. `fused` says whether `fma` rounds once or twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from treadle.dtype import to_numpy
from treadle.expr.nodes import Apply, Binary, Broadcast, Call, Cast, Const, Expr, Select, Var
from treadle.expr.traversal import walk

_BINARY: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip

_UNARY: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "isnan": np.isnan, "isinf": np.isinf, "not": np.logical_not,
}  # fmt: skip


def run(e: Expr, values: Mapping[Var, np.ndarray], *, fused: bool = True) -> np.ndarray:
    """Return the value of an expression for arrays of values of its variables."""
    done: dict[Expr, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in walk(e):
            value = _node(node, done, values, fused)
            assert value.dtype == to_numpy(node.dtype), f"{node} is {value.dtype}"
            done[node] = value
    return done[e]


def _node(
    e: Expr, done: Mapping[Expr, np.ndarray], values: Mapping[Var, np.ndarray], fused: bool
) -> np.ndarray:
    if isinstance(e, Var):
        return values[e]
    if isinstance(e, Const):
        return np.array(e.value, to_numpy(e.dtype))
    if isinstance(e, Apply):
        return run(e.instruction.expand(e.args), values, fused=fused)
    operands = [done[c] for c in e.children]
    if isinstance(e, Binary):
        return np.asarray(_BINARY[e.op](*operands))
    if isinstance(e, Select):
        return np.where(*operands)
    if isinstance(e, Cast):
        return operands[0].astype(to_numpy(e.dtype))
    if isinstance(e, Broadcast):
        return operands[0]
    assert isinstance(e, Call), f"unexpected node {e}"
    if e.name == "bitcast":
        return np.asarray(operands[0]).view(to_numpy(e.dtype))
    if e.name == "copysign":
        return np.copysign(*operands)
    if e.name == "fma":
        return _fma(*operands) if fused else np.asarray(operands[0] * operands[1] + operands[2])
    return np.asarray(_UNARY[e.name](*operands))


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return a * b + c rounded (but for rare ties) once."""
    if np.result_type(a, b, c) == np.float32:
        wide = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
        return np.asarray(wide.astype(np.float32))
    product = a * b
    low = _product_error(a, b, product)
    total = product + c
    shift = total - product
    lost = (product - (total - shift)) + (c - shift)
    rest = lost + low
    return np.where(np.isfinite(rest) & (rest != 0), total + rest, total)


def _product_error(a: np.ndarray, b: np.ndarray, product: np.ndarray) -> np.ndarray:
    a1, a2 = _halves(a)
    b1, b2 = _halves(b)
    return np.asarray(((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2)


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    t = x * 134217729.0
    high = t - (t - x)
    return high, x - high
