# SPDX-License-Identifier: Apache-2.0
"""Shapes as users write them, and the names of the axes that run over them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from treadle import dtype as dt
from treadle.errors import TypeMismatch
from treadle.expr import nodes
from treadle.expr.nodes import Expr, ExprLike, convert

Shape = Sequence[ExprLike] | ExprLike


def as_shape(shape: Shape, name: str) -> tuple[Expr, ...]:
    """Return the extents of a tensor as expressions.

    Raises: TypeMismatch for an extent that is no integer of 0 or more.
    """
    dims = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    return tuple(_as_extent(d, k, name) for k, d in enumerate(dims))


def _as_extent(dim: ExprLike, position: int, name: str) -> Expr:
    extent = convert(dim)
    number = nodes.int_value(extent)
    if not dt.is_integer(extent.dtype) or (number is not None and number < 0):
        raise TypeMismatch(
            f"dimension {position} of {name} is {dim}", hint="extents are integers of 0 or more"
        )
    return nodes.cast(extent, dt.INDEX)


def axis_names(
    fcompute: Callable[..., object], ndim: int, given: Sequence[str] | None = None
) -> list[str]:
    """Return the names `given`, else those of the arguments of a function of `ndim` indices.

    Raises: TypeMismatch where either is for another number.
    """
    names: list[str] = []
    for p in inspect.signature(fcompute).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            names += [f"i{k}" for k in range(len(names), ndim)]
        elif p.default is p.empty:
            names.append(p.name)
    if len(names) != ndim:
        raise TypeMismatch(
            f"the function of a compute over {ndim} dimensions takes {len(names)} arguments",
            hint="give one argument per dimension, or *i",
        )
    if given is None:
        return names
    if len(given) != ndim or not all(given):
        raise TypeMismatch(
            f"the axes of a compute over {ndim} dimensions are {given!r}",
            hint='give one name per dimension: axes=("n", "oc", "oh", "ow")',
        )
    return list(given)
