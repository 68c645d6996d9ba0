# SPDX-License-Identifier: Apache-2.0
"""Complex numbers as two tensors of real numbers, which every operator of the graph takes.

Halves are computed in float32 and rounded once, as torch does. Where a tensor of real numbers
meets a complex one it stays real: products with it are two multiplications, not four.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from treadle import dtype as dt
from treadle.errors import ModelError
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    element_type,
    operands,
    reshaped,
    scalar_like,
)
from treadle.frontend.builders.dynamic_operands import AxisRange
from treadle.frontend.builders.movement import concatenated, sliced
from treadle.graph.nodes import Constant, Node
from treadle.graph.types import Dim
from treadle.ops import elementwise as ew
from treadle.ops import real_functions as rf


@dataclass(frozen=True, slots=True)
class Complex:
    """Real and imaginary parts, of one type and one shape; None is an imaginary part of zeros."""

    real: Node
    imag: Node | None = None

    @property
    def parts(self) -> tuple[Node, Node]:
        """Both parts, the second as a tensor also where it is zero."""
        return self.real, zeros_like(self.real) if self.imag is None else self.imag

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The parts there are."""
        return (self.real,) if self.imag is None else (self.real, self.imag)

    @property
    def dtype(self) -> str:
        """The element type of the parts."""
        return element_type(self.real)

    def mapped(self, function: Callable[[Node], Node]) -> Complex:
        """Return the numbers with a function applied to each part, which takes 0 to 0."""
        return Complex(function(self.real), None if self.imag is None else function(self.imag))


def zeros_like(x: Node) -> Node:
    """Return zeros of the type and shape of `x`."""
    return broadcast(scalar_like(0, x), dims_of(x))


def complex_of(value: Complex | Node | complex, dtype: str) -> Complex:
    """Return a value as complex numbers with parts of type `dtype`."""
    if isinstance(value, Complex):
        return value.mapped(lambda part: converted(part, dtype))
    if isinstance(value, Node):
        return Complex(converted(value, dtype))
    imag = Constant.of(value.imag, dtype) if value.imag else None
    return Complex(Constant.of(value.real, dtype), imag)


# ---- numbers as an axis of 2 ---------------------------------------------------------------------


def paired(x: Node) -> Complex:
    """Return [..., 2], as torch's complex numbers lie in memory, as complex numbers."""
    *shape, last = dims_of(x)
    if last != 2:
        raise ModelError(f"complex numbers are an axis of 2, not {x.type}")
    if isinstance(x, Constant):
        known = (Constant.of(_apart(x.value[..., k]), origin=x.origin) for k in (0, 1))
        return Complex(*known)
    axis = len(shape)
    cuts = (sliced(x, [AxisRange(axis, k, k + 1)]) for k in (0, 1))
    return Complex(*(reshaped(cut, shape) for cut in cuts))


def _apart(values: np.ndarray) -> np.ndarray:
    return np.array(values, order="C")


def joined(z: Complex) -> Node:
    """Return complex numbers as [..., 2]."""
    shape = dims_of(z.real)
    return concatenated([reshaped(part, (*shape, 1)) for part in z.parts], len(shape))


# ---- arithmetic ----------------------------------------------------------------------------------


def wide(z: Complex) -> Complex:
    """Return halves as float32; other numbers as they are."""
    return z.mapped(lambda part: converted(part, "float32")) if dt.bits(z.dtype) == 16 else z


def _met(combine: Callable[[Node, Node], Node], a: Node, b: Node) -> Node:
    return combine(*operands(a, b))


def _times(a: Node, b: Node) -> Node:
    return _met(ew.multiply, a, b)


def conjugate(z: Complex) -> Complex:
    """Return a - b i."""
    return Complex(z.real, None if z.imag is None else ew.negative(z.imag))


def negative(z: Complex) -> Complex:
    """Return -z."""
    return z.mapped(ew.negative)


def add(a: Complex, b: Complex) -> Complex:
    """Return a + b, which broadcast."""
    real = _met(ew.add, a.real, b.real)
    if a.imag is not None and b.imag is not None:
        return Complex(real, _met(ew.add, a.imag, b.imag))
    only = a.imag if b.imag is None else b.imag
    return Complex(real, None if only is None else broadcast(only, dims_of(real)))


def subtract(a: Complex, b: Complex) -> Complex:
    """Return a - b, which broadcast."""
    if a.imag is not None and b.imag is not None:
        return Complex(_met(ew.subtract, a.real, b.real), _met(ew.subtract, a.imag, b.imag))
    return add(a, negative(b))


