# SPDX-License-Identifier: Apache-2.0
"""Small workloads, as users of TVM v0.8 write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle import auto_scheduler, te
from treadle.te.operations import Tensor

TARGET = "llvm"
QUICK = auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0.2)


@auto_scheduler.register_workload
def matmul_add(n: int, m: int, k: int, dtype: str = "float32") -> list[Tensor]:
    """A product and an addition: the workload of v0.8's tutorial."""
    a = te.placeholder((n, k), name="A", dtype=dtype)
    b = te.placeholder((k, m), name="B", dtype=dtype)
    c = te.placeholder((n, m), name="C", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")
    product = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="matmul")
    out = te.compute((n, m), lambda i, j: product[i, j] + c[i, j], name="out")
    return [a, b, c, out]


@auto_scheduler.register_workload("padded_window")
def window(n: int, channels: int) -> list[Tensor]:
    """A convolution with a padding."""
    x = te.placeholder((n, n, channels), name="x")
    w = te.placeholder((3, 3, channels, 16), name="w")
    pad = te.compute(
        (n + 2, n + 2, channels),
        lambda i, j, c: te.if_then_else(
            te.all(i >= 1, i <= n, j >= 1, j <= n), x[i - 1, j - 1, c], 0.0
        ),
        name="pad",
    )
    u, v, c = (te.reduce_axis((0, e), name=s) for e, s in ((3, "u"), (3, "v"), (channels, "c")))
    y = te.compute(
        (n, n, 16),
        lambda i, j, o: te.sum(pad[i + u, j + v, c] * w[u, v, c, o], axis=[u, v, c]),
        name="y",
    )
    return [x, w, y]


@auto_scheduler.register_workload
def row_softmax(n: int, m: int) -> list[Tensor]:
    """Reductions of rows."""
    x = te.placeholder((n, m), name="x")
    k, r = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="r")
    most = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="most")
    each = te.compute((n, m), lambda i, j: te.exp(x[i, j] - most[i]), name="each")
    total = te.compute((n,), lambda i: te.sum(each[i, r], axis=r), name="total")
    return [x, te.compute((n, m), lambda i, j: each[i, j] / total[i], name="out")]


def task_of(function: Callable[..., Any], *args: object) -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(func=function, args=args, target=TARGET)


def options(log: object, trials: int, **more: Any) -> auto_scheduler.TuningOptions:
    return auto_scheduler.TuningOptions(
        num_measure_trials=trials,
        verbose=more.pop("verbose", 0),
        builder=auto_scheduler.LocalBuilder(n_parallel=2),
        runner=QUICK,
        measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
        **more,
    )
