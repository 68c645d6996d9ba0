# SPDX-License-Identifier: Apache-2.0
"""Control flow: branches and loops whose bodies are functions.

They are no kernels: the plan has blocks of instructions for them. A body takes everything it uses
as a parameter, in the order of the call's operands. Sizes that a body decides (the length of a
branch's result, how often a loop runs) are symbols of the call's own, its `sizes`: one for every
extent of the results that is not known without running it, from left to right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import InputError, TypeMismatch
from treadle.expr.nodes import Expr, Var, cast
from treadle.expr.traversal import free_vars
from treadle.graph.interpret import evaluate, leaves
from treadle.graph.nodes import Function, topological
from treadle.graph.operator import Attrs, Fusion, Operator, register
from treadle.graph.size_rules import SizeRule
from treadle.graph.symbols import decided_by
from treadle.graph.types import Dim, TensorType, TupleType, Type, same_dim, tensor_type

CONDITION = TensorType((), "bool")
COUNT = TensorType((), dt.INDEX)

Run = Callable[[Function, Sequence[np.ndarray]], Sequence[np.ndarray]]
"""run(function, arguments) -> the results of a body."""


@dataclass(frozen=True, slots=True)
class IfAttrs(Attrs):
    """The two branches; both take all operands after the condition and return the same types."""

    then: Function
    orelse: Function
    sizes: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopAttrs(Attrs):
    """The body, and how many of its parameters are states.

    body(iteration, condition, states..., captures...) -> (condition, states..., rows...)
    """

    body: Function
    states: int = 0
    sizes: tuple[Dim, ...] = ()


def results_of(function: Function) -> tuple[TensorType, ...]:
    """Return the types of a body's results."""
    fields = function.type.fields if isinstance(function.type, TupleType) else (function.type,)
    return tuple(tensor_type(f) for f in fields)


def own_symbols(function: Function) -> set[Expr]:
    """Return the symbolic sizes that only exist while a body runs: those that its calls decide."""
    return {s for node in topological([function.body]) for s in decided_by(node)}


def _check_params(function: Function, given: Sequence[Type], what: str) -> None:
    wanted = tuple(p.type for p in function.params)
    if wanted != tuple(given):
        raise TypeMismatch(
            f"{what} takes {TupleType(wanted)}, it is given {TupleType(tuple(given))}"
        )


def _named(dims: Sequence[Dim | None], sizes: Iterator[Dim]) -> tuple[Dim, ...]:
    """Return dims with the next size for each that is None. Raises TypeMismatch if they run out."""
    named = []
    for d in dims:
        size = next(sizes, None) if d is None else d
        if size is None:
            raise TypeMismatch("there are fewer `sizes` than extents that are not known")
        named.append(size)
    return tuple(named)


def open_dims(dims: Sequence[Dim | None], inner: set[Expr]) -> list[Dim | None]:
    """Return extents with None for those that speak of a body's own sizes."""
    return [
        None if isinstance(d, Expr) and any(v in inner for v in free_vars(d)) else d for d in dims
    ]


def branch_dims(then: Function, orelse: Function) -> list[list[Dim | None]]:
    """Return the extents of an if's results, None where the branches differ.

    Raises:
        TypeMismatch: the branches give different numbers of results, element types or ranks.
    """
    inner = own_symbols(then) | own_symbols(orelse)
    a, b = results_of(then), results_of(orelse)
    if [(p.dtype, p.ndim) for p in a] != [(q.dtype, q.ndim) for q in b]:
        raise TypeMismatch(
            f"one branch gives {TupleType(a)}, the other {TupleType(b)}",
            hint="both must give the same element types and ranks",
        )
    return [
        open_dims(
            [p if same_dim(p, q) else None for p, q in zip(s.shape, t.shape, strict=True)], inner
        )
        for s, t in zip(a, b, strict=True)
    ]


def _typed(
    dims: Sequence[Sequence[Dim | None]], like: Sequence[TensorType], sizes: Sequence[Dim]
) -> TupleType:
    rest = iter(sizes)
    types = [t.with_shape(_named(d, rest)) for d, t in zip(dims, like, strict=True)]
    if next(rest, None) is not None:
        raise TypeMismatch("there are more `sizes` than extents that are not known")
    return TupleType(tuple(types))


def _infer_if(a: IfAttrs, condition: Type, *given: Type) -> Type:
    if condition != CONDITION:
        raise TypeMismatch(f"the condition is one truth value, not {condition}")
    _check_params(a.then, given, "the first branch")
    _check_params(a.orelse, given, "the second branch")
    return _typed(branch_dims(a.then, a.orelse), results_of(a.then), a.sizes)


def loop_dims(body: Function, states: int) -> list[list[Dim | None]]:
    """Return the extents of a loop's results, None where running it decides them.

    Raises:
        TypeMismatch: a state changes in element type or rank, or in an extent its body fixes.
    """
    params = [tensor_type(p.type) for p in body.params[2 : 2 + states]]
    results = results_of(body)
    varying: set[Expr] = set(own_symbols(body))
    for p, r in zip(params, results[1 : 1 + states], strict=True):
        if (p.dtype, p.ndim) != (r.dtype, r.ndim):
            raise TypeMismatch(f"a state of a loop changes from {p} to {r}")
        for d, e in zip(p.shape, r.shape, strict=True):
            if not same_dim(d, e):
                if not isinstance(d, Var):
                    raise TypeMismatch(f"a state of a loop changes from {p} to {r}")
                varying.add(d)
    rows = [[None, *open_dims(r.shape, varying)] for r in results[1 + states :]]
    return [*(open_dims(p.shape, varying) for p in params), *rows]


