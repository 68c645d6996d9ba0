# SPDX-License-Identifier: Apache-2.0
"""Short ways to write loop nests by hand, for the functions of `te.extern`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.dtype import INDEX
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, ExprLike, Var, convert
from treadle.loop.nodes import Allocate, Buffer, For, ForKind, Let, Stmt, Store

ZERO = Const.of(0)


def loop(
    extent: ExprLike, body: Callable[[Var], Stmt], name: str = "i", kind: ForKind = "serial"
) -> Stmt:
    """Return `for name in range(extent): body(name)`."""
    var = Var(name)
    return For(var, convert(extent, INDEX), kind, body(var))


def nest(
    extents: Sequence[ExprLike],
    body: Callable[..., Stmt],
    names: str = "i",
    kinds: Sequence[ForKind] = (),
) -> Stmt:
    """Return nested loops over `extents` around `body(i0, i1, ...)`; kinds are serial if not given.

    Without extents it is the body alone.
    """
    variables = [Var(f"{names}{k}") for k in range(len(extents))]
    ways = [*kinds, *["serial"] * (len(extents) - len(kinds))]
    made = body(*variables)
    for var, extent, kind in reversed(list(zip(variables, extents, ways, strict=True))):
        made = For(var, convert(extent, INDEX), kind, made)  # type: ignore[arg-type]
    return made


def put(buffer: Buffer, indices: Sequence[ExprLike], value: ExprLike) -> Stmt:
    """Return `buffer[indices] = value`."""
    at = tuple(convert(i, INDEX) for i in indices)
    return Store(buffer, at, convert(value, buffer.dtype))


def counter(name: str) -> Buffer:
    """Return a local integer variable: a buffer of one element, to be `declared`."""
    return Buffer(name, INDEX, (Const.of(1),), "local")


def value_of(variable: Buffer) -> Expr:
    """Return the value of a local variable."""
    return ex.load(variable, (ZERO,))


def assign(variable: Buffer, value: ExprLike) -> Stmt:
    """Return `variable = value`."""
    return put(variable, (ZERO,), value)


def declared(variables: Sequence[Buffer], body: Stmt) -> Stmt:
    """Return `body` with local variables that exist while it runs."""
    for variable in reversed(variables):
        body = Allocate(variable, body)
    return body


def let(value: ExprLike, body: Callable[[Var], Stmt], name: str = "v") -> Stmt:
    """Return a statement in which `value`, computed once, has a name.

    before: x[f(i)] = y[f(i)]        after: v = f(i); x[v] = y[v]
    """
    held = convert(value)
    var = Var(name, held.dtype)
    return Let(var, held, body(var))
