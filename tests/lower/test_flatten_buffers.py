# SPDX-License-Identifier: Apache-2.0
"""Buffers of any rank become flat ones, every element keeps its place."""

from __future__ import annotations

import numpy as np

from tests import loop_eval
from treadle.expr.nodes import Const, Var, int_value, load
from treadle.expr.simplify import simplify
from treadle.expr.traversal import substitute
from treadle.loop.nodes import Allocate, Buffer, For, PrimFunc, Stmt, Store, seq, shape_of, verify
from treadle.lower.flatten_buffers import flatten_buffers

I, J, N = Var("i"), Var("j"), Var("n")  # noqa: E741


def nest(body: Stmt, *extents: int) -> Stmt:
    for var, extent in zip((J, I), reversed(extents), strict=False):
        body = For(var, Const.of(extent), "serial", body)
    return body


def test_every_rank() -> None:
    a, b = Buffer("A", "float32", shape_of(3, 4)), Buffer("B", "float32", shape_of(4, 3))
    s = Buffer("S", "float32", ())
    held = Buffer("L", "float32", shape_of(2, 3, 4), "local")
    one = Const.of(1)
    body = Allocate(
        held,
        nest(
            Store(held, (one, I, J), load(a, (I, J)) + load(s, ())), 3, 4,
        ),
    )  # fmt: skip
    body = Allocate(held, seq(body.body, nest(Store(b, (J, I), load(held, (one, I, J))), 3, 4)))
    f = PrimFunc("f", (a, s, b), (), body)
    flat = flatten_buffers(f)
    verify(flat)
    assert [len(p.shape) for p in flat.params] == [1, 1, 1]
    assert "L: float32[24] = alloc(local)" in str(flat)
    data, out = np.arange(12, dtype="float32").reshape(3, 4), np.zeros((4, 3), "float32")
    loop_eval.run(flat, [data, np.array(10, "float32"), out])
    np.testing.assert_array_equal(out, data.T + 10)


def test_symbolic_extents() -> None:
    a, b = Buffer("A", "float32", (N, N)), Buffer("B", "float32", (N, N))
    body = For(I, N, "serial", For(J, N, "serial", Store(b, (J, I), load(a, (I, J)))))
    flat = flatten_buffers(PrimFunc("f", (a, b), (N,), body))
    data, out = np.arange(25, dtype="float32").reshape(5, 5), np.zeros((5, 5), "float32")
    loop_eval.run(flat, [data, out], {N: 5})
    np.testing.assert_array_equal(out, data.T)
    assert str(flat).startswith("def f(A: float32[(n * n)], B: float32[(n * n)], n: int64):")


def test_strides() -> None:
    a = Buffer("A", "float32", shape_of(3, 4), "global", shape_of(10, 2))
    b = Buffer("B", "float32", shape_of(3, 4))
    flat = flatten_buffers(PrimFunc("f", (a, b), (), nest(Store(b, (I, J), load(a, (I, J))), 3, 4)))
    assert str(flat.params[0]) == "A: float32[27]"
    data, out = np.arange(27, dtype="float32"), np.zeros(12, "float32")
    loop_eval.run(flat, [data, out])
    wanted = [data[i * 10 + j * 2] for i in range(3) for j in range(4)]
    np.testing.assert_array_equal(out, wanted)


def test_rows_apart_of_no_elements_take_no_memory() -> None:
    """A negative size would let the buffer behind it begin too early."""
    held = Buffer("A", "float32", (N, N), "workspace", (Const.of(6) * N, Const.of(6)))
    zero = Const.of(0)
    body = Allocate(held, Store(held, (zero, zero), Const.of(1.0, "float32")))
    made = flatten_buffers(PrimFunc("f", (), (N,), body)).body
    assert isinstance(made, Allocate)
    (size,) = made.buffer.shape
    found = [simplify(substitute(size, {N: Const.of(n)}), {}) for n in (0, 1, 2)]
    assert [int_value(n) for n in found] == [0, 1, 19]
