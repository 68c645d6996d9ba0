# SPDX-License-Identifier: Apache-2.0
"""Converters of special functions, which are all computed in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from treadle.frontend.builders import bessel, error_functions, gamma
from treadle.frontend.builders.arithmetic import minus, times
from treadle.frontend.builders.basic import broadcast, converted, operands
from treadle.frontend.torch.node import AtenNode, ConvertFn, Operand, aten, operand, prims
from treadle.graph.nodes import Node
from treadle.ops import iterated

Unary = Callable[[Node], Node]

_I0 = partial(bessel.bessel_i, 0, scaled=False)
_I1 = partial(bessel.bessel_i, 1, scaled=False)
_I0E = partial(bessel.bessel_i, 0, scaled=True)
_I1E = partial(bessel.bessel_i, 1, scaled=True)

_FUNCTIONS: dict[str, Unary] = {
    "lgamma": gamma.log_gamma, "digamma": gamma.digamma,
    "erfinv": error_functions.erfinv, "special_ndtri": error_functions.ndtri,
    "special_erfcx": error_functions.erfcx, "special_log_ndtr": error_functions.log_ndtr,
    "i0": _I0, "special_i1": _I1, "special_i0e": _I0E, "special_i1e": _I1E,
    "special_bessel_j0": partial(bessel.bessel_j, 0),
    "special_bessel_j1": partial(bessel.bessel_j, 1),
    "special_bessel_y0": partial(bessel.bessel_y, 0),
    "special_bessel_y1": partial(bessel.bessel_y, 1),
    "special_modified_bessel_i0": _I0, "special_modified_bessel_i1": _I1,
    "special_modified_bessel_k0": partial(bessel.bessel_k, 0, scaled=False),
    "special_modified_bessel_k1": partial(bessel.bessel_k, 1, scaled=False),
    "special_scaled_modified_bessel_k0": partial(bessel.bessel_k, 0, scaled=True),
    "special_scaled_modified_bessel_k1": partial(bessel.bessel_k, 1, scaled=True),
    "special_spherical_bessel_j0": bessel.spherical_j0, "special_airy_ai": bessel.airy_ai,
}  # fmt: skip
"""Functions of one real number."""

_PRIMITIVES = {
    "lgamma": "lgamma", "digamma": "digamma", "erf_inv": "erfinv", "ndtri": "special_ndtri",
    "erfcx": "special_erfcx", "bessel_i0": "i0", "bessel_i1": "special_i1",
    "bessel_i0e": "special_i0e", "bessel_i1e": "special_i1e", "bessel_j0": "special_bessel_j0",
    "bessel_j1": "special_bessel_j1", "spherical_bessel_j0": "special_spherical_bessel_j0",
}  # fmt: skip
"""Primitives of torch that are these functions."""


def _rounded(node: AtenNode, x: Node, function: Unary) -> Node:
    given = converted(converted(x, node.dtype()), "float64")
    return converted(function(given), node.dtype())


def _real(function: Unary) -> ConvertFn:
    return lambda node, x: _rounded(node, x, function)


for _name, _function in _FUNCTIONS.items():
    aten(_name)(_real(_function))
for _name, _same in _PRIMITIVES.items():
    prims(_name)(_real(_FUNCTIONS[_same]))


@aten("polygamma")
def polygamma(node: AtenNode, n: int, x: Node) -> Node:
    """Convert a derivative of the logarithm of the gamma function."""
    return _rounded(node, x, partial(gamma.polygamma, n))


def _pair(node: AtenNode, a: Operand, b: Operand) -> tuple[Node, Node]:
    """Return two operands as float64, of one shape."""
    kind = node.dtype()
    both = operands(*(converted(operand(v, kind), "float64") for v in (a, b)))
    left, right = (broadcast(v, node.dims()) for v in both)
    return left, right


@aten("special_zeta")
@prims("zeta")
def zeta(node: AtenNode, s: Operand, q: Operand) -> Node:
    """Convert the Hurwitz zeta function."""
    return converted(gamma.zeta(*_pair(node, s, q)), node.dtype())


@aten("igamma", "igammac")
@prims("igamma", "igammac")
def incomplete_gamma(node: AtenNode, a: Operand, x: Operand) -> Node:
    """Convert the share of the gamma function up to a number, or from it on."""
    is_upper = node.op.split(".")[1] == "igammac"
    return converted(gamma.incomplete(*_pair(node, a, x), upper=is_upper), node.dtype())


@aten("gcd")
@prims("gcd")
def gcd(node: AtenNode, a: Node, b: Node) -> Node:
    """Convert the greatest common divisor."""
    left, right = operands(converted(a, node.dtype()), converted(b, node.dtype()))
    return iterated.gcd(broadcast(left, node.dims()), broadcast(right, node.dims()))


def _polynomial(kind: str, *, is_shifted: bool) -> ConvertFn:
    def convert(node: AtenNode, x: Operand, n: Operand) -> Node:
        place, degree = _pair(node, x, n)
        if is_shifted:
            place = minus(times(place, 2.0), 1.0)
        made = iterated.orthogonal_polynomial(place, degree, kind=kind)
        return converted(made, node.dtype())

    return convert


for _kind in iterated.POLYNOMIALS:
    _family, _, _letter = _kind.partition("_")
    for _prefix in ("", "shifted_") if _family == "chebyshev" else ("",):
        _op = f"special_{_prefix}{_family}_polynomial_{_letter}"
        aten(_op, f"{_op}.x_scalar", f"{_op}.n_scalar")(
            _polynomial(_kind, is_shifted=bool(_prefix))
        )
