# SPDX-License-Identifier: Apache-2.0
"""Reductions of tensor expressions: sum, prod, max, min, and those a user makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Const, Expr, ExprLike, Var, convert
from treadle.te.operations import Combiner, IterVar, Reduce


def _combiner(
    name: str,
    dtypes: Sequence[str],
    fcombine: Callable[..., Any],
    identity: Sequence[Expr],
    *,
    contracts: bool,
) -> Combiner:
    lhs = tuple(Var(f"x{i}", d) for i, d in enumerate(dtypes))
    rhs = tuple(Var(f"y{i}", d) for i, d in enumerate(dtypes))
    combined = (fcombine(lhs[0], rhs[0]),) if len(dtypes) == 1 else fcombine(lhs, rhs)
    results = tuple(convert(r) for r in combined)
    return Combiner(name, lhs, rhs, results, tuple(identity), contracts)


def comm_reducer(
    fcombine: Callable[..., Any],  # an expression, or a sequence of them
    fidentity: Callable[..., Any],
    name: str = "reduce",
) -> Callable[..., Expr | tuple[Expr, ...]]:
    """Return a reduction function made from a combination and its identity.

    One value: `fcombine(x, y)`, `fidentity(dtype)`. Several: `fcombine(xs, ys)` returns a tuple and
    `fidentity(*dtypes)` returns a tuple.
    """
    return _reducer(fcombine, fidentity, name)


def _reducer(
    fcombine: Callable[..., Any],
    fidentity: Callable[..., Any],
    name: str,
    *,
    contracts: bool = False,
) -> Callable[..., Expr | tuple[Expr, ...]]:
    def reducer(
        expr: ExprLike | Sequence[ExprLike],
        axis: IterVar | Sequence[IterVar],
        where: ExprLike | None = None,
    ) -> Expr | tuple[Expr, ...]:
        several = isinstance(expr, Sequence)
        sources = tuple(convert(e) for e in (expr if isinstance(expr, Sequence) else (expr,)))
        axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        for a in axes:
            if not isinstance(a, IterVar) or a.kind != "reduce":
                raise TypeMismatch(f"{a} is not a reduction axis", hint="make it by te.reduce_axis")
        identity = fidentity(*(s.dtype for s in sources))
        values = identity if several else (identity,)
        combiner = _combiner(
            name,
            [s.dtype for s in sources],
            fcombine,
            [convert(v, s.dtype) for v, s in zip(values, sources, strict=True)],
            contracts=contracts,
        )
        condition = Const.of(True, "bool") if where is None else convert(where)
        made = tuple(
            Reduce(combiner, sources, axes, condition, i, s.dtype) for i, s in enumerate(sources)
        )
        return made if several else made[0]

    return reducer


def _single(
    name: str,
    fcombine: Callable[[Expr, Expr], Expr],
    fidentity: Callable[[str], object],
    *,
    note: str = "",
    contracts: bool = False,
) -> Callable[..., Expr]:
    reducer = _reducer(fcombine, fidentity, name, contracts=contracts)

    def reduce_(
        expr: ExprLike, axis: IterVar | Sequence[IterVar], where: ExprLike | None = None
    ) -> Expr:
        result = reducer(expr, axis, where)
        assert isinstance(result, Expr)
        return result

    reduce_.__name__ = name
    what = f"Return the {name} of `expr` over reduction axes (where a condition holds)."
    reduce_.__doc__ = f"{what}\n\n{note}" if note else what
    return reduce_


sum = _single(
    "sum",
    lambda x, y: x + y,
    lambda t: Const.of(0, t),
    note="""A sum of float32 or float64 products is accumulated by fma: each product is added
unrounded. A reducer of your own, te.comm_reducer(lambda x, y: x + y, ...), rounds it first.""",
    contracts=True,
)
prod = _single("prod", lambda x, y: x * y, lambda t: Const.of(1, t))
_max_reduce = _single("max", nodes.maximum, lambda t: Const.of(dt.min_value(t), t))
_min_reduce = _single("min", nodes.minimum, lambda t: Const.of(dt.max_value(t), t))


def max(
    expr: ExprLike,
    axis: IterVar | Sequence[IterVar] | ExprLike,
    where: ExprLike | None = None,
) -> Expr:
    """Return the maximum over reduction axes, or of two values: te.max(a, b)."""
    if _is_axes(axis):
        return _max_reduce(expr, axis, where)
    return nodes.maximum(expr, axis)  # type: ignore[arg-type]


def min(
    expr: ExprLike,
    axis: IterVar | Sequence[IterVar] | ExprLike,
    where: ExprLike | None = None,
) -> Expr:
    """Return the minimum over reduction axes, or of two values: te.min(a, b)."""
    if _is_axes(axis):
        return _min_reduce(expr, axis, where)
    return nodes.minimum(expr, axis)  # type: ignore[arg-type]


def _is_axes(axis: object) -> bool:
    if isinstance(axis, (tuple, list)):
        return True
    return isinstance(axis, IterVar) and axis.kind == "reduce"
