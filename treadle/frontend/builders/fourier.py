# SPDX-License-Identifier: Apache-2.0
"""Discrete Fourier transforms, as products with constant matrices of sines and cosines.

A long transform is done in two steps where its length n is a product a b, which takes about
n (a + b) multiplications instead of n n (Cooley and Tukey, An algorithm for the machine calculation
of complex Fourier series, 1965). With w(j) = e^(-2 pi i j / n) and m = b m1 + m2, k = k1 + a k2

    y[k] = sum over m2 of w(m2 k) * (sum over m1 of w(b m1 k1) * x[m])

The inner sums are one product, the outer ones a product for each k1. Where x is real, y[n - k] is
the conjugate of y[k], and no k1 above a / 2 is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treadle.errors import ModelError
from treadle.frontend.builders.basic import converted, cut_columns, dims_of, reshaped, transposed
from treadle.frontend.builders.movement import padded
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import known_sizes, normal_size, product_of, tensor_type
from treadle.ops import elementwise, indexing, matmul

MATRIX_LIMIT = 1 << 24
"""A matrix of a transform may have this many elements."""

_MOVED = 16
"""Multiplications that take as long as moving an element from step to step."""

_GAIN = 2
"""Two steps must take this many times less than one product."""


@dataclass(frozen=True)
class Transform:
    """One-dimensional transforms of `count` elements with 1 (real) or 2 parts to `length`.

    Shorter data is padded with zeros, longer data cut. A one-sided transform gives the first half
    of the spectrum; if it is inverse, it takes that half and gives real numbers. All results are
    multiplied by `scale`.
    """

    count: int
    parts: int
    length: int
    inverse: bool
    onesided: bool
    scale: float

    @property
    def results(self) -> int:
        """Elements of the result."""
        return self.length // 2 + 1 if self.onesided and not self.inverse else self.length

    @property
    def result_parts(self) -> int:
        """1 where the result is real, else 2."""
        return 1 if self.is_real else 2

    @property
    def is_real(self) -> bool:
        """True where half a spectrum becomes real numbers."""
        return self.inverse and self.onesided

    @property
    def products(self) -> int:
        """Multiplications of one product with a matrix, which is its number of elements."""
        return self.count * self.parts * self.results * self.result_parts


def transformed(
    x: Node,
    axis: int,
    length: int | None,
    inverse: bool,
    onesided: bool,
    scale: float | None = None,
) -> Node:
    """Return transforms along `axis` of `x` [..., n, ..., 1 or 2], real and imaginary parts last.

    `length` is that of the axis, or of the spectrum whose half it is, where it is None. Where no
    `scale` is given, inverse transforms are divided by the length.
    Raises: ModelError for another shape, and for a length whose matrices would be too large.
    """
    shape = dims_of(x)
    if len(shape) < 2 or axis == len(shape) - 1 or shape[-1] not in (1, 2):
        raise ModelError(f"a Fourier transform takes [..., n, 1 or 2], not {x.type}")
    count, parts = known_sizes((shape[axis], shape[-1]))
    if length is None:
        length = 2 * (count - 1) if inverse and onesided else count
    if scale is None:
        scale = 1 / length if inverse and length > 0 else 1.0
    it = Transform(count, parts, length, inverse, onesided, scale)
    steps = replace(it, count=length, onesided=False) if it.is_real else it
    factor = _factor(steps, it.products) if length > 0 else 0
    if length < 1 or (not factor and it.products > MATRIX_LIMIT):
        raise ModelError(
            f"a Fourier transform of {count} elements to {length} is not supported",
            hint=f"it is a product with a matrix, which may have {MATRIX_LIMIT} elements, "
            "or with two where the length is a product of numbers near its square root",
        )
    order = [k for k in range(len(shape)) if k not in (axis, len(shape) - 1)]
    order += [axis, len(shape) - 1]
    lead = [shape[k] for k in order[:-2]]
    rows = reshaped(transposed(x, order), (product_of(lead), count, parts))
    # In float64: terms that cancel would leave errors of the size of the largest term's last bit.
    wide = converted(rows, "float64")
    if not factor:
        made = _one_product(wide, it)
    elif it.is_real:
        made = cut_columns(_two_steps(_whole(wide, it), steps, factor), 0, 1)
    else:
        made = _two_steps(wide, it, factor)
    narrow = converted(made, tensor_type(x.type).dtype)
    placed = reshaped(narrow, (*lead, it.results, it.result_parts))
    return transposed(placed, [int(k) for k in np.argsort(order)])


# ---- one product ---------------------------------------------------------------------------------


def _one_product(rows: Node, it: Transform) -> Node:
    """Return transforms of float64[rows, count, parts] by one product."""
    matrix = _matrix(it)[:, : it.parts].reshape(it.count * it.parts, -1)
    flat = reshaped(rows, (dims_of(rows)[0], matrix.shape[0]))
    return matmul.matmul(flat, Constant.of(matrix))


def _matrix(it: Transform) -> NDArray[np.float64]:
    """Return [count, real or imaginary in, results * parts out]."""
    places = np.arange(it.count)
    powers = places[:, None] * np.arange(it.results)[None, :]
    if not it.is_real:
        used = places < it.length
        scale = used * it.scale
        whole = _complex_products(_roots(powers, it.length, it.inverse) * scale[:, None])
        return whole.transpose(0, 2, 1, 3).reshape(it.count, 2, -1)
    # The half that is left out mirrors the one that is given.
    twice = (places > 0) & (2 * places != it.length)
    scale = np.where(places < it.length // 2 + 1, np.where(twice, 2.0, 1.0), 0.0) * it.scale
    waves = _roots(powers, it.length, inverse=True)
    return np.stack([waves.real, -waves.imag], 1) * scale[:, None, None]


def _roots(powers: NDArray[np.int64], n: int, inverse: bool) -> NDArray[np.complex128]:
    """Return powers of the n-th root of unity: e^(-2 pi i power / n), conjugate for `inverse`."""
    angle = 2 * np.pi * (powers % n) / n
    return np.cos(angle) + (1j if inverse else -1j) * np.sin(angle)


def _complex_products(factors: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Return [m, k] complex factors as [m, k, 2, 2], from real, imaginary to real, imaginary.

    The axes are [m, part in, k, part out] after swapping the middle two.
    """
    rows = [[factors.real, factors.imag], [-factors.imag, factors.real]]
    return np.asarray(np.stack([np.stack(row, -1) for row in rows], -2))


