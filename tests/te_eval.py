# SPDX-License-Identifier: Apache-2.0
"""A NumPy evaluator of tensor expressions: the meaning of a compute, without loops or lowering.

Every compute is evaluated over its whole iteration space at once. A read outside a tensor is an
error unless a lazy select (or a reduction's condition) keeps it from being evaluated. Reductions
combine in the order of the reduction axes, one element at a time, so sums show the rounding error
of the plainest loop.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle import dtype as dt
from treadle.expr import nodes
from treadle.expr.nodes import Expr
from treadle.loop.nodes import Allocate, Buffer, For, Let, Prefetch, Seq, Stmt, Store
from treadle.te.operations import ComputeOp, ExternOp, PlaceholderOp, Reduce, Tensor


def evaluate(outputs: Sequence[Tensor], inputs: Mapping[Tensor, np.ndarray]) -> list[np.ndarray]:
    """Return the values of `outputs` for given placeholder values (static shapes)."""
    values: dict[Tensor, np.ndarray] = dict(inputs)
    for tensor in _in_order(outputs):
        if tensor not in values:
            assert not isinstance(tensor.op, PlaceholderOp), f"no value for the input {tensor}"
            run = _run_extern if isinstance(tensor.op, ExternOp) else _run
            for made, value in zip(tensor.op.outputs, run(tensor.op, values), strict=True):  # type: ignore[arg-type]
                values[made] = value
    return [values[t] for t in outputs]


def _in_order(outputs: Sequence[Tensor]) -> list[Tensor]:
    done: dict[Tensor, None] = {}
    stack = [(t, False) for t in reversed(outputs)]
    while stack:
        tensor, ready = stack.pop()
        if tensor in done:
            continue
        if ready or isinstance(tensor.op, PlaceholderOp):
            done[tensor] = None
            continue
        stack.append((tensor, True))
        stack.extend((t, False) for t in tensor.op.input_tensors)
    return list(done)


def _extent(axis: nodes.Var) -> int:
    value = nodes.int_value(axis.extent)  # type: ignore[attr-defined]
    assert value is not None, f"the extent of {axis} is not known"
    return value


def _run(op: ComputeOp, values: Mapping[Tensor, np.ndarray]) -> list[np.ndarray]:
    shape = tuple(_extent(a) for a in op.axis)
    grid = {
        a: np.arange(n, dtype=np.int64).reshape((-1,) + (1,) * (len(shape) - 1 - k))
        for k, (a, n) in enumerate(zip(op.axis, shape, strict=True))
    }
    first = op.body[0]
    if 0 in shape:
        return [np.zeros(shape, dt.to_numpy(b.dtype)) for b in op.body]
    if isinstance(first, Reduce):
        return _reduce(op, first, shape, grid, values)
    frame = _Frame(grid, values)
    made = [frame.value(b, np.True_) for b in op.body]
    return [
        np.array(np.broadcast_to(v, shape), dt.to_numpy(b.dtype), order="C")
        for v, b in zip(made, op.body, strict=True)
    ]


def _run_extern(op: ExternOp, values: Mapping[Tensor, np.ndarray]) -> list[np.ndarray]:
    ins = [Buffer(t.name, t.dtype, t.shape) for t in op.inputs]
    outs = [Buffer(t.name, t.dtype, t.shape) for t in op.outputs]
    arrays: dict[object, np.ndarray] = {b: values[t] for b, t in zip(ins, op.inputs, strict=True)}
    arrays |= {
        b: np.zeros([nodes.int_value(d) or 0 for d in b.shape], dt.to_numpy(b.dtype)) for b in outs
    }
    _execute(op.build(ins, outs), {}, arrays)
    return [arrays[b] for b in outs]


def _execute(
    stmt: Stmt, variables: dict[nodes.Var, np.ndarray], arrays: dict[object, np.ndarray]
) -> None:
    """Run a statement one element at a time."""

    def value(e: Expr) -> np.ndarray:
        return _Frame(variables, arrays).value(e, np.True_)

    if isinstance(stmt, Seq):
        for s in stmt.stmts:
            _execute(s, variables, arrays)
    elif isinstance(stmt, For):
        for k in range(int(value(stmt.extent))):
            _execute(stmt.body, {**variables, stmt.var: np.asarray(k, np.int64)}, arrays)
    elif isinstance(stmt, Store):
        arrays[stmt.buffer][tuple(int(value(i)) for i in stmt.indices)] = value(stmt.value)
    elif isinstance(stmt, Allocate):
        shape = [nodes.int_value(d) or 0 for d in stmt.buffer.shape]
        arrays[stmt.buffer] = np.zeros(shape, dt.to_numpy(stmt.buffer.dtype))
        _execute(stmt.body, variables, arrays)
    elif isinstance(stmt, Let):
        _execute(stmt.body, {**variables, stmt.var: value(stmt.value)}, arrays)
    elif isinstance(stmt, Prefetch):
        pass
    elif value(stmt.cond):
        _execute(stmt.then, variables, arrays)
    elif stmt.orelse is not None:
        _execute(stmt.orelse, variables, arrays)


def _reduce(
    op: ComputeOp,
    first: Reduce,
    shape: tuple[int, ...],
    grid: Mapping[nodes.Var, np.ndarray],
    values: Mapping[Tensor, np.ndarray],
) -> list[np.ndarray]:
    combiner = first.combiner
    totals = [
        np.full(shape, _Frame({}, {}).value(e, np.True_), dt.to_numpy(e.dtype))
        for e in combiner.identity
    ]
    for point in itertools.product(*(range(_extent(a)) for a in first.axes)):
        at = {
            **grid,
            **{
                a: np.asarray(p + (nodes.int_value(a.start) or 0), np.int64)
                for a, p in zip(first.axes, point, strict=True)
            },
        }
        frame = _Frame(at, values)
        condition = np.asarray(frame.value(first.condition, np.True_))
        sources = [frame.value(s, condition) for s in first.sources]
        pairs = dict(zip(combiner.lhs + combiner.rhs, (*totals, *sources), strict=True))
        step = _Frame(pairs, {})
        fresh = [step.value(r, np.True_) for r in combiner.results]
        totals = [
            np.where(condition, f, t).astype(t.dtype) for f, t in zip(fresh, totals, strict=True)
        ]
    return [np.broadcast_to(totals[b.index], shape) for b in op.body if isinstance(b, Reduce)]


class _Frame:
    """Values of variables and tensors while one body is evaluated."""

    def __init__(
        self, variables: Mapping[nodes.Var, np.ndarray], tensors: Mapping[Any, np.ndarray]
    ) -> None:
        self.variables = variables
        self.tensors = tensors
        self.memo: dict[tuple[Expr, int], np.ndarray] = {}
        self.masks: list[np.ndarray] = []  # kept alive: memo keys hold their ids

    def value(self, e: Expr, mask: np.ndarray) -> np.ndarray:
        """Return the value of `e`; where `mask` is false anything may come out."""
        key = (e, id(mask))
        if key not in self.memo:
            self.masks.append(mask)
            with np.errstate(all="ignore"):
                self.memo[key] = np.asarray(self._value(e, mask)).astype(
                    dt.to_numpy(e.dtype), copy=False
                )
        return self.memo[key]

    def _value(self, e: Expr, mask: np.ndarray) -> np.ndarray:
        if isinstance(e, nodes.Const):
            return np.array(e.value, dt.to_numpy(e.dtype))
        if isinstance(e, nodes.Var):
            return self.variables[e]
        if isinstance(e, nodes.Binary):
            return _binary(e.op, self.value(e.a, mask), self.value(e.b, mask), e.a.dtype, mask)
        if isinstance(e, nodes.Cast):
            return convert(self.value(e.value, mask), e.dtype)
        if isinstance(e, nodes.Select):
            return self._select(e, mask)
        if isinstance(e, nodes.Load):
            return self._load(e, mask)
        if isinstance(e, nodes.Apply):
            return self.value(e.instruction.expand(e.args), mask)
        assert isinstance(e, nodes.Call), f"unexpected node {e}"
        return _intrinsic(e.name, [self.value(a, mask) for a in e.args], e)

    def _select(self, e: nodes.Select, mask: np.ndarray) -> np.ndarray:
        cond = self.value(e.cond, mask)
        yes, no = (mask & cond, mask & ~cond) if e.lazy else (mask, mask)
        return np.where(cond, self.value(e.then, yes), self.value(e.other, no))

    def _load(self, e: nodes.Load, mask: np.ndarray) -> np.ndarray:
        data = self.tensors[e.source]
        at = [self.value(i, mask) for i in e.indices]
        for k, (i, n) in enumerate(zip(at, data.shape, strict=True)):
            outside = mask & ((i < 0) | (i >= n))
            if np.any(outside):
                raise IndexError(f"{e} reads outside dimension {k} of extent {n}")
        if 0 in data.shape:
            return np.zeros(np.broadcast_shapes(np.shape(mask), *(i.shape for i in at)), data.dtype)
        return np.asarray(
            data[tuple(np.clip(i, 0, n - 1) for i, n in zip(at, data.shape, strict=True))]
        )


def convert(x: np.ndarray, dtype: str) -> np.ndarray:
    """Return `x` as `dtype` by the rule of `Cast`: truncate, saturate, NaN to 0."""
    target = dt.to_numpy(dtype)
    if dtype == "bool":
        return x != 0
    if not (dt.is_integer(dtype) and dt.is_float(x.dtype.name)):
        return x.astype(target)
    lo, hi = int(dt.min_value(dtype)), int(dt.max_value(dtype))

    def one(v: float) -> int:
        return 0 if math.isnan(v) else hi if v >= hi else lo if v <= lo else int(v)

    flat = [one(float(v)) for v in x.ravel()]
    return np.array(flat, dtype=target).reshape(x.shape)


_BINARY: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "min": np.minimum, "max": np.maximum,
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def _binary(op: str, a: np.ndarray, b: np.ndarray, dtype: str, mask: np.ndarray) -> np.ndarray:
    if op in _BINARY:
        return _BINARY[op](a, b)
    if op in ("shl", "shr"):
        if np.any(mask & ((b < 0) | (b >= dt.bits(dtype)))):
            raise ValueError(f"a shift of {dtype} by its width or more")
        return np.left_shift(a, b) if op == "shl" else np.right_shift(a, b)
    if np.any(mask & (b == 0)):
        raise ZeroDivisionError(f"{op} by zero")
    smallest = dt.min_value(dtype)
    if dt.is_signed(dtype) and np.any(mask & (b == -1) & (a == smallest)):
        raise OverflowError(f"{op} of the smallest {dtype} by -1")
    b = np.where(b == 0, np.ones_like(b), b)
    if op == "floordiv":
        return np.floor_divide(a, b)
    if op == "floormod":
        return np.mod(a, b)
    rest = np.fmod(a, b)
    if op == "truncmod":
        return rest
    assert op == "truncdiv", op
    return np.floor_divide(a - rest, b)


def _by_float(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    table = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(table(x)).astype(np.float64)


_FLOAT: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp, "log": np.log, "log2": np.log2, "log1p": np.log1p, "expm1": np.expm1,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": _by_float(math.erf),
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "softplus": lambda x: np.logaddexp(0, x), "exp_weight": np.exp,
    "normal_cdf": _by_float(lambda x: math.erfc(-x * math.sqrt(0.5)) / 2),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "atan2": np.arctan2, "fmod": np.fmod,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
}  # fmt: skip


def _intrinsic(name: str, args: list[np.ndarray], e: nodes.Call) -> np.ndarray:
    if name == "not":
        return np.logical_not(args[0])
    if name == "bitcast":
        bits = np.ascontiguousarray(args[0]).view(dt.to_numpy(e.dtype))
        return np.asarray(bits.reshape(args[0].shape))
    if name == "abs":
        return np.abs(args[0])
    if name == "pow" and not dt.is_float(e.dtype):
        assert not np.any(args[1] < 0), "an integer power has a negative exponent"
        return np.power(*args)
    wide = [a.astype(np.float64) for a in args]
    if name in ("isnan", "isinf"):
        return np.isnan(wide[0]) if name == "isnan" else np.isinf(wide[0])
    if name == "pow":
        return np.power(*wide)
    if name == "copysign":
        return np.copysign(*wide)
    if name == "fma":
        return wide[0] * wide[1] + wide[2]
    return _FLOAT[name](*wide)
