# SPDX-License-Identifier: Apache-2.0
"""Expressions computed element by element by a kernel, and values worth trying on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.target.kernel import flat, run
from treadle.dtype import is_float, is_signed, to_numpy
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const, Expr, Var
from treadle.loop.nodes import For, PrimFunc, Store
from treadle.target.base import Target

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


def wrapped(values: list[int], dtype: str) -> np.ndarray:
    size = np.dtype(dtype).itemsize * 8
    return np.array([v & ((1 << size) - 1) for v in values], f"uint{size}").astype(dtype)
