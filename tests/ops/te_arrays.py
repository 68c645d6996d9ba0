# SPDX-License-Identifier: Apache-2.0
"""An interpreter of te computes on whole NumPy arrays; it refuses reads outside a tensor."""

from __future__ import annotations

import numpy as np

from treadle import dtype as dt
from treadle.expr import nodes
from treadle.graph.operator import Operator
from treadle.te import tensor as te

BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide,
    "floormod": np.mod, "min": np.minimum, "max": np.maximum, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.logical_and, "or": np.logical_or, "div": np.divide,
}  # fmt: skip
CALLS = {
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "abs": np.abs, "not": np.logical_not,
    "trunc": np.trunc, "isnan": np.isnan,
}  # fmt: skip
REDUCE = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


class Evaluator:
    """Values of te tensors for given placeholder values."""

    def __init__(self, inputs: dict[te.Operation, np.ndarray]) -> None:
        self.values = {op: (value,) for op, value in inputs.items()}

    def tensor(self, x: te.Tensor) -> np.ndarray:
        op = x.op
        if op not in self.values:
            assert isinstance(op, te.ComputeOp)
            self.values[op] = tuple(self._body(op, body) for body in op.body)
        return self.values[op][x.value_index]

    def _body(self, op: te.ComputeOp, body: nodes.Expr) -> np.ndarray:
        axes = [*op.axis, *op.reduce_axis]
        extents = [nodes.int_value(a.extent) for a in axes]
        env: dict[nodes.Expr, np.ndarray] = {}
        for k, axis in enumerate(axes):
            shape = [1] * len(axes)
            shape[k] = -1
            start = nodes.int_value(getattr(axis, "start", 0))
            env[axis] = (np.arange(extents[k], dtype=np.int64) + start).reshape(shape)
        if not isinstance(body, te.Reduce):
            return np.broadcast_to(self._eval(body, env, True, {}), extents).copy()
        value = self._eval(body.sources[0], env, True, {})
        value = np.broadcast_to(value, extents)
        assert nodes.int_value(body.condition) is True
        over = tuple(range(len(op.axis), len(axes)))
        if body.combiner.name == "sum":
            return np.sum(value, axis=over, dtype=value.dtype)
        return REDUCE[body.combiner.name](value, axis=over)

    def _eval(self, e, env, mask, memo):  # type: ignore[no-untyped-def]
        key = (e, id(mask))
        if key not in memo:
            memo[key] = (self._node(e, env, mask, memo), mask)
        return memo[key][0]

    def _node(self, e, env, mask, memo):  # type: ignore[no-untyped-def]
        if e in env:
            return env[e]
        if isinstance(e, nodes.Const):
            return np.asarray(e.value, dt.to_numpy(e.dtype))
        if isinstance(e, nodes.Select):
            cond = self._eval(e.cond, env, mask, memo)
            then = self._eval(e.then, env, mask & cond, memo)
            other = self._eval(e.other, env, mask & ~cond, memo)
            return np.where(cond, then, other)
        args = [self._eval(c, env, mask, memo) for c in e.children]
        if isinstance(e, nodes.Load):
            return self._load(e, args, mask)
        if isinstance(e, nodes.Cast):
            return args[0].astype(dt.to_numpy(e.dtype))
        with np.errstate(all="ignore"):
            table = BINARY if isinstance(e, nodes.Binary) else CALLS
            result = table[e.op if isinstance(e, nodes.Binary) else e.name](*args)
        return np.asarray(result).astype(dt.to_numpy(e.dtype), copy=False)

    def _load(self, e, index, mask):  # type: ignore[no-untyped-def]
        array = self.tensor(e.source)
        clipped = []
        for i, size in zip(index, array.shape, strict=True):
            bad = mask & ((i < 0) | (i >= size))
            assert not np.any(bad), f"{e} reads outside of {e.source}"
            clipped.append(np.clip(i, 0, max(size - 1, 0)))
        if array.size == 0:
            shape = np.broadcast_shapes(*(c.shape for c in clipped))
            return np.zeros(shape, array.dtype)
        return array[tuple(clipped)]


def evaluate(operator: Operator, arrays: list[np.ndarray], attrs: dict[str, object]) -> np.ndarray:
    """Return what an operator's te compute gives for arrays."""
    inputs = [
        te.placeholder(a.shape, dt.from_numpy(a.dtype), name=f"x{k}") for k, a in enumerate(arrays)
    ]
    assert operator.compute is not None
    made = operator.compute(operator.make_attrs(attrs), *inputs)
    last = made if isinstance(made, te.Tensor) else made[-1]
    values = {x.op: a for x, a in zip(inputs, arrays, strict=True)}
    return Evaluator(values).tensor(last)
