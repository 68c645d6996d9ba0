# SPDX-License-Identifier: Apache-2.0
"""Vectors that fill no register move by a mask, and touch nothing behind their last lane."""

from __future__ import annotations

import numpy as np
import pytest

from tests.target.kernel import flat, run
from tests.targets import AVX2
from treadle.expr import nodes as ex
from treadle.expr.nodes import Const
from treadle.loop.nodes import Allocate, PrimFunc, Store, seq
from treadle.target.llvm_builder import Machine
from treadle.target.llvm_ir import emit
from treadle.target.parse import parse_target

BASE = Const.of(3)


def copy_kernel(lanes: int, dtype: str = "float32") -> PrimFunc:
    """Return y[3 + i] = x[3 + i] for `lanes` lanes at once."""
    x, y = flat("x", dtype, 40), flat("y", dtype, 40)
    at = ex.ramp(BASE, 1, lanes)
    return PrimFunc("f", (x, y), (), Store(y, (at,), ex.load(x, (at,))))


@pytest.mark.parametrize("lanes", [5, 7, 11, 15, 20, 31])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "bool"])
def test_odd_lanes_are_copied_and_nothing_else(lanes: int, dtype: str) -> None:
    x = (np.arange(40) % 7).astype(dtype)
    y = np.ones(40, dtype)
    run(copy_kernel(lanes, dtype), [x, y])
    expected = np.ones(40, dtype)
    expected[3 : 3 + lanes] = x[3 : 3 + lanes]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("target", "masked"),
    [("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", True),
     ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", True),
     ("llvm -mtriple=x86_64-linux-gnu -mcpu=nehalem", False),
     ("llvm -mtriple=aarch64-linux-gnu", False)],
)  # fmt: skip
def test_only_machines_with_masks_use_them(target: str, masked: bool) -> None:
    machine = parse_target(target)
    assert (Machine.of(machine).least_masked > 0) == masked
    assert ("masked.load" in emit(copy_kernel(15), machine)) == masked


@pytest.mark.parametrize("odd", [0, 1])
def test_every_second_element_of_a_local_buffer_is_two_whole_vectors(odd: int) -> None:
    x, t, y = flat("x", "float32", 32), flat("t", "float32", 32, "local"), flat("y", "float32", 16)
    zero = Const.of(0)
    body = seq(
        Store(t, (ex.ramp(zero, 1, 16),), ex.load(x, (ex.ramp(zero, 1, 16),))),
        Store(t, (ex.ramp(Const.of(16), 1, 16),), ex.load(x, (ex.ramp(Const.of(16), 1, 16),))),
        Store(y, (ex.ramp(zero, 1, 16),), ex.load(t, (ex.ramp(Const.of(odd), 2, 16),))),
    )
    func = PrimFunc("f", (x, y), (), Allocate(t, body))
    assert "gather" not in emit(func, AVX2)
    values, result = np.arange(32, dtype=np.float32), np.zeros(16, np.float32)
    run(func, [values, result])
    np.testing.assert_array_equal(result, values[odd::2])
