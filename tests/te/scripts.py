# SPDX-License-Identifier: Apache-2.0
"""What tests of schedules share: run a schedule on random data and compare with its meaning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import treadle
from tests import loop_eval, te_eval
from treadle import te
from treadle.build.te_build import BuiltModule
from treadle.dtype import is_float, to_numpy
from treadle.expr.nodes import int_value
from treadle.loop.from_schedule import schedule_to_func
from treadle.te.operations import PlaceholderOp, Tensor
from treadle.te.schedule import Schedule


def data(tensor: Tensor, seed: int = 0) -> np.ndarray:
    """Return small numbers for a tensor of known shape; sums of their products are exact."""
    shape = [int_value(d) for d in tensor.shape]
    assert None not in shape
    numbers = np.random.default_rng((seed, *tensor.name.encode()))
    integers = numbers.integers(-4, 5, shape)  # type: ignore[arg-type]
    halves = integers / 2 if is_float(tensor.dtype) else integers
    return np.asarray(halves, to_numpy(tensor.dtype))


def check(schedule: Schedule, args: Sequence[Tensor], *, rtol: float = 1e-5) -> BuiltModule:
    """Fail unless the schedule, interpreted and compiled, computes what its tensors mean.

    The meaning is that of the tensors as they were declared: `args` hold them.
    """
    inputs = [a for a in args if isinstance(a.op, PlaceholderOp)]
    outputs = [a for a in args if not isinstance(a.op, PlaceholderOp)]
    arrays = [data(a) for a in inputs]
    wanted = te_eval.evaluate(outputs, dict(zip(inputs, arrays, strict=True)))
    interpreted = [np.full(w.shape, 7, w.dtype) for w in wanted]
    loop_eval.run(schedule_to_func(schedule, args), [*arrays, *interpreted])
    module = treadle.build(schedule, args, name="kernel")
    compiled = [np.full(w.shape, 7, w.dtype) for w in wanted]
    module(*arrays, *compiled)
    for want, *found in zip(wanted, interpreted, compiled, strict=True):
        for made in found:
            np.testing.assert_allclose(made, want, rtol=rtol, atol=1e-6)
    return module


def matrix_product(m: int, n: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return A[m, k], B[k, n] and their product."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    assert isinstance(c, Tensor)
    return a, b, c
