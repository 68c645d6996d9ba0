# SPDX-License-Identifier: Apache-2.0
"""16-bit floats of generated code: every one of them, with and without instructions for them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.target.elements import apply, same
from treadle import te
from treadle.build.kernel import Kernel, Scheduled
from treadle.dtype import to_numpy
from treadle.expr import nodes as ex
from treadle.target.host import why_not_here
from treadle.target.parse import parse_target


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


@pytest.mark.parametrize("cpu", ["znver4", "haswell", "x86-64"])
def test_what_is_rounded_twice_calls_no_library(cpu: str) -> None:
    """float16(atanh(float32(x))) is computed in float64: two roundings, and no function for one."""
    target = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu} -num-cores=1")
    x = te.placeholder((3,), "float16", "x")
    y = te.compute((3,), lambda i: ex.cast(ex.call("atanh", ex.cast(x[i], "float32")), "float16"))
    kernel = Kernel(Scheduled(te.create_schedule(y.op), [x, y], "f"), target)
    called = re.findall(r"call[lq]?\s+([^\s*]+)", kernel.asm())
    assert not [name for name in called if name.startswith("__")]
