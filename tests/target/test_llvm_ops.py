# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of generated code against NumPy: each operation, dtype and vector width."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.target.kernel import flat, run
from treadle import te
from treadle.build.kernel import Kernel, Scheduled
from treadle.dtype import is_float, is_signed, to_numpy
from treadle.errors import InternalError
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop.nodes import For, PrimFunc, Store
from treadle.target.base import Target
from treadle.target.host import why_not_here
from treadle.target.llvm_ir import emit
from treadle.target.parse import parse_target

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LANES = (1, 4, 5, 16)


def apply(
    op: Callable[..., Expr],
    *arrays: np.ndarray,
    lanes: int = 1,
    target: Target | None = None,
) -> np.ndarray:
    """Return op of the arrays, element by element, computed by a kernel with that many lanes."""
    size = -(-arrays[0].size // lanes) * lanes
    inputs = [np.resize(a, size) for a in arrays]
    sources = [flat(f"x{k}", str(a.dtype), size) for k, a in enumerate(arrays)]
    i = Var("i")
    index: Expr = i if lanes == 1 else ex.ramp(i * lanes, 1, lanes)
    value = op(*(ex.load(s, [index]) for s in sources))
    out = flat("out", value.dtype, size)
    body = For(i, Const.of(size // lanes), "serial", Store(out, (index,), value))
    result = np.zeros(size, to_numpy(value.dtype))
    run(PrimFunc("k", (*sources, out), (), body), [*inputs, result], target=target)
    return result[: arrays[0].size]


def samples(dtype: str) -> np.ndarray:
    """Return values worth trying: zeros, ones, extremes, odd fractions, NaN and infinities."""
    if is_float(dtype):
        values = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.49, -7.75, 100.25, 1e-3, 6e4, -6e4]
        values += [np.inf, -np.inf, np.nan, 5e-7, 2.0**-130, 65520.0, 1e30]
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(to_numpy(dtype))
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 5, 7, 100, info.max, info.max - 1, info.min, info.min + 1]
    values += [-1, -2, -3, -5, -7, -100] if is_signed(dtype) else [info.max // 2, 127, 128]
    return np.array(values, dtype)


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    x = samples(dtype)
    a, b = np.meshgrid(x, x)
    return a.ravel().copy(), b.ravel().copy()


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    if is_float(str(got.dtype)):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        got, want = got[~np.isnan(got)], want[~np.isnan(want)]
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "min", "max"])
def test_float_binary(op: str, dtype: str, lanes: int) -> None:
    a, b = pairs(dtype)
    reference = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
        "min": np.minimum, "max": np.maximum,
    }[op]  # fmt: skip
    with np.errstate(all="ignore"):
        want = reference(a, b)
    same(apply(lambda x, y: ex.binary(op, x, y), a, b, lanes=lanes), want)  # type: ignore[arg-type]


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("op", ["min", "max"])
def test_float_extreme_of_a_constant_keeps_nan(op: str, first: bool, lanes: int) -> None:
    x = samples("float32")
    limit = ex.convert(2.0, "float32")

    def value(e: Expr) -> Expr:
        return ex.binary(op, limit, e) if first else ex.binary(op, e, limit)  # type: ignore[arg-type]

    reference = np.minimum if op == "min" else np.maximum
    same(apply(value, x, lanes=lanes), reference(x, np.float32(2.0)))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor"])
def test_int_binary_wraps(op: str, dtype: str, lanes: int) -> None:
    a, b = pairs(dtype)
    reference = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum,
        "max": np.maximum, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
        "bitxor": np.bitwise_xor,
    }[op]  # fmt: skip
    want = reference(a, b)
    same(apply(lambda x, y: ex.binary(op, x, y), a, b, lanes=lanes), want)  # type: ignore[arg-type]


def divide(op: str, a: int, b: int) -> int:
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return {
        "floordiv": a // b, "floormod": a % b, "truncdiv": quotient, "truncmod": a - quotient * b,
    }[op]  # fmt: skip


def wrapped(values: list[int], dtype: str) -> np.ndarray:
    size = np.dtype(dtype).itemsize * 8
    return np.array([v & ((1 << size) - 1) for v in values], f"uint{size}").astype(dtype)


@pytest.mark.parametrize("lanes", [1, 5, 16])
@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod"])
def test_division_of_negatives(op: str, dtype: str, lanes: int) -> None:
    a, b = pairs(dtype)
    a, b = a[b != 0], b[b != 0]
    want = wrapped([divide(op, int(x), int(y)) for x, y in zip(a, b, strict=True)], dtype)
    same(apply(lambda x, y: ex.binary(op, x, y), a, b, lanes=lanes), want)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", [1, 2, 3, 8, 100, -1, -4, -7])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod"])
def test_division_by_a_constant(op: str, dtype: str, by: int) -> None:
    a = samples(dtype)
    want = wrapped([divide(op, int(x), by) for x in a], dtype)
    for lanes in (1, 8):
        same(apply(lambda x: ex.binary(op, x, by), a, lanes=lanes), want)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "uint64"])
