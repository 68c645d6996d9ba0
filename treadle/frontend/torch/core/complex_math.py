# SPDX-License-Identifier: Apache-2.0
"""Converters of arithmetic with complex numbers, their functions, and what makes numbers of them.

A real operand is a node, a complex one is `Complex`; numbers of Python are either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from treadle import dtype as dt
from treadle.expr.nodes import Expr
from treadle.frontend.builders import complex_numbers as cn
from treadle.frontend.builders import reduce
from treadle.frontend.builders.basic import (
    broadcast,
    converted,
    dims_of,
    element_type,
    operands,
    reshaped,
    transposed,
)
from treadle.frontend.builders.complex_numbers import Complex
from treadle.frontend.builders.matmul import product
from treadle.frontend.torch.core import elementwise, functions
from treadle.frontend.torch.core.reduce import count_less
from treadle.frontend.torch.node import AtenNode, aten, of_complex, operand
from treadle.graph.nodes import Node
from treadle.graph.types import Dim, known_sizes, product_of
from treadle.ops import elementwise as ew

Value = Complex | Node | Dim | complex
"""Complex numbers, real ones, a size or a number."""

Factor = Complex | Node

Axes = int | Sequence[int] | None


def _numbers(value: Value, dtype: str) -> Complex:
    """Return a value as complex numbers with parts of type `dtype`."""
    if isinstance(value, Expr):
        return Complex(operand(value, dtype))
    return cn.complex_of(value, dtype)


def _rounded(z: Complex, node: AtenNode) -> Complex:
    return z.mapped(lambda part: converted(part, node.dtype()))


# ---- to and from real numbers --------------------------------------------------------------------


@of_complex("complex")
def from_parts(node: AtenNode, real: Node, imag: Node) -> Complex:
    """Convert a real and an imaginary part, which broadcast."""
    return Complex(*(broadcast(part, node.dims()) for part in (real, imag)))


@of_complex("polar")
def polar(node: AtenNode, length: Node, angle: Node) -> Complex:
    """Convert a length and an angle."""
    return cn.polar(length, angle)


@of_complex("view_as_complex", "view_as_complex_copy")
def view_as_complex(node: AtenNode, x: Node) -> Complex:
    """Convert an axis of 2 to complex numbers."""
    return cn.paired(x)


@of_complex("view_as_real", "view_as_real_copy")
def view_as_real(node: AtenNode, z: Complex) -> Node:
    """Convert complex numbers to an axis of 2."""
    return cn.joined(z)


@of_complex("view.dtype")
def view_as_type(node: AtenNode, x: Complex | Node, dtype: str) -> Complex | Node:
    """Convert complex numbers to twice as many real ones on the last axis, and back."""
    if isinstance(x, Complex):
        return reshaped(cn.joined(x), node.dims())
    return cn.paired(reshaped(x, (*node.dims(), 2)))


@of_complex("real")
def real(node: AtenNode, z: Complex) -> Node:
    """Convert the real part."""
    return z.real


@of_complex("imag")
def imag(node: AtenNode, z: Complex) -> Node:
    """Convert the imaginary part."""
    return z.parts[1]


@of_complex("_to_copy", "to.dtype")
@of_complex("convert_element_type", domain="prims")
def to_copy(node: AtenNode, x: Value, *_kind: object, dtype: str = "") -> Complex | Node:
    """Convert a change of the element type; imaginary parts are lost in real numbers."""
    made = _numbers(x, node.dtype())
    is_complex = isinstance(node.result, torch.Tensor) and node.result.is_complex()
    return made if is_complex else made.real


# ---- signs, lengths, angles ----------------------------------------------------------------------


@of_complex("_conj", "conj", "_conj_copy", "_conj_physical", "conj_physical")
@of_complex("conj", "conj_physical", domain="prims")
def conjugate(node: AtenNode, z: Complex) -> Complex:
    """Convert the numbers with the other sign of the imaginary part."""
    return cn.conjugate(z)


@of_complex("resolve_conj", "resolve_neg", "positive")
def same(node: AtenNode, z: Complex) -> Complex:
    """Convert what changes how numbers lie in memory, not what they are."""
    return z


@aten("_conj_physical", "conj_physical", "resolve_conj", "resolve_neg", "positive")
def same_real(node: AtenNode, x: Node) -> Node:
    """Convert the same of real numbers."""
    return x


@of_complex("abs")
@of_complex("abs", domain="prims")
def magnitude(node: AtenNode, z: Complex) -> Node:
    """Convert the distance from 0."""
    return cn.magnitude(z)


@of_complex("angle")
def angle(node: AtenNode, z: Complex) -> Node:
    """Convert the angle, from -pi to pi."""
    if z.imag is None:
        return functions.angle(node, z.real)
    return converted(cn.angle(cn.wide(z)), node.dtype())


@of_complex("sgn")
def sign(node: AtenNode, z: Complex) -> Complex:
    """Convert the numbers of length 1 and of the same angle."""
    return _rounded(cn.sign(cn.wide(z)), node)


@aten("sgn")
def sign_of_reals(node: AtenNode, x: Node) -> Node:
    """Convert the signs of real numbers."""
    return x if node.dtype() == "bool" else ew.sign(x)


# ---- functions -----------------------------------------------------------------------------------

_FUNCTIONS: dict[str, Callable[[Complex], Complex]] = {
    "exp": cn.exp, "log": cn.log, "sqrt": cn.sqrt, "sin": cn.sin, "cos": cn.cos, "tan": cn.tan,
    "sinh": cn.sinh, "cosh": cn.cosh, "tanh": cn.tanh, "reciprocal": cn.reciprocal,
    "rsqrt": lambda z: cn.reciprocal(cn.sqrt(z)),
}  # fmt: skip


def _wider(dtype: str) -> str:
    """Return the type in which functions of several terms are computed."""
    return "float64" if dtype in ("float32", "float64") else "float32"


def _function(function: Callable[[Complex], Complex]) -> Callable[[AtenNode, Complex], Complex]:
    """Return a converter, which computes in a wider type: the parts are made of several terms."""

    def convert(node: AtenNode, z: Complex) -> Complex:
        return _rounded(function(cn.complex_of(z, _wider(node.dtype()))), node)

    return convert


for _name, _made in _FUNCTIONS.items():
    of_complex(_name)(_function(_made))
    of_complex(_name, domain="prims")(_function(_made))


# ---- arithmetic ----------------------------------------------------------------------------------


def _pair(node: AtenNode, a: Value, b: Value) -> tuple[Complex, Complex]:
    """Return two operands in the type of the result's parts, halves wider."""
    kind = node.dtype()
    return cn.wide(_numbers(a, kind)), cn.wide(_numbers(b, kind))


