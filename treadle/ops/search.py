# SPDX-License-Identifier: Apache-2.0
"""Where values belong in sorted rows, by halving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle import te
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Expr, cast, load
from treadle.graph.operator import Attrs, Example, Operator, register
from treadle.graph.types import TensorType, Type, same_dim
from treadle.loop.build import assign, counter, declared, loop, nest, put, value_of
from treadle.loop.nodes import Buffer, If, Stmt, seq
from treadle.ops.example_numbers import integers
from treadle.ops.numeric import (
    HALVES,
    NUMBERS,
    check_elements,
    check_same_elements,
    dims_of,
)
from treadle.ops.schedules.stages import is_much
from treadle.te.operations import Tensor

_MOST_HALVINGS = 48
"""Steps that find a place in any row that fits into memory."""


@dataclass(frozen=True, slots=True)
class SearchAttrs(Attrs):
    """Whether a value stands behind the elements that equal it, or before them."""

    right: bool = False


def _infer(a: SearchAttrs, rows: Type, values: Type) -> Type:
    source, sought = check_elements(rows, NUMBERS), check_elements(values, NUMBERS, "the values")
    check_same_elements(source, sought)
    lead = source.shape[:-1]
    fits = len(lead) == sought.ndim - 1 and all(
        same_dim(p, q) for p, q in zip(lead, sought.shape, strict=False)
    )
    if not source.ndim or (lead and not fits):
        raise TypeMismatch(f"the values {sought} are not sought in rows {source}")
    return TensorType(sought.shape, dt.INDEX)


def _is_behind(element: Expr, value: Expr, right: bool) -> Expr:
    """True when a value stands behind an element; a NaN behind all of them."""
    if element.dtype in HALVES:
        element, value = cast(element, "float32"), cast(value, "float32")
    return ~(element > value) if right else ~(element >= value)


def _compute(a: SearchAttrs, rows: Tensor, values: Tensor) -> Tensor:
    *lead, count = dims_of(rows)
    extents = dims_of(values)
    halvings = count.bit_length() if isinstance(count, int) else _MOST_HALVINGS

    def build(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        (source, sought), (out,) = ins, outs

        def place(*i: Expr) -> Stmt:
            low, high = counter("low"), counter("high")

            def halve(_: Expr) -> Stmt:
                middle = (value_of(low) + value_of(high)) // 2
                element = load(source, (*i[: len(lead)], middle))
                is_behind = _is_behind(element, load(sought, i), a.right)
                step = If(is_behind, assign(low, middle + 1), assign(high, middle))
                return If(value_of(low) < value_of(high), step)

            start = seq(assign(low, 0), assign(high, count))
            steps = seq(start, loop(halvings, halve, "step"), put(out, i, value_of(low)))
            return declared([low, high], steps)

        many = bool(extents) and is_much(extents)
        return nest(extents, place, "o", ["parallel"] if many else [])

    made = te.extern([extents], [rows, values], build, "places", dt.INDEX)
    assert isinstance(made, tuple)  # a list of shapes gives a tuple
    return made[0]


def _reference(a: SearchAttrs, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    if dt.is_float(rows.dtype.name):
        rows, values = rows.astype(np.float64), values.astype(np.float64)
    lead = rows.shape[:-1]
    out = np.zeros(values.shape, np.int64)
    for at in np.ndindex(*lead):
        out[at] = np.searchsorted(rows[at], values[at], "right" if a.right else "left")
    out[np.isnan(values)] = rows.shape[-1]
    return out


_ROW = np.array([-1.5, 0, 0, 0, 0.25, 2, 7], np.float32)
_SOUGHT = np.array([[0, -2, 8], [0.25, np.nan, 7]], np.float32)
_ROWS = np.sort(integers((3, 130), -4, 4), axis=-1)

search_sorted: Operator[SearchAttrs] = register(
    Operator(
        name="search_sorted",
        infer=_infer,
        reference=_reference,
        compute=_compute,
        attrs_type=SearchAttrs,
        examples=(
            Example((_ROW.shape, _SOUGHT.shape), inputs={0: _ROW, 1: _SOUGHT}),
            Example((_ROW.shape, _SOUGHT.shape), {"right": True}, inputs={0: _ROW, 1: _SOUGHT}),
            Example(((3, 130), (3, 200)), {}, ("int64",) * 2, -5, 5, {0: _ROWS}),
            Example(((3, 130), (3, 2)), {"right": True}, ("int64",) * 2, -5, 5, {0: _ROWS}),
            Example(((0,), (4,)), {"right": True}),
            Example(((1,), ()), {}, ("float16",) * 2),
        ),
    )
)
"""int64, of the shape of the values: how many elements of a row each stands behind.

Rows [..., n] ascend and are searched for values [..., m] with the same leading axes; one row [n] is
searched for values of any shape."""