@pytest.mark.parametrize("op", ["shl", "shr"])
def test_shifts_by_too_much_leave_only_the_sign(op: str, dtype: str) -> None:
    width = np.dtype(dtype).itemsize * 8
    a = np.repeat(samples(dtype), 5)
    b = np.resize(np.array([0, 1, width - 1, width, width + 3], dtype), a.size)
    want = [
        int(x) << int(n) if op == "shl" else int(x) >> int(n) for x, n in zip(a, b, strict=True)
    ]
    for lanes in (1, 8):
        got = apply(lambda x, y: ex.binary(op, x, y), a, b, lanes=lanes)  # type: ignore[arg-type]
        same(got, wrapped(want, dtype))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8", "bool"])
@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_compare(op: str, dtype: str, lanes: int) -> None:
    a, b = pairs("uint8") if dtype == "bool" else pairs(dtype)
    a, b = (a % 2 == 1, b % 2 == 1) if dtype == "bool" else (a, b)
    reference = {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
        "gt": np.greater, "ge": np.greater_equal,
    }[op]  # fmt: skip
    with np.errstate(invalid="ignore"):
        want = reference(a, b)
    same(apply(lambda x, y: ex.binary(op, x, y), a, b, lanes=lanes), want)  # type: ignore[arg-type]


@pytest.mark.parametrize("lanes", [1, 8])
def test_logic(lanes: int) -> None:
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    same(apply(lambda x, y: ex.binary("and", x, y), a, b, lanes=lanes), a & b)
    same(apply(lambda x, y: ex.binary("or", x, y), a, b, lanes=lanes), a | b)
    same(apply(lambda x: ex.call("not", x), a, lanes=lanes), ~a)


def cast_reference(x: np.ndarray, target: str) -> np.ndarray:
    if target == "bool":
        return x != 0
    if is_float(str(x.dtype)) and not is_float(target):
        info = np.iinfo(target)
        exact = [0 if np.isnan(v) else v for v in x.astype(np.float64)]
        return np.array([max(info.min, min(info.max, _whole(v))) for v in exact], target)
    with np.errstate(all="ignore"):
        if target in ("float16", "bfloat16") and not is_float(str(x.dtype)):
            return x.astype(np.float32).astype(to_numpy(target))
        return x.astype(to_numpy(target))


def _whole(value: float) -> int:
    return int(np.copysign(2**70, value)) if np.isinf(value) else int(value)


@pytest.mark.parametrize("lanes", [1, 5, 16])
@pytest.mark.parametrize("target", [*FLOATS, *INTS, "bool"])
@pytest.mark.parametrize("source", [*FLOATS, "int8", "uint8", "int32", "int64", "uint64", "bool"])
def test_cast(source: str, target: str, lanes: int) -> None:
    x = np.array([True, False]) if source == "bool" else samples(source)
    if source == target:
        pytest.skip("no conversion")
    same(apply(lambda e: ex.cast(e, target), x, lanes=lanes), cast_reference(x, target))


@pytest.mark.parametrize("target", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("bounds", [(-128.0, 127.0), (0.0, 255.0), (-3.0, 300.0)])
def test_cast_after_clamping(target: str, bounds: tuple[float, float]) -> None:
    x = samples("float32")

    def value(e: Expr) -> Expr:
        return ex.cast(ex.minimum(ex.maximum(e, bounds[0]), bounds[1]), target)

    want = cast_reference(np.minimum(np.maximum(x, np.float32(bounds[0])), bounds[1]), target)
    for lanes in (1, 16):
        same(apply(value, x, lanes=lanes), want)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["sqrt", "floor", "ceil", "trunc", "round", "abs"])
def test_float_call(name: str, dtype: str, lanes: int) -> None:
    x = samples(dtype)
    reference = {"round": np.rint}.get(name, getattr(np, name))
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64)).astype(to_numpy(dtype))
    got = apply(lambda e: ex.call(name, e), x, lanes=lanes)
    same(got, want)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(x)], np.signbit(want)[~np.isnan(x)])


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_without_an_instruction(name: str, dtype: str) -> None:
    baseline = parse_target("llvm -mcpu=x86-64 -num-cores=1")
    rng = np.random.default_rng(3)
    x = np.concatenate([samples(dtype), rng.normal(0, 1e3, 400), rng.normal(0, 1e8, 100)])
    x = np.concatenate([x, [0.49999997, -0.49999997, 0.5, -0.5, 4503599627370497.5]]).astype(dtype)
    reference = {"round": np.rint}.get(name, getattr(np, name))
    got = apply(lambda e: ex.call(name, e), x, lanes=4, target=baseline)
    same(got, reference(x))
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(x)], np.signbit(x)[~np.isnan(x)])