def multiply(a: Complex, b: Complex, times: Callable[[Node, Node], Node] = _times) -> Complex:
    """Return a b, which broadcast; by real numbers in two multiplications.

    `times` is the product of real operands: another bilinear one, as that of matrices, gives its
    complex form.
    """
    if b.imag is None:
        return a.mapped(lambda part: times(part, b.real))
    if a.imag is None:
        return b.mapped(lambda part: times(a.real, part))
    real = ew.subtract(times(a.real, b.real), times(a.imag, b.imag))
    return Complex(real, ew.add(times(a.real, b.imag), times(a.imag, b.real)))


def divide(a: Complex, b: Complex) -> Complex:
    """Return a / b, which broadcast; the divisor is scaled, so that its square cannot overflow."""
    if b.imag is None:
        return a.mapped(lambda part: _met(ew.divide, part, b.real))
    scale = ew.maximum(ew.abs(b.real), ew.abs(b.imag))
    c, d = ew.divide(b.real, scale), ew.divide(b.imag, scale)
    length = ew.multiply(scale, ew.add(ew.multiply(c, c), ew.multiply(d, d)))
    rotated = multiply(a, Complex(c, ew.negative(d)))
    return rotated.mapped(lambda part: _met(ew.divide, part, length))


def equal(a: Complex, b: Complex) -> Node:
    """Return where both parts are equal."""
    pairs = zip(a.parts, b.parts, strict=True)
    return ew.logical_and(*(_met(ew.equal, x, y) for x, y in pairs))


def where(condition: Node, a: Complex, b: Complex) -> Complex:
    """Return a where a condition holds, else b; all three broadcast."""
    real = ew.where(*operands(condition, a.real, b.real))
    if a.imag is None and b.imag is None:
        return Complex(real)
    return Complex(real, ew.where(*operands(condition, a.parts[1], b.parts[1])))


def is_any(test: Callable[[Node], Node], z: Complex) -> Node:
    """Return where one part or the other passes a test."""
    found = [test(part) for part in z.nodes]
    return found[0] if len(found) == 1 else ew.logical_or(*found)


# ---- lengths and angles --------------------------------------------------------------------------


def magnitude(z: Complex) -> Node:
    """Return |z|, which overflows only where it is itself too large."""
    if z.imag is None:
        return ew.abs(z.real)
    if z.dtype == "float64":
        return length_of_two(z.real, z.imag)
    kind = "float64" if z.dtype == "float32" else "float32"
    squares = (ew.multiply(p, p) for p in (converted(part, kind) for part in z.nodes))
    return converted(ew.sqrt(ew.add(*squares)), z.dtype)


def length_of_two(a: Node, b: Node) -> Node:
    """Return the length of a vector of two: the larger part times a root that cannot overflow."""
    x, y = ew.abs(a), ew.abs(b)
    large, small = ew.maximum(x, y), ew.minimum(x, y)
    is_plain = ew.logical_or(ew.equal(large, scalar_like(0, large)), ew.isinf(large))
    ratio = ew.divide(small, ew.where(*operands(is_plain, scalar_like(1, large), large)))
    root = ew.sqrt(ew.add(scalar_like(1, ratio), ew.multiply(ratio, ratio)))
    return ew.where(is_plain, large, ew.multiply(large, root))


def angle(z: Complex) -> Node:
    """Return the angle of z, from -pi to pi."""
    real, imag = z.parts
    return rf.atan2(imag, real)


def polar(length: Node, at: Node) -> Complex:
    """Return the number of a length and an angle, which broadcast."""
    return Complex(_times(length, ew.cos(at)), _times(length, ew.sin(at)))


def sign(z: Complex) -> Complex:
    """Return z / |z|, 0 for 0."""
    length = magnitude(z)
    none = scalar_like(0, length)
    is_zero = ew.equal(length, none)
    by = ew.where(*operands(is_zero, scalar_like(1, length), length))
    return z.mapped(lambda part: ew.divide(part, by))


# ---- functions -----------------------------------------------------------------------------------


def exp(z: Complex) -> Complex:
    """Return e^z."""
    return Complex(ew.exp(z.real)) if z.imag is None else polar(ew.exp(z.real), z.imag)


def log(z: Complex) -> Complex:
    """Return the logarithm whose imaginary part is the angle."""
    return Complex(ew.log(magnitude(z)), angle(z))


def sqrt(z: Complex) -> Complex:
    """Return the root with a real part of 0 or more.

    With t = sqrt((|z| + |a|) / 2) it is t + b / 2t i, or where a is below 0 |b| / 2t + t i with the
    sign of b.
    """
    a, b = z.parts
    half, none = scalar_like(0.5, a), scalar_like(0, a)
    length, size = ew.multiply(magnitude(z), half), ew.multiply(ew.abs(a), half)
    t = ew.sqrt(ew.add(length, size))
    is_zero = ew.equal(t, none)
    twice = ew.add(t, t)
    other = ew.divide(b, ew.where(*operands(is_zero, scalar_like(1, a), twice)))
    is_below = ew.less(a, none)
    return Complex(
        ew.where(is_below, ew.abs(other), t), ew.where(is_below, rf.copysign(t, b), other)
    )