def _infer_loop(a: LoopAttrs, limit: Type, condition: Type, *given: Type) -> Type:
    if (limit, condition) != (COUNT, CONDITION):
        raise TypeMismatch(f"a loop takes a count and a condition, not {limit} and {condition}")
    states, captures = given[: a.states], given[a.states :]
    params = [p.type for p in a.body.params]
    if len(states) < a.states or params[:2] != [COUNT, CONDITION]:
        raise TypeMismatch("the body of a loop takes a count, a condition, states and captures")
    if tuple(params[2 + a.states :]) != tuple(captures):
        raise TypeMismatch("the captures of a loop do not fit its body")
    for state, param in zip(states, params[2:], strict=False):
        _check_state(tensor_type(state), tensor_type(param))
    results = results_of(a.body)
    if not results or results[0] != CONDITION:
        raise TypeMismatch("the body of a loop gives a condition first")
    like = [
        *results[1 : 1 + a.states],
        *(r.with_shape((1, *r.shape)) for r in results[1 + a.states :]),
    ]
    return _typed(loop_dims(a.body, a.states), like, a.sizes)


def _check_state(given: TensorType, param: TensorType) -> None:
    fits = (given.dtype, given.ndim) == (param.dtype, param.ndim) and all(
        same_dim(g, p) or isinstance(p, Var) for g, p in zip(given.shape, param.shape, strict=True)
    )
    if not fits:
        raise TypeMismatch(f"a state of a loop starts as {given}, its body takes {param}")


def _run_if(
    run: Run, a: IfAttrs, condition: np.ndarray, *given: np.ndarray
) -> tuple[np.ndarray, ...]:
    return tuple(run(a.then if condition else a.orelse, given))


def _run_loop(
    run: Run, a: LoopAttrs, limit: np.ndarray, condition: np.ndarray, *given: np.ndarray
) -> tuple[np.ndarray, ...]:
    states, captures = list(given[: a.states]), given[a.states :]
    rows: list[list[np.ndarray]] = [[] for _ in results_of(a.body)[1 + a.states :]]
    done = 0
    while condition and done < int(limit):
        results = run(a.body, [np.array(done, np.int64), np.asarray(condition), *states, *captures])
        condition, states = results[0], list(results[1 : 1 + a.states])
        for row, value in zip(rows, results[1 + a.states :], strict=True):
            row.append(value)
        done += 1
    types = results_of(a.body)[1 + a.states :]
    return (*states, *(_stacked(r, t) for r, t in zip(rows, types, strict=True)))


def _stacked(rows: Sequence[np.ndarray], type_: TensorType) -> np.ndarray:
    if rows:
        return np.stack(rows)
    extents = [d if isinstance(d, int) else 0 for d in type_.shape]
    return np.zeros((0, *extents), dt.to_numpy(type_.dtype))


def _evaluated(function: Function, args: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    return leaves(evaluate(function, args))


if_: Operator[IfAttrs] = register(
    Operator(
        name="if",
        infer=_infer_if,
        reference=lambda a, *xs: _run_if(_evaluated, a, *xs),
        attrs_type=IfAttrs,
        binds=lambda a: a.sizes,
        control=_run_if,
    )
)
"""(results...) of one of two branches, as a tuple also where it is one."""

loop: Operator[LoopAttrs] = register(
    Operator(
        name="loop",
        infer=_infer_loop,
        reference=lambda a, *xs: _run_loop(_evaluated, a, *xs),
        attrs_type=LoopAttrs,
        binds=lambda a: a.sizes,
        control=_run_loop,
    )
)
"""(states..., rows...): at most `limit` iterations while the condition holds; rows are stacked."""


@dataclass(frozen=True, slots=True)
class RefuseAttrs(Attrs):
    """The type of the result that stands for a branch, and why no run may take it."""

    shape: tuple[Dim, ...]
    dtype: str
    reason: str


def _infer_refuse(a: RefuseAttrs, x: Type) -> Type:
    if x != CONDITION:
        raise TypeMismatch(f"a refusal takes one truth value, not {x}")
    return TensorType(a.shape, a.dtype)


def _refuse_rules(a: RefuseAttrs, result: Type, x: Type) -> Iterator[SizeRule]:
    yield SizeRule("never", 0, 0, reason=a.reason)


def _no_result(a: RefuseAttrs, x: np.ndarray) -> np.ndarray:
    raise InputError(f"these inputs take a branch that cannot run: {a.reason}")


refuse: Operator[RefuseAttrs] = register(
    Operator(
        name="refuse",
        infer=_infer_refuse,
        reference=_no_result,
        compute=lambda a, x: te.compute_one(a.shape, lambda *i: cast(x[()], a.dtype), "refuse"),
        rules=_refuse_rules,
        attrs_type=RefuseAttrs,
        fusion=Fusion.OPAQUE,
    )
)
"""What a branch gives that no run may take: a plan refuses to run as soon as it is there."""
