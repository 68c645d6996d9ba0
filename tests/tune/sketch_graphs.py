# SPDX-License-Identifier: Apache-2.0
"""Computations as a user would write them in te, with their meaning in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from treadle import te
from treadle.expr.nodes import select
from treadle.te.operations import Tensor
from treadle.te.schedule import Schedule

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, one result, and what it is."""

    inputs: list[Tensor]
    result: Tensor
    meaning: Callable[..., Array]

    def schedule(self) -> Schedule:
        """Return a schedule without a step."""
        return te.create_schedule([self.result.op])


def _input(name: str, *shape: int) -> Tensor:
    return te.placeholder(shape, "float32", name)


def matmul(m: int = 33, n: int = 47, k: int = 24) -> Graph:
    a, b = _input("A", m, k), _input("B", k, n)
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], r), name="C")
    return Graph([a, b], c, lambda x, y: x @ y)


def matmul_bias_relu(m: int = 48, n: int = 64, k: int = 20) -> Graph:
    a, b, bias = _input("A", m, k), _input("B", k, n), _input("bias", n)
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], r), name="C")
    d = te.compute((m, n), lambda i, j: te.max(c[i, j] + bias[j], 0.0), name="D")
    return Graph([a, b, bias], d, lambda x, y, z: np.maximum(x @ y + z, 0))


def matmul_of_rows(m: int = 20, n: int = 18, k: int = 96) -> Graph:
    a, b = _input("A", m, k), _input("B", n, k)
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], r), name="C")
    return Graph([a, b], c, lambda x, y: x @ y.T)


def batched_matmul(z: int = 3, m: int = 18, n: int = 40, k: int = 16) -> Graph:
    a, b = _input("A", z, m, k), _input("B", z, k, n)
    r = te.reduce_axis((0, k), "k")
    c = te.compute((z, m, n), lambda h, i, j: te.sum(a[h, i, r] * b[h, r, j], r), name="C")
    return Graph([a, b], c, np.matmul)


def conv2d(stride: int = 1) -> Graph:
    """A convolution of NCHW by 3x3 with padding, and relu."""
    x, w = _input("X", 1, 6, 13, 17), _input("W", 8, 6, 3, 3)
    high, wide = (13 - 1) // stride + 1, (17 - 1) // stride + 1
    padded = _padded(x, 13, 17)
    c, p, q = te.reduce_axis((0, 6), "c"), te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")
    sums = te.compute(
        (1, 8, high, wide),
        lambda b, o, i, j: te.sum(
            padded[b, c, i * stride + p, j * stride + q] * w[o, c, p, q], [c, p, q]
        ),
        name="conv",
    )
    result = te.compute(sums.shape, lambda *i: te.max(sums[i], 0.0), name="relu")

    def meaning(data: Array, weights: Array) -> Array:
        around = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
        windows = windows[:, :, ::stride, ::stride]
        return np.maximum(np.einsum("bcijpq,ocpq->boij", windows, weights), 0)

    return Graph([x, w], result, meaning)


def depthwise() -> Graph:
    """A convolution of each channel by itself."""
    x, w = _input("X", 1, 6, 13, 17), _input("W", 6, 3, 3)
    padded = _padded(x, 13, 17)
    p, q = te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")
    sums = te.compute(
        (1, 6, 13, 17),
        lambda b, c, i, j: te.sum(padded[b, c, i + p, j + q] * w[c, p, q], [p, q]),
        name="depthwise",
    )

    def meaning(data: Array, weights: Array) -> Array:
        around = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
        return np.asarray(np.einsum("bcijpq,cpq->bcij", windows, weights))

    return Graph([x, w], sums, meaning)


def _padded(x: Tensor, high: int, wide: int) -> Tensor:
    batch, channels = x.shape[:2]
    return te.compute(
        (batch, channels, high + 2, wide + 2),
        lambda b, c, i, j: te.if_then_else(
            te.all(i >= 1, i <= high, j >= 1, j <= wide), x[b, c, i - 1, j - 1], 0.0
        ),
        name="pad",
    )


