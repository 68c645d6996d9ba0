# SPDX-License-Identifier: Apache-2.0
"""Give every buffer one dimension: indices become offsets in elements.

before: A[i, j]  (A: float32[n, 64])   ->   after: A[i * 64 + j]  (A: float32[n * 64])
"""

from __future__ import annotations

from dataclasses import replace

from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr
from treadle.expr.simplify import simplify
from treadle.expr.traversal import rewrite
from treadle.expr.vocabulary import HAS_LOAD
from treadle.loop import nodes as lp
from treadle.loop.nodes import Allocate, Buffer, Prefetch, PrimFunc, Stmt, Store


def flatten_buffers(func: PrimFunc) -> PrimFunc:
    """Return `func` with one-dimensional buffers only."""
    flat: dict[int, Buffer] = {}
    params = tuple(_flat(b, flat) for b in func.params)
    for s in lp.walk_stmts(func.body):
        if isinstance(s, Allocate):
            _flat(s.buffer, flat)
    memo: dict[Expr, Expr] = {}

    def on_load(e: Expr) -> Expr | None:
        if not isinstance(e, ex.Load) or not isinstance(e.source, Buffer):
            return None
        return ex.load(flat[id(e.source)], (_offset(e.source, e.indices),))

    def on_expr(e: Expr) -> Expr:
        return rewrite(e, on_load, memo, HAS_LOAD)

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, Store):
            return Store(flat[id(s.buffer)], (_offset(s.buffer, s.indices),), s.value)
        if isinstance(s, Prefetch):
            return Prefetch(flat[id(s.buffer)], (_offset(s.buffer, s.indices),), s.level)
        if isinstance(s, Allocate):
            return Allocate(flat[id(s.buffer)], s.body)
        return None

    result = func.with_body(lp.map_stmt(func.body, on_expr, on_stmt))
    return replace(result, params=params)


def _flat(buffer: Buffer, flat: dict[int, Buffer]) -> Buffer:
    made = flat.get(id(buffer))
    if made is None:
        made = Buffer(
            buffer.name,
            buffer.dtype,
            (_span(buffer),),
            buffer.scope,
            None,
            buffer.align,
        )
        flat[id(buffer)] = made
    return made


def _span(buffer: Buffer) -> Expr:
    """The number of elements from the first to the last, both included; 0 where there are none."""
    if buffer.strides is None:
        return _fold(_product(buffer.shape))
    total: Expr = Const.of(1)
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        total = _fold(total + (extent - 1) * stride)
    return total if isinstance(total, Const) else _fold(ex.maximum(total, 0))


def _product(dims: tuple[Expr, ...]) -> Expr:
    total: Expr = Const.of(1)
    for d in dims:
        total = total * d
    return total


def _fold(e: Expr) -> Expr:
    return simplify(e, {})


def _offset(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    if not indices:
        return Const.of(0)
    if buffer.strides is not None:
        offset: Expr = Const.of(0)
        for index, stride in zip(indices, buffer.strides, strict=True):
            offset = offset + index * stride
        return offset
    offset = indices[0]
    for index, extent in zip(indices[1:], buffer.shape[1:], strict=True):
        offset = offset * extent + index
    return offset
