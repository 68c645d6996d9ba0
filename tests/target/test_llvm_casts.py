# SPDX-License-Identifier: Apache-2.0
"""Conversions of generated code between every two element types, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.target.elements import FLOATS, INTS, apply, same, samples
from treadle.dtype import is_float, to_numpy
from treadle.expr import nodes as ex
from treadle.expr.nodes import Expr


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
