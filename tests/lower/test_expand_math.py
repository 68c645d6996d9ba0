# SPDX-License-Identifier: Apache-2.0
"""Accuracy and edge cases of the elementary functions as the pass writes them out."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.lower.lanes import run
from treadle.errors import TypeMismatch
from treadle.expr.nodes import (
    Apply,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Var,
    broadcast,
    call,
    load,
    ramp,
)
from treadle.expr.traversal import walk
from treadle.expr.vocabulary import INTRINSICS
from treadle.loop.nodes import Buffer, PrimFunc, Store, shape_of, stmt_exprs, verify, walk_stmts
from treadle.lower.expand_math import EXPANDED, expand_expr, expand_math
from treadle.lower.math.blocks import nearest, root_of_two
from treadle.target.intrinsics.x86 import LOOKUPS
from treadle.te.intrinsics import Intrinsic


def applied(e: Expr) -> set[str]:
    """Return the names of the intrinsics in an expression."""
    return {n.instruction.name for n in walk(e) if isinstance(n, Apply)}


PRIMITIVES = frozenset(INTRINSICS) - EXPANDED
WIDE = np.longdouble
HAS_WIDE = np.finfo(WIDE).eps < 1e-18

_erf = np.frompyfunc(math.erf, 1, 1)

UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "log": np.log, "log2": np.log2, "log1p": np.log1p, "expm1": np.expm1,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": lambda x: _erf(x.astype(np.float64)).astype(np.float64).astype(x.dtype),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "pow": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
}
LIMIT = {
    "atan": 4.0,
    "tanh": 4.0,
    "asin": 4.0,
    "acos": 4.0,
    "sigmoid": 4.0,
    "softplus": 3.0,
    "fmod": 0.0,
}
"""Largest error in units of the last place, 2 unless listed."""
LIMIT_F64 = {**LIMIT, "erf": 3.0}  # the reference is off by up to 1 there

_CACHE: dict[tuple[object, ...], tuple[tuple[Var, ...], Expr]] = {}


def _expanded(name: str, dtype: str) -> tuple[tuple[Var, ...], Expr]:
    key = (name, dtype)
    if key not in _CACHE:
        args = tuple(Var(f"x{k}", dtype) for k in range(INTRINSICS[name]))
        _CACHE[key] = args, expand_expr(call(name, *args))
    return _CACHE[key]


def compute(name: str, *xs: np.ndarray, fused: bool = True) -> np.ndarray:
    """Return the function of arrays as expanded code computes it."""
    args, e = _expanded(name, xs[0].dtype.name)
    return run(e, dict(zip(args, xs, strict=True)), fused=fused)


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return the error in units of the last place of the exact value."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        size = np.maximum(np.frexp(np.abs(exact))[1] - 1, info.minexp)
        unit = np.ldexp(np.ones_like(exact), size - info.nmant)
        error = np.abs(got.astype(exact.dtype) - exact) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(exact))
    error = np.where(same & ~np.isfinite(error), 0.0, error.astype(np.float64))
    return np.where(np.isnan(error), np.inf, error)


def _grid(dtype: str, name: str) -> np.ndarray:
    chance = np.random.default_rng(7)
    n = 4000
    words = chance.integers(0, 1 << 32, n, dtype=np.uint32)
    with np.errstate(all="ignore"):
        bits = words.view(np.float32).astype(np.float64)
    if dtype == "float64":
        bits = np.concatenate([bits, np.exp(chance.uniform(-700, 700, n))])
    parts = [
        bits[np.abs(bits) <= 1e5] if name in ("sin", "cos", "tan") else bits,
        chance.uniform(-1, 1, n),
        chance.uniform(-5, 5, n),
        chance.uniform(0.5, 1.6, n),
        chance.uniform(-110, 110, n),
        chance.uniform(-1e5, 1e5, n),
        chance.uniform(-750, 750, n if dtype == "float64" else 0),
        np.exp(chance.uniform(-30, 11, n)),
        np.linspace(-10, 10, 2001),
    ]
    with np.errstate(all="ignore"):
        return np.concatenate(parts).astype(dtype)


def _reference(function: Callable[..., np.ndarray], *xs: np.ndarray) -> np.ndarray:
    wide = np.float64 if xs[0].dtype == np.float32 else WIDE
    with np.errstate(all="ignore"):
        return function(*(x.astype(wide) for x in xs))


def _check(
    name: str, got: np.ndarray, exact: np.ndarray, *xs: np.ndarray, fused: bool = True
) -> None:
    limits = LIMIT if got.dtype == np.float32 else LIMIT_F64
    error = ulps(got, exact)
    if name == "sigmoid":  # at the far left an absolute error
        tail = np.abs(got.astype(exact.dtype) - exact) < np.finfo(got.dtype).tiny * 4
        steps = 1 / 40 if fused else 1.0  # what multiples of ln 2 err by
        with np.errstate(invalid="ignore"):
            error = np.where(tail, 0.0, error / (1 + steps * np.fmin(np.abs(xs[0]), 90) / 4))
    worst = int(np.argmax(error))
    at = ", ".join(repr(x[worst]) for x in xs)
    assert error[worst] <= limits.get(name, 2.0), (
        f"{name}({at}) = {got[worst]!r}, exactly {exact[worst]!r}: {error[worst]:.2f} ulp"
    )


needs_wide = pytest.mark.skipif(not HAS_WIDE, reason="long double is no wider than double here")
DTYPES = ["float32", pytest.param("float64", marks=needs_wide)]


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "two-roundings"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_are_accurate(name: str, dtype: str, fused: bool) -> None:
    x = _grid(dtype, name)
    _check(name, compute(name, x, fused=fused), _reference(UNARY[name], x), x, fused=fused)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "two-roundings"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_are_accurate(name: str, dtype: str, fused: bool) -> None:
    chance = np.random.default_rng(8)
    n = 3000
    pairs = [
        (chance.uniform(0, 10, n), chance.uniform(-30, 30, n)),
        (chance.uniform(0.9, 1.1, n), chance.uniform(-500, 500, n)),
        (chance.uniform(-10, 10, n), np.round(chance.uniform(-20, 20, n))),
        (np.exp(chance.uniform(-40, 40, n)), chance.uniform(-1, 1, n)),
        (1 + chance.uniform(-1e-6, 1e-6, n), chance.uniform(-5e7, 5e7, n)),
        (chance.uniform(-100, 100, n), chance.uniform(-100, 100, n)),
    ]
    x, y = (np.concatenate(parts).astype(dtype) for parts in zip(*pairs, strict=True))
    got = compute(name, x, y, fused=fused)
    _check(name, got, _reference(BINARY[name], x, y), x, y)


SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, -2.5, math.inf, -math.inf,
    math.nan, 1e10, -1e10, 1e-40, -1e-40, 3e38, -3e38, 16777217.0, 7.0, -7.0, 1.0000001, 0.9999999,
    1e-45, 88.72283, 88.7229, -103.97, -104.0, -87.4, 710.0, -746.0,
]  # fmt: skip


def _same_kind(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """True where both are NaN, or infinite alike, or finite; with equal signs and zeros alike."""
    nan = np.isnan(got) & np.isnan(want)
    alike = (np.isinf(got) == np.isinf(want)) & (np.signbit(got) == np.signbit(want))
    return nan | (alike & ((got == 0) == (want == 0)) & ~np.isnan(got) & ~np.isnan(want))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_edge_cases(name: str, dtype: str) -> None:
    x = np.array(SPECIAL, dtype)
    if name in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) > 1e6) | np.isinf(x)]
    wide = np.float64 if dtype == "float32" else WIDE
    with np.errstate(all="ignore"):
        want = UNARY[name](x.astype(wide)).astype(dtype)
    got = compute(name, x)
    bad = ~_same_kind(got, want)
    if name == "sigmoid":  # below the normal numbers it may be zero
        bad &= want > np.finfo(dtype).tiny
    assert not bad.any(), list(zip(x[bad], got[bad], want[bad], strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_binary_edge_cases(name: str, dtype: str) -> None:
    x, y = (a.ravel() for a in np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype)))
    if name == "fmod" and dtype == "float64":  # quotients beyond 2**150 are not covered
        with np.errstate(all="ignore"):
            near = ~(np.abs(x / y) > 1e45) | np.isinf(x) | (y == 0)
        x, y = x[near], y[near]
    with np.errstate(all="ignore"):
        want = BINARY[name](x, y)
    got = compute(name, x, y)
    bad = ~_same_kind(got, want)
    assert not bad.any(), list(zip(x[bad], y[bad], got[bad], want[bad], strict=True))[:5]


def test_huge_quotients_of_float64_remainders_say_so() -> None:
    assert np.isnan(compute("fmod", np.array([1e300]), np.array([1e-10])))[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_huge_angles_stay_in_range(name: str, dtype: str) -> None:
    x = np.array([1e7, 1e10, 1e20, 3e38, -1e15], dtype)
    assert np.all(np.abs(compute(name, x)) <= 1.0)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "two-roundings"])
def test_sigmoid_never_decreases_and_has_exact_limits(fused: bool) -> None:
    for start in (0.0612, 0.34, 0.6931, 1.0, 2.0794, 5.0, 16.0, 88.0):
        steps = (np.float32(start).view(np.int32) + np.arange(-20_000, 20_000)).astype(np.int32)
        x = steps.view(np.float32)
        assert np.all(np.diff(compute("sigmoid", x, fused=fused)) >= 0)
        assert np.all(np.diff(compute("sigmoid", -x, fused=fused)) <= 0)
    x = np.array([-np.inf, -104, 20, np.inf], np.float32)
    assert compute("sigmoid", x, fused=fused).tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("lookups", [(), LOOKUPS[:1], LOOKUPS])
def test_a_product_with_a_sigmoid_is_one_division(lookups: tuple[Intrinsic, ...]) -> None:
    x, y = Var("x", "float32"), Var("y", "float32")
    e = expand_expr(y * call("sigmoid", x), lookups=lookups)
    assert isinstance(e, Binary)
    assert applied(e) == {f.name for f in lookups[:1]}
    assert e.op == "div"
    assert e.a is y
    values = np.linspace(-100, 100, 4001, dtype=np.float32)
    exact = values / (1 + np.exp(-values.astype(np.float64)))
    found = run(e, {x: values, y: values})
    np.testing.assert_allclose(found, exact, rtol=4e-7, atol=1e-35)
    ends = np.array([-3e38, 3e38, np.inf, np.nan, 0.0], np.float32)
    limits = np.array([-0.0, 3e38, np.inf, np.nan, 0.0], np.float32)
    np.testing.assert_array_equal(run(e, {x: ends, y: ends}), limits)
    inverse = expand_expr(y * (1.0 / x))
    assert isinstance(inverse, Binary)
    assert inverse.op == "mul"


def test_roots_of_two() -> None:
    k = np.arange(-1008, 1025)
    exact = np.append(2.0 ** (k[:-1] / 8.0), np.inf).astype(np.float32)
    x = Var("x", "float32")
    n, word = nearest(x, 1.0)
    np.testing.assert_array_equal(run(n, {x: k.astype(np.float32)}), k)
    np.testing.assert_array_equal(
        run(root_of_two(word, LOOKUPS[0]), {x: k.astype(np.float32)}), exact
    )


@pytest.mark.parametrize("lookups", [(), LOOKUPS])
def test_a_product_with_the_normal_distribution_takes_off_its_tail(
    lookups: tuple[Intrinsic, ...],
) -> None:
    x = Var("x", "float32")
    e = expand_expr(x * call("normal_cdf", x), lookups=lookups)
    assert applied(e) == {f.name for f in lookups[1:]}
    assert isinstance(e, Call if lookups else Binary)
    assert e.name == "fma" if isinstance(e, Call) else e.op == "sub"
    values = np.array([*np.linspace(-8, 8, 4001), -np.inf, np.inf, np.nan, 0.0, 1e30], np.float32)
    wide = values.astype(np.float64)
    share = np.frompyfunc(lambda v: math.erfc(-v * math.sqrt(0.5)) / 2, 1, 1)
    with np.errstate(invalid="ignore"):
        exact = wide * share(wide).astype(np.float64)
    np.testing.assert_allclose(run(e, {x: values}), exact, rtol=4e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_the_float32_result_rounded(dtype: str) -> None:
    x = Var("x", dtype)
    e = expand_expr(call("exp", x))
    assert isinstance(e, Cast)
    assert e.dtype == dtype
    assert e.value.dtype == "float32"
    values = np.linspace(-8, 8, 101, dtype=np.float32)
    if dtype == "float16":
        half = values.astype(np.float16)
        want = np.exp(half.astype(np.float64)).astype(np.float16)
        error = np.abs(run(e, {x: half}).astype(np.float32) - want.astype(np.float32))
        assert np.all(error <= np.spacing(want).astype(np.float32))


@pytest.mark.parametrize(
    ("exponent", "cost"), [(0.0, 0), (1.0, 0), (2.0, 1), (3.0, 2), (4.0, 2), (-1.0, 1)]
)
def test_easy_constant_powers_are_multiplications(exponent: float, cost: int) -> None:
    x = Var("x", "float32")
    e = expand_expr(call("pow", x, exponent))
    assert sum(isinstance(n, Binary) for n in walk(e)) == cost
    values = np.array([0.5, -3.0, 7.25, np.inf, -0.0, np.nan], np.float32)
    with np.errstate(all="ignore"):
        want = values.astype(np.float64) ** exponent
    assert np.all(ulps(run(e, {x: values}), want) <= 2)


@pytest.mark.parametrize("exponent", [0.5, -0.5, 1.5])
def test_powers_of_one_half_are_roots(exponent: float) -> None:
    x = Var("x", "float32")
    e = expand_expr(call("pow", x, broadcast(Const.of(exponent, "float32"), 1)))
    assert sum(isinstance(n, Call) and n.name == "sqrt" for n in walk(e)) == 1
    assert len(walk(e)) < 12
    values = np.array([4.0, 0.1, 3e30, 1e-40, 0.0, -0.0, np.inf, -np.inf, -1.0, np.nan], np.float32)
    with np.errstate(all="ignore"):
        want = np.power(values.astype(np.float64), np.full(values.shape, exponent))
        narrow = want.astype(np.float32)
    got = run(e, {x: values})
    assert np.all(ulps(got, want) <= 2)
    assert np.all(_same_kind(got, narrow)), (got, narrow)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
def test_integer_powers_wrap(dtype: str) -> None:
    x, y = Var("x", dtype), Var("y", dtype)
    bases = [0, 1, 2, 3, 5, 10, 127] + ([] if dtype[0] == "u" else [-1, -2, -7])
    exponents = [0, 1, 2, 3, 7, 13, 64, 100] + ([] if dtype[0] == "u" else [-1, -2, -3])
    e = expand_expr(call("pow", x, y))
    for base in bases:
        for exponent in exponents:
            at = {x: np.array([base], dtype), y: np.array([exponent], dtype)}
            exact = base**exponent if exponent >= 0 else math.trunc(1 / base) if base else 0
            if exponent < 0 and base == -1:
                exact = -1 if exponent % 2 else 1
            assert run(e, at)[0] == Const.of(exact, dtype).value, (base, exponent)
            if exponent >= 0:
                constant = expand_expr(call("pow", x, exponent))
                assert run(constant, at).ravel()[0] == Const.of(exact, dtype).value


def _kernel(value: Callable[[Expr], Expr], lanes: int) -> PrimFunc:
    source, target = (Buffer(n, "float32", shape_of(lanes)) for n in "ab")
    at = ramp(0, 1, lanes) if lanes > 1 else Const.of(0)
    body = Store(target, (at,), value(load(source, [at])))
    return PrimFunc("kernel", (source, target), (), body)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("name", sorted(EXPANDED))
def test_a_kernel_keeps_only_primitives_and_strict_selects(name: str, lanes: int) -> None:
    func = expand_math(_kernel(lambda x: call(name, *[x] * INTRINSICS[name]), lanes))
    verify(func)
    for stmt in walk_stmts(func.body):
        for e in stmt_exprs(stmt):
            for node in walk(e):
                assert not isinstance(node, Call) or node.name in PRIMITIVES, node
                assert not isinstance(node, Select) or not node.lazy, node
                inner = (Load, Broadcast, Const, Var)
                assert node.lanes in (1, lanes)
                assert node.lanes == lanes or isinstance(node, inner) or node.dtype != "float32"


def test_shared_functions_are_written_once() -> None:
    func = expand_math(_kernel(lambda x: call("exp", x) * call("exp", x), 8))
    assert isinstance(func.body, Store)
    product = func.body.value
    assert isinstance(product, Binary)
    assert product.a is product.b


def test_functions_of_integers_are_refused() -> None:
    with pytest.raises(TypeMismatch, match="exp of int32 values is not defined"):
        expand_expr(call("exp", Var("n", "int32")))


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "two-roundings"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_distribution_is_accurate_on_both_sides(dtype: str, fused: bool) -> None:
    x = np.linspace(-12, 12, 40001).astype(dtype)
    wide = np.frompyfunc(lambda v: math.erfc(-v * math.sqrt(0.5)) / 2, 1, 1)
    exact = wide(x.astype(np.float64)).astype(np.float64)
    error = np.abs(compute("normal_cdf", x, fused=fused) - exact)
    assert error.max() <= (1.2e-7 if dtype == "float32" else 3e-16)
    inside = (x >= -4) & (x <= 0)
    relative, bound = error[inside] / exact[inside], 5e-6 if dtype == "float32" else 1e-13
    assert relative.max() <= bound


def test_normal_distribution_has_exact_limits() -> None:
    x = np.array([-np.inf, -100, 0, 100, np.inf, np.nan], np.float32)
    for dtype in ("float32", "float64"):
        found = compute("normal_cdf", x.astype(dtype))
        assert found[:-1].tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]
        assert np.isnan(found[-1])


@pytest.mark.parametrize("fused", [True, False])
def test_weights_of_a_softmax_are_accurate(fused: bool) -> None:
    x = -np.concatenate([np.linspace(0, 1, 40001), np.linspace(1, 87, 40001)]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    error = np.abs(compute("exp_weight", x, fused=fused) - exact)
    assert error.max() <= 1.4e-7
    assert (error / exact).max() <= (4e-7 if fused else 5e-6)


def test_weights_of_a_softmax_have_exact_limits() -> None:
    x = np.array([0, -0.0, -88, -104, -1e9, -np.inf, np.nan], np.float32)
    for dtype in ("float32", "float64"):
        found = compute("exp_weight", x.astype(dtype))
        assert found[:2].tolist() == [1.0, 1.0]
        assert found[4:6].tolist() == [0.0, 0.0]
        assert np.isnan(found[6])
    assert compute("exp_weight", x)[2:6].tolist() == [0.0] * 4


def test_expanded_code_is_small() -> None:
    def size(name: str) -> int:
        return sum(not isinstance(n, (Const, Var)) for n in walk(_expanded(name, "float32")[1]))

    assert size("exp") <= 22
    assert size("exp_weight") <= 15
    assert size("sigmoid") <= 27
    assert size("tanh") <= 28
    assert size("log") <= 40
    assert size("erf") <= 45
    assert size("log1p") <= 50
    assert size("softplus") <= 45
    assert size("expm1") <= 30
    assert size("normal_cdf") <= 35
