# SPDX-License-Identifier: Apache-2.0
"""The largest or smallest element so far along an axis, and where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.expr.nodes import Expr, ExprLike, cast, load
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import TupleType, Type
from treadle.loop.build import assign, counter, declared, loop, nest, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.numeric import ANY, HALVES, check_axis, check_elements, dims_of
from treadle.ops.schedules.stages import is_much
from treadle.te.operations import Tensor


@dataclass(frozen=True, slots=True)
class RunningAttrs(Attrs):
    """The axis; whether the largest element is kept, or the smallest."""

    axis: int = 0
    largest: bool = True


def _infer(a: RunningAttrs, x: Type) -> Type:
    source = check_elements(x, ANY)
    check_axis(a.axis, source.ndim)
    return TupleType((source, source.with_dtype(dt.INDEX)))


def _replaces(new: Expr, old: Expr, largest: bool) -> Expr:
    """True when `new` follows `old` as the element that is kept: equal ones do, so does a NaN."""
    if new.dtype in HALVES:
        new, old = cast(new, "float32"), cast(old, "float32")
    if new.dtype == "bool":
        new, old = cast(new, "uint8"), cast(old, "uint8")
    wins = new >= old if largest else new <= old
    if dt.is_float(new.dtype):
        wins = te.isnan(new) | (wins & ~te.isnan(old))
    return wins


def _compute(a: RunningAttrs, x: Tensor) -> list[Tensor]:
    extents = dims_of(x)
    others = (*extents[: a.axis], *extents[a.axis + 1 :])

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        (source,), (values, places) = ins, outs

        def row(*i: Expr) -> Stmt:
            kept = counter("kept")

            def at(k: ExprLike) -> tuple[ExprLike, ...]:
                return (*i[: a.axis], k, *i[a.axis :])

            def element(k: ExprLike) -> Expr:
                return load(source, at(k))

            def step(k: Expr) -> Stmt:
                follows = _replaces(element(k), element(value_of(kept)), a.largest)
                return seq(
                    If(follows, assign(kept, k)),
                    put(values, at(k), element(value_of(kept))),
                    put(places, at(k), value_of(kept)),
                )

            return declared([kept], seq(assign(kept, 0), loop(extents[a.axis], step, "k")))

        many = bool(others) and is_much(extents)
        return nest(others, row, "o", ["parallel"] if many else [])

    made = te.extern([extents, extents], [x], build, "running", (x.dtype, dt.INDEX))
    assert isinstance(made, tuple)  # a list of shapes gives a tuple
    return list(made)


def _reference(a: RunningAttrs, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.moveaxis(x, a.axis, -1)
    keys = rows.astype(np.float64) if dt.is_float(x.dtype.name) else rows
    places = np.zeros(rows.shape, np.int64)
    for k in range(1, rows.shape[-1]):
        before = places[..., k - 1]
        old = np.take_along_axis(keys, before[..., None], -1)[..., 0]
        new = keys[..., k]
        wins = new >= old if a.largest else new <= old
        if dt.is_float(x.dtype.name):
            wins = np.isnan(new) | (wins & ~np.isnan(old))
        places[..., k] = np.where(wins, k, before)
    values = np.take_along_axis(rows, places, -1)
    return np.moveaxis(values, -1, a.axis), np.moveaxis(places, -1, a.axis)


_TIES = np.array([[1, 2, 2, -np.inf, np.nan, 3, np.nan, 1]], np.float32)

running_extreme: Operator[RunningAttrs] = register(
    Operator(
        name="running_extreme",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=RunningAttrs,
        examples=(
            Example(((7,),)),
            Example(((3, 5),), {"axis": 1, "largest": False}),
            Example(((3, 5, 4),), {"axis": 1}, ("int64",), -3, 3),
            Example(((20, 820),), {"axis": 0}, ("int32",), -9, 9),
            Example(((9,),), {}, ("bool",)),
            Example(((9,),), {"largest": False}, ("uint8",), 0, 5),
            Example(((9,),), {}, ("float16",)),
            Example(((9,),), {"largest": False}, ("bfloat16",)),
            Example(((1, 8),), {"axis": 1}, inputs={0: _TIES}),
            Example(((1, 8),), {"axis": 1, "largest": False}, inputs={0: _TIES}),
            Example(((0, 3),), {"axis": 0}),
            Example(((3, 0),), {"axis": 0}),
        ),
    )
)
"""(values, positions): of equal elements the last counts, and from a NaN on each is one."""
