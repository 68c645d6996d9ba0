# SPDX-License-Identifier: Apache-2.0
"""The pass that writes transcendental intrinsics out as arithmetic, so that no target needs libm.

float32 has its own forms of the functions networks spend time in; the others are computed in
float64 with shorter polynomials and rounded once. float16 and bfloat16 go through float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from treadle.dtype import is_float, is_integer
from treadle.errors import TypeMismatch
from treadle.expr.nodes import Binary, Call, Expr, call, cast
from treadle.expr.references import Instruction
from treadle.expr.traversal import rewrite
from treadle.expr.vocabulary import HAS_CALL
from treadle.loop.nodes import PrimFunc, map_stmt
from treadle.lower.math.circular import (
    acos_f64,
    asin_f64,
    atan2_f64,
    atan_f64,
    cos_f64,
    sin_f64,
    tan_f64,
)
from treadle.lower.math.error_function import (
    erf_f32,
    erf_f64,
    gelu_by_lookup_f32,
    gelu_f32,
    normal_cdf_f32,
    normal_cdf_f64,
)
from treadle.lower.math.exponential import (
    cosh_f64,
    exp_f32,
    exp_f64,
    exp_weight_f32,
    expm1_f32,
    expm1_f64,
    sigmoid_divisor_by_lookup_f32,
    sigmoid_divisor_f32,
    sigmoid_f32,
    sigmoid_f64,
    sinh_f64,
    tanh_f32,
    tanh_f64,
)
from treadle.lower.math.logarithm import (
    acosh_f64,
    asinh_f64,
    atanh_f64,
    log1p_f32,
    log1p_f64,
    log2_f32,
    log2_f64,
    log_f32,
    log_f64,
    softplus_f32,
    softplus_f64,
)
from treadle.lower.math.power import (
    constant_of,
    fmod_float,
    pow_constant,
    pow_float,
    pow_integer,
)

_FLOAT32: Mapping[str, Callable[[Expr], Expr]] = {
    "exp": exp_f32,
    "exp_weight": exp_weight_f32,
    "log": log_f32,
    "log2": log2_f32,
    "log1p": log1p_f32,
    "expm1": expm1_f32,
    "softplus": softplus_f32,
    "erf": erf_f32,
    "normal_cdf": normal_cdf_f32,
    "sigmoid": sigmoid_f32,
    "tanh": tanh_f32,
}
"""Functions with a form of their own in float32."""

_UNARY: Mapping[str, Callable[[Expr, bool], Expr]] = {
    "exp": exp_f64,
    "exp_weight": exp_f64,
    "log": log_f64,
    "log2": log2_f64,
    "log1p": log1p_f64,
    "expm1": expm1_f64,
    "erf": erf_f64,
    "normal_cdf": normal_cdf_f64,
    "sin": sin_f64,
    "cos": cos_f64,
    "tan": tan_f64,
    "sinh": sinh_f64,
    "cosh": cosh_f64,
    "tanh": tanh_f64,
    "asin": asin_f64,
    "acos": acos_f64,
    "atan": atan_f64,
    "asinh": asinh_f64,
    "acosh": acosh_f64,
    "atanh": atanh_f64,
    "sigmoid": sigmoid_f64,
    "softplus": softplus_f64,
}
"""Functions of one float64; the flag asks only for what float32 can hold."""

_BINARY: Mapping[str, Callable[[Expr, Expr, bool], Expr]] = {
    "pow": pow_float,
    "atan2": atan2_f64,
    "fmod": fmod_float,
}
"""Functions of two float64."""

EXPANDED = frozenset({*_UNARY, *_BINARY, "rsqrt"})
"""The intrinsics that do not survive this pass."""


def expand_math(func: PrimFunc, *, lookups: Sequence[Instruction] = ()) -> PrimFunc:
    """Return the kernel with every intrinsic of EXPANDED written out.

    `lookups`: the instructions of the target that pick one of so many words by an index, such as
    `treadle.target.intrinsics.x86.vpermd_8`.

    exp(x)          ->  polynomial(x - n * ln(2)) * 2**n
    y * sigmoid(x)  ->  y / (1 + exp(-x))
    x * normal_cdf(x)  ->  max(x, 0) - abs(x) * normal_cdf(-abs(x))
    """
    memo: dict[Expr, Expr] = {}
    rule = _Expansion(lookups)

    def expanded(e: Expr) -> Expr:
        return rewrite(e, rule, memo, HAS_CALL)

    return func.with_body(map_stmt(func.body, expanded))


def expand_expr(e: Expr, *, lookups: Sequence[Instruction] = ()) -> Expr:
    """Return an expression with every intrinsic of EXPANDED written out."""
    return rewrite(e, _Expansion(lookups))


class _Expansion:
    """The rule of the pass; it knows the sigmoids and the normal distributions it has written out,
    by what they are of."""

    def __init__(self, lookups: Sequence[Instruction]) -> None:
        by_size = {len(found.argument_types) - 1: found for found in lookups}
        self.divisor: Callable[[Expr], Expr] = sigmoid_divisor_f32
        self.gelu: Callable[[Expr], Expr] = gelu_f32
        if 8 in by_size:
            self.divisor = partial(sigmoid_divisor_by_lookup_f32, lookup=by_size[8])
        if 16 in by_size:
            self.gelu = partial(gelu_by_lookup_f32, lookup=by_size[16])
        self.sigmoids: dict[Expr, Expr] = {}
        self.normals: dict[Expr, Expr] = {}

    def __call__(self, e: Expr) -> Expr | None:
        if isinstance(e, Binary) and e.op == "mul":
            made = self._product(e.a, e.b)
            return self._product(e.b, e.a) if made is None else made
        if not isinstance(e, Call) or e.name not in EXPANDED:
            return None
        made = _expanded(e)
        if e.dtype == "float32" and e.name in ("sigmoid", "normal_cdf"):
            known = self.sigmoids if e.name == "sigmoid" else self.normals
            known[made] = e.args[0]
        return made

    def _product(self, y: Expr, factor: Expr) -> Expr | None:
        if self.normals.get(factor) is y:
            return self.gelu(y)
        x = self.sigmoids.get(factor)
        return None if x is None else y / self.divisor(x)


def _expanded(e: Call) -> Expr:
    x = e.args[0]
    if is_float(x.dtype):
        return _expand_float(e.name, e.args)
    if is_integer(x.dtype) and e.name == "pow":
        return pow_integer(x, e.args[1])
    raise TypeMismatch(f"{e.name} of {x.dtype} values is not defined: {e}")


def _expand_float(name: str, args: tuple[Expr, ...]) -> Expr:
    dtype = args[0].dtype
    if dtype in ("float16", "bfloat16"):
        wide = _expand_float(name, tuple(cast(a, "float32") for a in args))
        return cast(wide, dtype)
    if name == "rsqrt":
        return 1.0 / call("sqrt", args[0])
    if name == "pow":
        special = _constant_power(args[0], args[1])
        if special is not None:
            return special
    if dtype == "float32":
        if name in _FLOAT32:
            return _FLOAT32[name](args[0])
        args = tuple(cast(a, "float64") for a in args)
    return cast(_in_float64(name, args, dtype == "float32"), dtype)


def _in_float64(name: str, args: tuple[Expr, ...], lite: bool) -> Expr:
    if name in _UNARY:
        return _UNARY[name](args[0], lite)
    return _BINARY[name](args[0], args[1], lite)


def _constant_power(x: Expr, y: Expr) -> Expr | None:
    exponent = constant_of(y)
    return None if exponent is None else pow_constant(x, float(exponent))
