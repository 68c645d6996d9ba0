# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic of generated code: it wraps, divides both ways and shifts by any width."""

from __future__ import annotations

import numpy as np
import pytest

from tests.target.elements import INTS, LANES, apply, pairs, same, samples, wrapped
from tests.target.kernel import flat, native
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Var
from treadle.loop.nodes import For, PrimFunc, Store
from treadle.target.backend import backend_of


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


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_what_a_division_of_places_gives_is_one_term(dtype: str) -> None:
    """LLVM would else look for sums that addresses of a loop share, exponentially many."""
    x, out = flat("x", dtype, 64), flat("out", dtype, 64)
    i = Var("i", dtype)
    place = ex.cast(i // 8 * 8 + i % 8, "int64")
    body = For(i, Const.of(64, dtype), "serial", Store(out, (place,), ex.load(x, [place])))
    text = backend_of(native()).emit(PrimFunc("k", (x, out), (), body), native())
    assert text.count('asm ""') == (2 if dtype == "int64" else 0)