def _with_alpha(node: AtenNode, a: Value, b: Value, alpha: complex, is_plus: bool) -> Complex:
    left, right = _pair(node, a, b)
    if alpha != 1:
        right = cn.multiply(right, _numbers(alpha, right.dtype))
    return _rounded((cn.add if is_plus else cn.subtract)(left, right), node)


@of_complex("add.Tensor", "add.Scalar")
def add(node: AtenNode, a: Value, b: Value, alpha: complex = 1) -> Complex:
    """Convert a + alpha * b."""
    return _with_alpha(node, a, b, alpha, is_plus=True)


@of_complex("sub.Tensor", "sub.Scalar")
def sub(node: AtenNode, a: Value, b: Value, alpha: complex = 1) -> Complex:
    """Convert a - alpha * b."""
    return _with_alpha(node, a, b, alpha, is_plus=False)


@of_complex("rsub.Tensor", "rsub.Scalar")
def rsub(node: AtenNode, a: Value, b: Value, alpha: complex = 1) -> Complex:
    """Convert b - alpha * a."""
    return _with_alpha(node, b, a, alpha, is_plus=False)


@of_complex("mul.Tensor", "mul.Scalar")
def mul(node: AtenNode, a: Value, b: Value) -> Complex:
    """Convert a product."""
    return _rounded(cn.multiply(*_pair(node, a, b)), node)


