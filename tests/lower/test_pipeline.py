# SPDX-License-Identifier: Apache-2.0
"""Every pass of the lists keeps what GPU kernels mean: threads, shared memory and barriers."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
from tests import loop_threads
from tests.loop.test_threads import product
from treadle.expr.nodes import int_value
from treadle.loop.nodes import PrimFunc, func_text, verify
from treadle.lower.pipeline import LOWER, SOURCE
from treadle.passes import Pipeline

SIZE, TILE, THREADS, STEP = 6, 4, 2, 3

FETCH = """\
                    for k.outer in range(4):
                        barrier()
                        A.shared: float32[128] = alloc(shared)
                        B.shared: float32[128] = alloc(shared)
                        for ax0.inner in range(2):
                            A.shared[(((i.inner.outer * 16) + (ax0.inner * 8)) + j.inner.outer)] \
= A[(((((i.outer * 512) + (i.inner.outer * 64)) + (ax0.inner * 32)) + (k.outer * 8)) \
+ j.inner.outer)]
"""
"""How a block of threads fetches its tile of A: each thread two elements of it."""


def check(func: PrimFunc) -> None:
    """Run a matrix product with all of its threads."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, SIZE, SIZE)).astype("float32")
    c = np.full((SIZE, SIZE), np.nan, "float32")
    shapes = [tuple(int_value(d) or 0 for d in p.shape) for p in func.params]
    arrays = [x.reshape(shape) for x, shape in zip((a, b, c), shapes, strict=True)]
    loop_threads.run(func, arrays)
    np.testing.assert_allclose(arrays[2].reshape(SIZE, SIZE), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("passes", [LOWER, SOURCE], ids=["instructions", "source"])
def test_every_pass_keeps_threads_shared_memory_and_barriers(passes: Pipeline[PrimFunc]) -> None:
    func = treadle.lower(*product(SIZE, tile=TILE, threads=THREADS, step=STEP))
    check(func)
    for step in passes.passes:
        func = step.run(func)
        verify(func)
        check(func)


def test_source_text_is_printed_from_flat_loops_over_threads() -> None:
    func = SOURCE.run(treadle.lower(*product(32, tile=16, threads=8, step=8)))
    assert FETCH in func_text(func)