@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_every_float16_converts_alike_with_and_without_instructions(cpu: str, lanes: int) -> None:
    target = parse_target(f"llvm -mcpu={cpu} -num-cores=1")
    if why_not_here(target):
        pytest.skip(f"this machine is no {cpu}")
    halves = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    same(
        apply(lambda e: ex.cast(e, "float32"), halves, lanes=lanes, target=target),
        halves.astype(np.float32),
    )
    rng = np.random.default_rng(1)
    wide = rng.integers(0, 1 << 32, 40000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    finite = np.sort(halves[np.isfinite(halves)]).astype(np.float32)
    x = np.concatenate([wide, (finite[:-1] + finite[1:]) / 2])
    with np.errstate(all="ignore"):
        want = x.astype(np.float16)
    same(apply(lambda e: ex.cast(e, "float16"), x, lanes=lanes, target=target), want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_float64_narrows_with_one_rounding(dtype: str) -> None:
    # Just above a tie of the narrow type, by less than float32 can tell.
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-40, 1 - 2.0**-12 - 2.0**-45])
    digits = 10 if dtype == "float16" else 7
    step = 2.0 ** (np.floor(np.log2(x)) - digits)
    want = (np.rint(x / step) * step).astype(to_numpy(dtype))
    same(apply(lambda e: ex.cast(e, dtype), x), want)


def test_fma_rounds_once() -> None:
    a = np.array([1 + 2.0**-12, 3.0], np.float32)
    b = np.array([1 + 2.0**-12, 5.0], np.float32)
    c = np.array([-(1 + 2.0**-11), 2.0], np.float32)
    for lanes in (1, 8):
        got = apply(lambda x, y, z: ex.call("fma", x, y, z), a, b, c, lanes=lanes)
        same(got, np.array([2.0**-24, 17.0], np.float32))


def test_a_product_and_a_sum_are_not_fused() -> None:
    a = np.array([1 + 2.0**-12], np.float32)
    got = apply(lambda x, y: x * y - (1 + 2.0**-11), a, a, lanes=8)
    same(got, np.array([0.0], np.float32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_classes_and_signs(dtype: str) -> None:
    x, y = pairs(dtype)
    for lanes in (1, 8):
        same(apply(lambda e: ex.call("isnan", e), x, lanes=lanes), np.isnan(x))
        same(apply(lambda e: ex.call("isinf", e), x, lanes=lanes), np.isinf(x))
        same(apply(lambda e, f: ex.call("copysign", e, f), x, y, lanes=lanes), np.copysign(x, y))


@pytest.mark.parametrize("dtype", INTS)
def test_bit_counting_and_abs(dtype: str) -> None:
    x = samples(dtype)
    width = x.itemsize * 8
    bits = [int(v) & ((1 << width) - 1) for v in x]
    for lanes in (1, 8):
        same(
            apply(lambda e: ex.call("popcount", e), x, lanes=lanes),
            np.array([v.bit_count() for v in bits], dtype),
        )
        same(
            apply(lambda e: ex.call("clz", e), x, lanes=lanes),
            np.array([width - v.bit_length() for v in bits], dtype),
        )
        same(
            apply(lambda e: ex.call("abs", e), x, lanes=lanes),
            wrapped([abs(int(v)) for v in x], dtype),
        )


@pytest.mark.parametrize(
    ("source", "target"),
    [("float32", "int32"), ("uint32", "float32"), ("float16", "int16"), ("int16", "bfloat16"),
     ("float64", "uint64"), ("int8", "uint8")],
)  # fmt: skip
def test_bitcast(source: str, target: str) -> None:
    x = samples(source)
    for lanes in (1, 4):
        got = apply(lambda e: ex.call("bitcast", e, dtype=target), x, lanes=lanes)
        assert got.tobytes() == x.tobytes()


def test_unexpanded_functions_are_refused() -> None:
    x, out = flat("x", "float32", 4), flat("out", "float32", 4)
    zero = Const.of(0)
    body = Store(out, (zero,), ex.call("exp", ex.load(x, [zero])))
    with pytest.raises(InternalError, match="'exp' reaches code generation unexpanded"):
        emit(PrimFunc("k", (x, out), (), body), parse_target("llvm"))


@pytest.mark.parametrize("cpu", ["znver4", "haswell", "x86-64"])
def test_what_is_rounded_twice_calls_no_library(cpu: str) -> None:
    """float16(atanh(float32(x))) is computed in float64: two roundings, and no function for one."""
    target = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu} -num-cores=1")
    x = te.placeholder((3,), "float16", "x")
    y = te.compute((3,), lambda i: ex.cast(ex.call("atanh", ex.cast(x[i], "float32")), "float16"))
    kernel = Kernel(Scheduled(te.create_schedule(y.op), [x, y], "f"), target)
    called = re.findall(r"call[lq]?\s+([^\s*]+)", kernel.asm())
    assert not [name for name in called if name.startswith("__")]