@of_complex("div.Tensor", "div.Scalar")
def div(node: AtenNode, a: Value, b: Value) -> Complex:
    """Convert a quotient."""
    return _rounded(cn.divide(*_pair(node, a, b)), node)


for _name, _convert in {"add": add, "sub": sub, "mul": mul, "div": div}.items():
    of_complex(f"{_name}.Tensor" if _name != "div" else _name, domain="prims")(_convert)


@of_complex("addcmul", "addcdiv")
def scaled_and_added(node: AtenNode, x: Value, a: Value, b: Value, value: complex = 1) -> Complex:
    """Convert x + value * a * b, or x + value * a / b."""
    left, right = _pair(node, a, b)
    if value != 1:
        left = cn.multiply(left, _numbers(value, left.dtype))
    combine = cn.multiply if node.op.startswith("aten.addcmul") else cn.divide
    return _rounded(cn.add(cn.wide(_numbers(x, node.dtype())), combine(left, right)), node)


_MOST_FACTORS = 16
"""Whole powers up to this one are products."""


@of_complex("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
@of_complex("pow.Tensor_Tensor", domain="prims")
def power(node: AtenNode, a: Value, b: Value) -> Complex:
    """Convert a power; small whole ones are products."""
    is_whole = isinstance(b, (int, float)) and b == int(b) and 0 < abs(b) <= _MOST_FACTORS
    kind = node.dtype()
    base = _numbers(a, kind)
    if is_whole:
        assert isinstance(b, (int, float))
        return _rounded(cn.whole_power(cn.wide(base), int(b)), node)
    wide = _wider(kind)
    made = cn.power(cn.complex_of(base, wide), cn.complex_of(_numbers(b, kind), wide))
    return _rounded(made, node)


# ---- comparisons and tests -----------------------------------------------------------------------


def _part_type(*values: Value) -> str:
    """Return the type that parts are compared in."""
    kinds = [v.dtype if isinstance(v, Complex) else _real_type(v) for v in values]
    floats = [k for k in kinds if k and dt.is_float(k)]
    return max(floats, key=dt.bits, default="float32")


def _real_type(value: Value) -> str:
    return element_type(value) if isinstance(value, Node) else ""


@of_complex("eq.Tensor", "eq.Scalar")
@of_complex("eq", domain="prims")
def eq(node: AtenNode, a: Value, b: Value) -> Node:
    """Convert whether both parts are equal."""
    kind = _part_type(a, b)
    return cn.equal(_numbers(a, kind), _numbers(b, kind))


@of_complex("ne.Tensor", "ne.Scalar")
@of_complex("ne", domain="prims")
def ne(node: AtenNode, a: Value, b: Value) -> Node:
    """Convert whether one part or the other differs."""
    return ew.not_(eq(node, a, b))


@of_complex("isnan")
def isnan(node: AtenNode, z: Complex) -> Node:
    """Convert whether a part is no number."""
    return cn.is_any(ew.isnan, z)


@of_complex("isinf")
def isinf(node: AtenNode, z: Complex) -> Node:
    """Convert whether a part is infinite."""
    return cn.is_any(ew.isinf, z)


@of_complex("isfinite")
@of_complex("isfinite", domain="prims")
def isfinite(node: AtenNode, z: Complex) -> Node:
    """Convert whether both parts are finite."""
    return ew.not_(cn.is_any(lambda part: ew.logical_or(ew.isnan(part), ew.isinf(part)), z))


def truth(value: Complex | Node) -> Node:
    """Return whether numbers are other than 0."""
    if isinstance(value, Node):
        return converted(value, "bool")
    return cn.is_any(lambda part: converted(part, "bool"), value)


@of_complex("logical_not")
def logical_not(node: AtenNode, z: Complex) -> Node:
    """Convert the test for zero."""
    return ew.not_(truth(z))


for _name, _combine in elementwise.LOGIC.items():
    of_complex(f"logical_{_name}")(
        lambda node, a, b, combine=_combine: combine(*operands(truth(a), truth(b)))
    )


@of_complex("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
def any_or_all(node: AtenNode, z: Complex, dim: Axes = None, keepdim: bool = False) -> Node:
    """Convert whether any number, or every one, is other than 0."""
    pick = reduce.largest if node.op.startswith("aten.any") else reduce.smallest
    return converted(pick(truth(z), node.axes(dim, z.real), keepdim), node.dtype())


# ---- reductions ----------------------------------------------------------------------------------


@of_complex("prod", "prod.dim_int")
def prod(
    node: AtenNode, z: Complex, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Complex:
    """Convert a product along an axis, or of all numbers."""
    data = cn.wide(_numbers(z, node.dtype()))
    axis = 0
    if dim is None or not dims_of(z.real):
        data = data.mapped(lambda part: reshaped(part, (product_of(dims_of(part)),)))
    else:
        (axis,) = node.axes(dim, z.real)
    (extent,) = known_sizes(dims_of(data.real)[axis : axis + 1], "an axis of complex factors")
    made = cn.product_along(data, axis, extent)
    return _rounded(made.mapped(lambda part: reshaped(part, node.dims())), node)


@of_complex("var.correction", "std.correction", "var_mean.correction")
def variance(
    node: AtenNode,
    z: Complex,
    dim: Axes = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Node | list[Node | Complex]:
    """Convert the variance: that of both parts together."""
    axes = node.axes(dim, z.real)
    means = z.mapped(lambda part: reduce.mean(part, axes, True))
    centred = cn.subtract(z, means)
    squares = [reduce.sum_of_squares(part, axes, keepdim) for part in centred.nodes]
    total = squares[0] if len(squares) == 1 else ew.add(*squares)
    count = count_less(z.real, axes, 1 if correction is None else correction)
    made = ew.divide(total, count)
    if node.op.startswith("aten.std"):
        return ew.sqrt(made)
    if node.op.startswith("aten.var."):
        return made
    return [made, z.mapped(lambda part: reduce.mean(part, axes, keepdim))]


# ---- products of matrices ------------------------------------------------------------------------


def _product(a: Complex, b: Complex) -> Complex:
    """Return a product of matrices: of real and imaginary parts with each other."""
    return cn.multiply(a, b, product)


def _factors(*values: Complex | Node) -> list[Complex]:
    return [cn.wide(v if isinstance(v, Complex) else Complex(v)) for v in values]


@of_complex("mm", "bmm", "matmul", "mv", "dot")
def matrix_product(node: AtenNode, a: Factor, b: Factor) -> Complex:
    """Convert a product of matrices, stacks of them, or vectors."""
    return _rounded(_product(*_factors(a, b)), node)


@of_complex("linear")
def linear(node: AtenNode, x: Factor, weights: Factor, bias: Factor | None = None) -> Complex:
    """Convert x W' + b."""
    rows, matrix = _factors(x, weights)
    made = _product(rows, matrix.mapped(lambda part: transposed(part, (1, 0))))
    if bias is not None:
        made = cn.add(made, *_factors(bias))
    return _rounded(made, node)


@of_complex("addmm", "baddbmm", "addmv")
def addmm(
    node: AtenNode, c: Factor, a: Factor, b: Factor, beta: complex = 1, alpha: complex = 1
) -> Complex:
    """Convert beta * c + alpha * a b."""
    added, left, right = _factors(c, a, b)
    made = _product(left, right)
    if alpha != 1:
        made = cn.multiply(made, _numbers(alpha, made.dtype))
    if beta == 0:
        return _rounded(made, node)
    scaled = added if beta == 1 else cn.multiply(added, _numbers(beta, added.dtype))
    return _rounded(cn.add(scaled, made), node)