# ---- two steps -----------------------------------------------------------------------------------


def _factor(it: Transform, products: int) -> int:
    """Return the length of the first step's transforms, 0 where one of `products` is better."""

    def cost(a: int) -> int:
        b, columns = it.length // a, _columns(it, a)
        return it.length * (2 * it.parts * columns + _MOVED) + columns * (2 * b) ** 2

    def fits(a: int) -> bool:
        b, columns = it.length // a, _columns(it, a)
        return max(2 * a * it.parts * columns, columns * (2 * b) ** 2) <= MATRIX_LIMIT

    divisors = [a for a in range(2, it.length // 2 + 1) if it.length % a == 0 and fits(a)]
    best = min(divisors, key=cost, default=0)
    return best if best and _GAIN * cost(best) <= products else 0


def _columns(it: Transform, a: int) -> int:
    """Return how many k1 are computed."""
    return a // 2 + 1 if it.parts == 1 else a


def _two_steps(rows: Node, it: Transform, a: int) -> Node:
    """Return transforms of float64[rows, count, parts] by transforms of a and of length / a."""
    b, columns, many = it.length // a, _columns(it, a), dims_of(rows)[0]
    x = padded(rows, (0, 0, 0), (0, it.length - it.count, 0))
    first, second = _step_matrices(it, a)
    inner = transposed(reshaped(x, (many, a, b, it.parts)), (0, 2, 1, 3))
    inner = reshaped(inner, (normal_size(many * b), a * it.parts))
    sums = reshaped(matmul.matmul(inner, Constant.of(first)), (many, b, columns, 2))
    outer = reshaped(transposed(sums, (2, 0, 1, 3)), (columns, many, 2 * b))
    found = reshaped(matmul.matmul(outer, Constant.of(second)), (columns, many, b, 2))
    spectrum = reshaped(transposed(found, (1, 2, 0, 3)), (many, b * columns, 2))
    if columns == a and it.results == it.length:
        return spectrum
    return _in_order(spectrum, it, a)


def _step_matrices(it: Transform, a: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return [(m1, part), (k1, part)] of the inner sums and [k1, (m2, part), (k2, part)]."""
    b, columns = it.length // a, _columns(it, a)
    k1, m2, k2 = np.arange(columns), np.arange(b), np.arange(b)
    inner = _roots(b * np.arange(a)[:, None] * k1[None, :], it.length, it.inverse)
    first = _complex_products(inner * it.scale).transpose(0, 2, 1, 3)
    k = k1[:, None, None] + a * k2[None, None, :]
    outer = _roots(m2[None, :, None] * k, it.length, it.inverse)
    second = np.stack([_complex_products(each).transpose(0, 2, 1, 3) for each in outer])
    return (
        first[:, : it.parts].reshape(a * it.parts, 2 * columns),
        second.reshape(columns, 2 * b, 2 * b),
    )


def _in_order(spectrum: Node, it: Transform, a: int) -> Node:
    """Return the results in order, from [rows, (k2, k1), 2] whose k1 may end at a / 2."""
    columns = _columns(it, a)
    k = np.arange(it.results)
    is_mirrored = k % a >= columns
    source = np.where(is_mirrored, it.length - k, k)
    return _conjugated(spectrum, source // a * columns + source % a, is_mirrored)


def _whole(half: Node, it: Transform) -> Node:
    """Return the spectrum [rows, length, 2] of real numbers, of which a half is given."""
    given, k = it.length // 2 + 1, np.arange(it.length)
    used = padded(half, (0, 0, 0), (0, given - it.count, 0))
    is_mirrored = k >= given
    return _conjugated(used, np.where(is_mirrored, it.length - k, k), is_mirrored)


def _conjugated(spectrum: Node, places: NDArray[np.int64], where: NDArray[np.bool_]) -> Node:
    """Return the elements of [rows, n, 2] at `places`, some of them conjugated."""
    signs = np.stack([np.ones(len(places)), np.where(where, -1.0, 1.0)], -1)
    kept = indexing.gather(spectrum, Constant.of(places), axis=1)
    return elementwise.multiply(kept, Constant.of(signs))