def power(z: Complex, exponent: Complex) -> Complex:
    """Return z^exponent, which broadcast: e^(exponent log z); 0 to a power other than 0 is 0."""
    made = exp(multiply(exponent, log(z)))
    base, by = (ew.equal(magnitude(v), scalar_like(0, v.real)) for v in (z, exponent))
    none = scalar_like(0, z.real)
    zero = where(by, Complex(scalar_like(1, none)), Complex(none))
    return where(base, broadcast_parts(zero, dims_of(made.real)), made)


def broadcast_parts(z: Complex, shape: Sequence[Dim]) -> Complex:
    """Return numbers broadcast to a shape."""
    return z.mapped(lambda part: broadcast(part, shape))


def whole_power(z: Complex, exponent: int) -> Complex:
    """Return z to a whole power other than 0: a product of squares."""
    made: Complex | None = None
    square, left = z, abs(exponent)
    while left:
        if left & 1:
            made = square if made is None else multiply(made, square)
        left >>= 1
        square = multiply(square, square) if left else square
    assert made is not None
    return made if exponent > 0 else reciprocal(made)


def reciprocal(z: Complex) -> Complex:
    """Return 1 / z."""
    return divide(Complex(scalar_like(1, z.real)), z)


def sinh(z: Complex) -> Complex:
    """Return sinh(a) cos(b) + cosh(a) sin(b) i."""
    a, b = z.parts
    return Complex(ew.multiply(ew.sinh(a), ew.cos(b)), ew.multiply(ew.cosh(a), ew.sin(b)))


def cosh(z: Complex) -> Complex:
    """Return cosh(a) cos(b) + sinh(a) sin(b) i."""
    a, b = z.parts
    return Complex(ew.multiply(ew.cosh(a), ew.cos(b)), ew.multiply(ew.sinh(a), ew.sin(b)))


def sin(z: Complex) -> Complex:
    """Return sin(a) cosh(b) + cos(a) sinh(b) i."""
    a, b = z.parts
    return Complex(ew.multiply(ew.sin(a), ew.cosh(b)), ew.multiply(ew.cos(a), ew.sinh(b)))


def cos(z: Complex) -> Complex:
    """Return cos(a) cosh(b) - sin(a) sinh(b) i."""
    a, b = z.parts
    return Complex(
        ew.multiply(ew.cos(a), ew.cosh(b)),
        ew.negative(ew.multiply(ew.sin(a), ew.sinh(b))),
    )


def tanh(z: Complex) -> Complex:
    """Return sinh(z) / cosh(z), of parts divided by cosh(a)^2, which do not overflow.

    With t = tanh(a) that is (t + (1 - t^2) sin(b) cos(b) i) / (cos(b)^2 + t^2 sin(b)^2).
    """
    a, b = z.parts
    t, s, c = ew.tanh(a), ew.sin(b), ew.cos(b)
    square = ew.multiply(t, t)
    below = ew.add(ew.multiply(c, c), ew.multiply(square, ew.multiply(s, s)))
    rest = ew.multiply(ew.subtract(scalar_like(1, t), square), ew.multiply(s, c))
    return Complex(ew.divide(t, below), ew.divide(rest, below))


def tan(z: Complex) -> Complex:
    """Return -i tanh(i z)."""
    a, b = z.parts
    real, imag = tanh(Complex(ew.negative(b), a)).parts
    return Complex(imag, ew.negative(real))


def product_along(z: Complex, axis: int, extent: int) -> Complex:
    """Return the products along an axis of known extent, of which an extent of 1 stays.

    The second half is multiplied into the first until one number is left.
    """
    if extent == 0:
        shape = [1 if k == axis else d for k, d in enumerate(dims_of(z.real))]
        return Complex(broadcast(scalar_like(1, z.real), shape))
    while extent > 1:
        half = extent // 2
        front, back = (_cut(z, axis, k * half, (k + 1) * half) for k in (0, 1))
        made = multiply(front, back)
        z = made if extent % 2 == 0 else _appended(made, _cut(z, axis, 2 * half, extent), axis)
        extent -= half
    return z


def _cut(z: Complex, axis: int, begin: int, end: int) -> Complex:
    return z.mapped(lambda part: sliced(part, [AxisRange(axis, begin, end)]))


def _appended(a: Complex, b: Complex, axis: int) -> Complex:
    pairs = zip(a.parts, b.parts, strict=True)
    real, imag = (concatenated(list(pair), axis) for pair in pairs)
    return Complex(real, imag)
