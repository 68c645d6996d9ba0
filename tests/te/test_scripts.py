# SPDX-License-Identifier: Apache-2.0
"""Scripts as users of te write them, unchanged but for the import, give what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests.te.scripts import check
from treadle import te

RANDOM = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_vector_add_of_any_size(size: int) -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=64)
    s[C].parallel(outer)
    s[C].vectorize(inner)
    fadd = treadle.build(s, [A, B, C], "llvm", name="myadd")

    a, b, c = random(size), random(size), np.zeros(size, "float32")
    fadd(a, b, c)
    np.testing.assert_array_equal(c, a + b)
    assert "def myadd(A: float32[n], B: float32[n], C: float32[n], n: int64):" in fadd.loop_text()


@pytest.mark.parametrize("size", [32, 65])
def test_matrix_product_with_a_write_cache(size: int) -> None:
    M = N = K = size
    bn, kfactor = 16, 4
    k = te.reduce_axis((0, K), "k")
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    C = te.compute((M, N), lambda m, n: te.sum(A[m, k] * B[k, n], axis=k), name="C")
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    mo, no, _mi, _ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    s[CC].compute_at(s[C], no)
    mc, nc = s[CC].op.axis
    (kaxis,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(kaxis, factor=kfactor)
    s[CC].reorder(ko, mc, ki, nc)
    s[CC].vectorize(nc)
    s[CC].unroll(ki)
    s[C].parallel(mo)
    func = treadle.build(s, [A, B, C], target="llvm", name="mmult")

    a, b, c = random(M, K), random(K, N), np.zeros((M, N), "float32")
    func(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_packed_weights() -> None:
    M, N, K, bn = 32, 48, 20, 16
    k = te.reduce_axis((0, K), "k")
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    packed = te.compute((N // bn, K, bn), lambda b, z, x: B[z, b * bn + x], name="packed")
    C = te.compute(
        (M, N),
        lambda m, n: te.sum(A[m, k] * packed[n // bn, k, te.floormod(n, bn)], axis=k),
        name="C",
    )
    s = te.create_schedule(C.op)
    _, no, _mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], 8, bn)
    s[C].vectorize(ni)
    _, _, little = s[packed].op.axis
    s[packed].vectorize(little)
    s[packed].compute_at(s[C], no)
    check(s, [A, B, C])


def test_argmax_by_a_reducer_of_pairs() -> None:
    def fcombine(x: tuple[te.Tensor, ...], y: tuple[te.Tensor, ...]) -> tuple[object, object]:
        lhs = te.if_then_else(x[1] >= y[1], x[0], y[0])
        rhs = te.if_then_else(x[1] >= y[1], x[1], y[1])
        return lhs, rhs

    def fidentity(t0: str, t1: str) -> tuple[object, object]:
        return te.const(-1, t0), te.min_value(t1)

    argmax = te.comm_reducer(fcombine, fidentity, name="argmax")
    m, n = 5, 37
    idx = te.placeholder((m, n), name="idx", dtype="int32")
    val = te.placeholder((m, n), name="val", dtype="float32")
    k = te.reduce_axis((0, n), "k")
    T0, T1 = te.compute((m,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="T")
    s = te.create_schedule(T0.op)
    func = treadle.build(s, [idx, val, T0, T1])

    at = np.broadcast_to(np.arange(n, dtype="int32"), (m, n)).copy()
    values = random(m, n)
    place, top = np.zeros(m, "int32"), np.zeros(m, "float32")
    func(at, values, place, top)
    np.testing.assert_array_equal(place, values.argmax(1))
    np.testing.assert_array_equal(top, values.max(1))


def test_argmax_factored() -> None:
    argmax = te.comm_reducer(
        lambda x, y: (
            te.if_then_else(x[0] >= y[0], x[0], y[0]),
            te.if_then_else(x[0] >= y[0], x[1], y[1]),
        ),
        lambda t0, t1: (te.min_value(t0), te.const(0, t1)),
    )
    A = te.placeholder((3, 50), name="A")
    k = te.reduce_axis((0, 50), "k")
    V, T = te.compute((3,), lambda i: argmax((A[i, k], k), axis=k), name="T")
    s = te.create_schedule(V.op)
    _, inner = s[V].split(k, factor=8)
    s.rfactor(V, inner)
    func = treadle.build(s, [A, V, T])
    a = RANDOM.permutation(150).reshape(3, 50).astype("float32")
    top, place = np.zeros(3, "float32"), np.zeros(3, "int64")
    func(a, top, place)
    np.testing.assert_array_equal(place, a.argmax(1))


def test_convolution_padded_by_a_condition() -> None:
    batch, in_channel, out_channel, size, kernel, pad = 2, 3, 8, 7, 3, 1
    A = te.placeholder((size, size, in_channel, batch), name="A")
    W = te.placeholder((kernel, kernel, in_channel, out_channel), name="W")
    out_size = size - kernel + 2 * pad + 1
    Apad = te.compute(
        (size + 2 * pad, size + 2 * pad, in_channel, batch),
        lambda yy, xx, cc, nn: te.if_then_else(
            te.all(yy >= pad, yy - pad < size, xx >= pad, xx - pad < size),
            A[yy - pad, xx - pad, cc, nn],
            te.const(0.0, "float32"),
        ),
        name="Apad",
    )
    rc = te.reduce_axis((0, in_channel), name="rc")
    ry = te.reduce_axis((0, kernel), name="ry")
    rx = te.reduce_axis((0, kernel), name="rx")
    B = te.compute(
        (out_size, out_size, out_channel, batch),
        lambda yy, xx, ff, nn: te.sum(
            Apad[yy + ry, xx + rx, rc, nn] * W[ry, rx, rc, ff], axis=[ry, rx, rc]
        ),
        name="B",
    )
    s = te.create_schedule(B.op)
    check(s, [A, W, B])
    s[Apad].compute_inline()
    check(s, [A, W, B])
    s = te.create_schedule(B.op)
    yy, _xx, ff, _nn = s[B].op.axis
    yo, _ = s[B].split(yy, factor=2)
    s[Apad].compute_at(s[B], yo)
    s[B].vectorize(ff)
    check(s, [A, W, B])


def test_factored_sum() -> None:
    n, m = 6, 130
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    s[BF].compute_at(s[B], s[B].op.axis[0])
    s[BF].reorder(s[BF].op.reduce_axis[0], s[BF].op.axis[0])
    s[BF].vectorize(s[BF].op.axis[0])
    check(s, [A, B])


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_blur_in_two_stages(rows: int) -> None:
    height, width = 10, 33
    A = te.placeholder((height + 2, width + 2), name="A")
    X = te.compute((height + 2, width), lambda i, j: A[i, j] + A[i, j + 1] + A[i, j + 2], name="X")
    Y = te.compute((height, width), lambda i, j: X[i, j] + X[i + 1, j] + X[i + 2, j], name="Y")
    s = te.create_schedule(Y.op)
    i, j = s[Y].op.axis
    io, _ = s[Y].split(i, factor=rows)
    s[X].compute_at(s[Y], io)
    s[X].vectorize(s[X].op.axis[1])
    _, ji = s[Y].split(j, factor=8)
    s[Y].vectorize(ji)
    module = check(s, [A, Y])
    assert f"X: float32[{rows + 2}, 33] = alloc(local)" in module.loop_text()


def test_chain_of_three_at_each_other() -> None:
    A = te.placeholder((40,), name="A")
    B = te.compute((38,), lambda i: A[i] + A[i + 2], name="B")
    C = te.compute((37,), lambda i: B[i] * B[i + 1], name="C")
    D = te.compute((35,), lambda i: C[i] - C[i + 2], name="D")
    s = te.create_schedule(D.op)
    outer, _ = s[D].split(s[D].op.axis[0], factor=8)
    s[C].compute_at(s[D], outer)
    s[B].compute_at(s[C], s[C].op.axis[0])
    check(s, [A, D])


def test_inlined_chain_leaves_one_loop() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((n,), lambda i: te.exp(B[i]), name="C")
    D = te.compute((n,), lambda i: C[i] + B[i], name="D")
    s = te.create_schedule(D.op)
    s[B].compute_inline()
    s[C].compute_inline()
    func = treadle.build(s, [A, D])
    assert func.loop_text().count("for ") == 1
    a, d = random(33), np.zeros(33, "float32")
    func(a, d)
    np.testing.assert_allclose(d, np.exp(2 * a) + 2 * a, rtol=1e-6)


@pytest.mark.parametrize(("n", "m"), [(3, 5), (8, 16), (9, 33)])
def test_two_symbolic_sizes(n: int, m: int) -> None:
    N, M = te.var("n"), te.var("m")
    A = te.placeholder((N, M), name="A")
    B = te.compute((M, N), lambda i, j: A[j, i], name="B")
    s = te.create_schedule(B.op)
    s[B].tile(*s[B].op.axis, 4, 8)
    func = treadle.build(s, [A, B])
    a, b = random(n, m), np.zeros((m, n), "float32")
    func(a, b)
    np.testing.assert_array_equal(b, a.T)


def test_several_outputs_share_a_stage() -> None:
    A = te.placeholder((9,), name="A")
    B = te.compute((9,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((9,), lambda i: B[i] * 2.0, name="C")
    s = te.create_schedule([B.op, C.op])
    check(s, [A, B, C])


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int32", "int64", "uint8", "bool"])
def test_element_types(dtype: str) -> None:
    A = te.placeholder((19,), dtype, "A")
    one = te.const(1, dtype)
    B = te.compute(
        (19,), lambda i: te.if_then_else(i < 10, A[i], A[i] if dtype == "bool" else A[i] + one),
        name="B",
    )  # fmt: skip
    s = te.create_schedule(B.op)
    _, inner = s[B].split(s[B].op.axis[0], factor=8)
    s[B].vectorize(inner)
    func = treadle.build(s, [A, B])
    a = RANDOM.integers(0, 2 if dtype == "bool" else 50, 19).astype(dtype)
    b = np.zeros(19, dtype)
    func(a, b)
    wanted = a.copy()
    if dtype != "bool":
        wanted[10:] += np.ones((), dtype)
    np.testing.assert_array_equal(b, wanted)


def test_a_tensor_of_rank_zero() -> None:
    A = te.placeholder((), name="A")
    B = te.compute((), lambda: A[()] + 1.0, name="B")
    C = te.compute((4,), lambda i: B[()] * 2.0, name="C")
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], s[C].op.axis[0])
    check(s, [A, C])


def test_reductions_with_a_condition_and_a_start() -> None:
    A = te.placeholder((20,), name="A")
    k = te.reduce_axis((3, 17), "k")
    B = te.compute((1,), lambda i: te.sum(A[k], axis=k, where=k % 2 == 0), name="B")
    s = te.create_schedule(B.op)
    s[B].split(k, factor=4)
    check(s, [A, B])