def softmax(m: int = 14, n: int = 100) -> Graph:
    x = _input("X", m, n)
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    top = te.compute((m,), lambda i: te.max(x[i, k], k), name="top")
    e = te.compute((m, n), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((m,), lambda i: te.sum(e[i, r], r), name="total")
    result = te.compute((m, n), lambda i, j: e[i, j] / total[i], name="softmax")

    def meaning(data: Array) -> Array:
        raised = np.exp(data - data.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    return Graph([x], result, meaning)


def layer_norm(m: int = 12, n: int = 128) -> Graph:
    x, scale = _input("X", m, n), _input("scale", n)
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    total = te.compute((m,), lambda i: te.sum(x[i, k], k), name="total")

    def apart(i: te.Expr, j: te.Expr) -> te.Expr:
        return x[i, j] - total[i] / float(n)

    squares = te.compute((m,), lambda i: te.sum(apart(i, r) * apart(i, r), r), name="squares")
    result = te.compute(
        (m, n),
        lambda i, j: apart(i, j) * te.rsqrt(squares[i] / float(n) + 1e-5) * scale[j],
        name="norm",
    )

    def meaning(data: Array, factor: Array) -> Array:
        mean = data.mean(axis=1, keepdims=True)
        return np.asarray((data - mean) / np.sqrt(data.var(axis=1, keepdims=True) + 1e-5) * factor)

    return Graph([x, scale], result, meaning)


def total(m: int = 256, n: int = 100) -> Graph:
    """One number of a large tensor."""
    x = _input("X", m, n)
    k, r = te.reduce_axis((0, m), "k"), te.reduce_axis((0, n), "r")
    result = te.compute((1,), lambda i: te.sum(x[k, r], [k, r]), name="total")
    return Graph([x], result, lambda data: data.sum(keepdims=True).reshape(1))


def column_sums(m: int = 100, n: int = 70) -> Graph:
    x = _input("X", m, n)
    k = te.reduce_axis((0, m), "k")
    result = te.compute((n,), lambda j: te.sum(x[k, j], k), name="sums")
    return Graph([x], result, lambda data: data.sum(axis=0))


def chain(m: int = 21, n: int = 35) -> Graph:
    """Element-wise stages, one of them costly and read twice."""
    x = _input("X", m, n)
    a = te.compute((m, n), lambda i, j: x[i, j] * 2.0 + 1.0, name="a")
    e = te.compute((m, n), lambda i, j: te.exp(a[i, j]), name="e")
    result = te.compute((m, n), lambda i, j: e[i, j] * e[i, j] + a[i, j], name="c")

    def meaning(data: Array) -> Array:
        inner = data * 2 + 1
        return np.asarray(np.exp(inner) ** 2 + inner)

    return Graph([x], result, meaning)


def transposed(m: int = 45, n: int = 50) -> Graph:
    x = _input("X", m, n)
    result = te.compute((n, m), lambda i, j: x[j, i] + 1.0, name="t")
    return Graph([x], result, lambda data: data.T + 1)


def interleaved(m: int = 8, n: int = 64, k: int = 12) -> Graph:
    """Four products, and a result that takes each of its blocks from two of them."""
    a, b = _input("A", 4, m, k), _input("B", 4, k, n)
    r = te.reduce_axis((0, k), "k")
    parts = te.compute((4, m, n), lambda p, i, j: te.sum(a[p, i, r] * b[p, r, j], r), name="parts")

    def element(i: te.Expr, j: te.Expr) -> te.Expr:
        row, column, block = i % m, j // 32 * 16 + j % 16, i // m * 2 + j % 32 // 16
        both = [parts[p, row, column] for p in range(4)]
        two = select(block == 2, both[2] - both[3], both[1] + both[3])
        return select(block == 0, both[0] + both[1], select(block == 1, both[2], two))

    result = te.compute((2 * m, 2 * n), element, name="R")

    def meaning(x: Array, y: Array) -> Array:
        p = (x @ y).reshape(4, m, n // 16, 16)
        left = np.stack([p[0] + p[1], p[2] - p[3]])
        right = np.stack([p[2], p[1] + p[3]])
        return np.stack([left, right], axis=3).reshape(2 * m, 2 * n)

    return Graph([a, b], result, meaning)


def winograd(channels: int = 16, filters: int = 32, tiles: int = 9, cut: int = 1) -> Graph:
    """Convolutions of rows by three weights, F(2, 3); the last `cut` of the sums are not wanted."""
    length = 2 * tiles - cut
    x, w = _input("X", 2 * tiles + 2, channels), _input("W", 4, channels, filters)

    def points(i: te.Expr, t: te.Expr, c: te.Expr) -> te.Expr:
        d = [x[t * 2 + k, c] for k in range(4)]
        last = select(i == 2, d[2] - d[1], d[1] - d[3])
        return select(i == 0, d[0] - d[2], select(i == 1, d[1] + d[2], last))

    v = te.compute((4, tiles, channels), points, name="V")
    r = te.reduce_axis((0, channels), "r")
    m = te.compute(
        (4, tiles, filters), lambda i, t, o: te.sum(v[i, t, r] * w[i, r, o], r), name="M"
    )

    def element(p: te.Expr, o: te.Expr) -> te.Expr:
        d = [m[k, p // 2, o] for k in range(4)]
        return te.max(select(p % 2 == 0, d[0] + d[1] + d[2], d[1] - d[2] - d[3]), 0.0)

    result = te.compute((length, filters), element, name="Y")

    def meaning(data: Array, weights: Array) -> Array:
        d = [data[k::2][:tiles] for k in range(4)]
        transformed = np.stack([d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]])
        p = transformed @ weights
        both = np.stack([p[0] + p[1] + p[2], p[1] - p[2] - p[3]], axis=1)
        return np.maximum(both.reshape(2 * tiles, filters)[:length], 0)

    return Graph([x, w], result, meaning)


GRAPHS: dict[str, Callable[[], Graph]] = {
    f.__name__: f
    for f in (
        matmul, matmul_bias_relu, matmul_of_rows, batched_matmul, conv2d, depthwise, softmax,
        layer_norm, total, column_sums, chain, transposed,
        interleaved, winograd,
    )
}  # fmt: skip
GRAPHS["conv2d_strided"] = lambda: conv2d(2)
