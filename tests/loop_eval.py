# SPDX-License-Identifier: Apache-2.0
"""An interpreter of loop nests: the meaning of a PrimFunc, without lowering or machine code.

It is strict where compiled code is silent: every index is checked against its dimension, memory
that was not written yet holds poison, and iterations of parallel and vectorized loops run in a
shuffled order, so that a wrong promise of independence shows in the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from treadle import dtype as dt
from treadle.expr import nodes
from treadle.expr.nodes import Expr, Var
from treadle.expr.traversal import walk
from treadle.loop import nodes as lp
from treadle.loop.nodes import Buffer, PrimFunc, Stmt

Value = float | int | bool
Frame = dict[Var, int]
Eval = Callable[[Frame, int], Value]
"""Gives the value of an expression in one lane."""
Run = Callable[[Frame], None]

REMEMBERED_FROM = 6
"""Height from which an index is evaluated once for the same variables: bounds of cut loops hold the
bounds before them twice and more, and as trees they would have 2 to the number of cuts nodes."""

POISON = {"f": math.nan, "i": 77, "u": 77, "b": True}


class OutOfBounds(AssertionError):
    """An index is outside its buffer."""


def run(
    func: PrimFunc,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[Var, int] | None = None,
    seed: int = 0,
    fetched: list[tuple[str, int]] | None = None,
) -> None:
    """Run a function on arrays, one per parameter in their order; outputs are written in place.

    `fetched` is given every element that a prefetch names: the buffer, and which of its elements,
    counted from the first.
    """
    machine = _Machine(np.random.default_rng(seed))
    frame: Frame = dict(sizes or {})
    for param, array in zip(func.params, arrays, strict=True):
        shape = [int(machine.expr(d)(frame, 0)) for d in param.shape]
        assert int(np.prod(shape)) == array.size, f"{param} is given {array.shape}"
        assert array.dtype == dt.to_numpy(param.dtype), f"{param} is given {array.dtype}"
        machine.memory[id(param)] = array.reshape(shape)
    machine.stmt(func.body)(frame)
    if fetched is not None:
        fetched += machine.fetched


class _Machine:
    def __init__(self, chance: np.random.Generator) -> None:
        self.chance = chance
        self.fetched: list[tuple[str, int]] = []
        self.memory: dict[int, np.ndarray] = {}
        self.cache: dict[Expr, Eval] = {}
        self.heights: dict[Expr, int] = {}
        self.free: dict[Expr, frozenset[Var] | None] = {}
        """The variables an expression depends on; None where it reads memory."""

    # -- statements ------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> Run:
        if isinstance(s, lp.Seq):
            return self._seq([self.stmt(b) for b in s.stmts])
        if isinstance(s, lp.For):
            return self._for(s)
        if isinstance(s, lp.Store):
            return self._store(s)
        if isinstance(s, lp.Allocate):
            return self._allocate(s)
        if isinstance(s, lp.Prefetch):
            return self._prefetch(s)
        if isinstance(s, lp.Let):
            return self._let(s)
        if isinstance(s, lp.Evaluate):
            value = self.expr(s.value)

            def evaluate(frame: Frame) -> None:
                value(frame, 0)

            return evaluate
        assert isinstance(s, lp.If), f"{s} needs the interpreter of threads"
        return self._if(s)

    def _seq(self, parts: list[Run]) -> Run:
        def execute(frame: Frame) -> None:
            for part in parts:
                part(frame)

        return execute

    def _for(self, s: lp.For) -> Run:
        extent, body, var = self.expr(s.extent), self.stmt(s.body), s.var
        shuffled = s.kind in ("parallel", "vectorized", "thread")

        def execute(frame: Frame) -> None:
            count = int(extent(frame, 0))
            order = self.chance.permutation(count).tolist() if shuffled else range(count)
            for i in order:
                frame[var] = i
                body(frame)
            frame.pop(var, None)

        return execute

    def _prefetch(self, s: lp.Prefetch) -> Run:
        """A hint changes nothing, but its address is computed: it must have one."""
        indices = [self.expr(i) for i in s.indices]
        shape = [self.expr(d) for d in s.buffer.shape]

        def execute(frame: Frame) -> None:
            at = 0
            for index, size in zip(indices, shape, strict=True):
                at = at * int(size(frame, 0)) + int(index(frame, 0))
            self.fetched.append((s.buffer.name, at))

        return execute

    def _store(self, s: lp.Store) -> Run:
        assert len(s.indices) == len(s.buffer.shape), f"{s.buffer.name}: {len(s.indices)} indices"
        assert s.value.dtype == s.buffer.dtype, f"{s.value.dtype} stored in {s.buffer}"
        indices, value = [self.expr(i) for i in s.indices], self.expr(s.value)
        lanes = {e.lanes for e in (*s.indices, s.value)}
        assert len(lanes) == 1, f"lanes of a store to {s.buffer.name} differ: {lanes}"
        (width,) = lanes
        key, buffer = id(s.buffer), s.buffer

        def execute(frame: Frame) -> None:
            done = [
                (tuple(int(i(frame, lane)) for i in indices), value(frame, lane))
                for lane in range(width)
            ]
            array = self.memory[key]
            for at, what in done:
                _check(buffer, at, array.shape)
                array[at] = what

        return execute

    def _allocate(self, s: lp.Allocate) -> Run:
        key, dtype = id(s.buffer), dt.to_numpy(s.buffer.dtype)
        dims, body = [self.expr(d) for d in s.buffer.shape], self.stmt(s.body)

        def execute(frame: Frame) -> None:
            shape = [int(d(frame, 0)) for d in dims]
            self.memory[key] = np.full(shape, POISON[dtype.kind], dtype)
            body(frame)
            del self.memory[key]

        return execute

    def _let(self, s: lp.Let) -> Run:
        value, body, var = self.expr(s.value), self.stmt(s.body), s.var

        def execute(frame: Frame) -> None:
            got = value(frame, 0)
            frame[var] = got if dt.is_float(var.dtype) else int(got)  # type: ignore[assignment]
            body(frame)
            del frame[var]

        return execute

    def _if(self, s: lp.If) -> Run:
        cond, then = self.expr(s.cond), self.stmt(s.then)
        orelse = self.stmt(lp.seq() if s.orelse is None else s.orelse)

        def execute(frame: Frame) -> None:
            (then if cond(frame, 0) else orelse)(frame)

        return execute

    # -- expressions -----------------------------------------------------------------------------

    def expr(self, e: Expr) -> Eval:
        for node in walk(e):
            if node not in self.cache:
                self.cache[node] = self._remembered(node, self._expr(node))
        return self.cache[e]

    def _remembered(self, e: Expr, evaluate: Eval) -> Eval:
        """Return an evaluation of scalars that does not repeat itself for the same variables."""
        self.heights[e] = 1 + max((self.heights[c] for c in e.children), default=0)
        self.free[e] = free = self._free(e)
        if free is None or e.lanes > 1 or self.heights[e] < REMEMBERED_FROM:
            return evaluate
        names, last = tuple(free), dict[tuple[int, ...], Value]()

        def value(frame: Frame, lane: int) -> Value:
            key = tuple(frame[v] for v in names)
            if key not in last:
                last.clear()
                last[key] = evaluate(frame, lane)
            return last[key]

        return value

    def _free(self, e: Expr) -> frozenset[Var] | None:
        if isinstance(e, Var):
            return frozenset((e,))
        if isinstance(e, nodes.Load | nodes.Apply):
            return None
        parts = [self.free[c] for c in e.children]
        return None if None in parts else frozenset[Var]().union(*(p for p in parts if p))

    def _expr(self, e: Expr) -> Eval:
        if isinstance(e, nodes.Const):
            constant = e.value
            return lambda frame, lane: constant
        if isinstance(e, Var):
            return lambda frame, lane: frame[e]
        if isinstance(e, nodes.Apply):
            return self.expr(e.instruction.expand(e.args))
        operands = [self.cache[c] for c in e.children]
        if isinstance(e, nodes.Load):
            return self._load(e, operands)
        if isinstance(e, nodes.Broadcast):
            (inner,) = operands
            return lambda frame, lane: inner(frame, 0)
        if isinstance(e, nodes.Ramp):
            base, stride = operands
            return lambda frame, lane: base(frame, 0) + lane * stride(frame, 0)
        if isinstance(e, nodes.Select):
            return _select(operands, lazy=e.lazy)
        return _rounded(_operation(e), operands, e.dtype)

    def _load(self, e: nodes.Load, operands: list[Eval]) -> Eval:
        buffer = e.source
        assert isinstance(buffer, Buffer), f"{e} reads no buffer"
        assert len(e.indices) == len(buffer.shape), f"{e}: {len(e.indices)} indices"
        key = id(buffer)

        def value(frame: Frame, lane: int) -> Value:
            at = tuple(int(i(frame, lane)) for i in operands)
            array = self.memory[key]
            _check(buffer, at, array.shape)
            result: Value = array[at].item()
            return result

        return value


def _check(buffer: Buffer, at: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if not all(0 <= i < n for i, n in zip(at, shape, strict=True)):
        raise OutOfBounds(f"{buffer.name}{list(at)} is outside of its shape {list(shape)}")


def _select(operands: list[Eval], *, lazy: bool) -> Eval:
    cond, then, other = operands
    if lazy:
        return lambda frame, lane: then(frame, lane) if cond(frame, lane) else other(frame, lane)

    def value(frame: Frame, lane: int) -> Value:
        chosen = cond(frame, lane)
        both = other(frame, lane), then(frame, lane)
        return both[bool(chosen)]

    return value


def _rounded(operation: Callable[..., Value], operands: list[Eval], dtype: str) -> Eval:
    to_numpy = dt.to_numpy(dtype)
    wraps = dt.is_integer(dtype) and dtype != dt.INDEX
    rounds = dt.is_float(dtype) and dtype != "float64"

    def value(frame: Frame, lane: int) -> Value:
        result = operation(*[o(frame, lane) for o in operands])
        if wraps:
            return int(np.array(int(result) & (2**64 - 1), np.uint64).astype(to_numpy))
        if rounds:
            with np.errstate(over="ignore"):
                return float(to_numpy.type(result))
        return result

    return value


def _operation(e: Expr) -> Callable[..., Value]:
    if isinstance(e, nodes.Binary):
        return _BINARY[e.op]
    if isinstance(e, nodes.Cast):
        if e.dtype == "bool":
            return lambda a: a != 0
        return int if dt.is_integer(e.dtype) else float
    assert isinstance(e, nodes.Call), f"no meaning for {e}"
    return _CALLS[e.name]


def _extreme(pick: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    return lambda a, b: a if a != a else b if b != b else pick(a, b)


_BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: float(np.float64(a) / np.float64(b)),
    "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b,
    "truncdiv": lambda a, b: int(math.copysign(abs(a) // abs(b), a * b)),
    "truncmod": lambda a, b: int(math.fmod(a, b)),
    "min": _extreme(min), "max": _extreme(max),
    "bitand": lambda a, b: int(a) & int(b), "bitor": lambda a, b: int(a) | int(b),
    "bitxor": lambda a, b: int(a) ^ int(b), "shl": lambda a, b: int(a) << int(b),
    "shr": lambda a, b: int(a) >> int(b),
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "and": lambda a, b: bool(a and b), "or": lambda a, b: bool(a or b),
}  # fmt: skip

_CALLS: dict[str, Callable[..., Value]] = {
    "not": lambda a: not a, "abs": abs, "sqrt": math.sqrt, "exp": math.exp, "tanh": math.tanh,
    "fma": lambda a, b, c: a * b + c, "isnan": lambda a: a != a,
    "floor": math.floor, "ceil": math.ceil, "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "bitcast": lambda a: a, "rsqrt": lambda a: 1 / math.sqrt(a), "exp_weight": math.exp,
    "round": round,
    "normal_cdf": lambda a: math.erfc(-a / math.sqrt(2)) / 2,
    "softplus": lambda a: max(a, 0.0) + math.log1p(math.exp(-abs(a))),
    **{name: getattr(math, name) for name in (
        "expm1", "log", "log1p", "log2", "pow", "fmod", "erf", "copysign", "sin", "cos", "tan",
        "sinh", "cosh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh",
    )},
}  # fmt: skip
