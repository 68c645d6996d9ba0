# SPDX-License-Identifier: Apache-2.0
"""Templates as users of AutoTVM write them, and one whose choices go wrong in every way."""

from __future__ import annotations

import time
from typing import Any

from treadle import autotvm, te
from treadle.autotvm.measure import MeasureOption
from treadle.autotvm.task import Task

QUICK = autotvm.LocalRunner(number=1, repeat=2, cooldown_interval=0)


def option(
    runner: autotvm.LocalRunner | autotvm.RPCRunner = QUICK, **builder: Any
) -> MeasureOption:
    return autotvm.measure_option(autotvm.LocalBuilder(n_parallel=1, **builder), runner)


@autotvm.template("tests/matmul")
def product(n: int, l: int, m: int, dtype: str) -> Any:  # noqa: E741  # v0.8's own name
    """The template of v0.8's tutorial."""
    A = te.placeholder((n, l), name="A", dtype=dtype)
    B = te.placeholder((l, m), name="B", dtype=dtype)
    k = te.reduce_axis((0, l), name="k")
    C: Any = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis  # type: ignore[union-attr]
    (k,) = s[C].op.reduce_axis  # type: ignore[union-attr]
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.define_reorder("order", [y, x, k], "all")
    cfg.define_annotate("inner", [x], policy="try_vec")
    cfg.define_knob("unroll", [0, 1])
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)
    cfg["order"].apply(s, C, [yo, xo, k])
    s[C].reorder(k, yi, xi)
    cfg["inner"].apply(s, C, [xi], axis_lens=[cfg["tile_x"].size[-1]], vec_size=[4, 8, 16], cfg=cfg)
    if cfg["unroll"].val:
        s[C].unroll(yi)
    return s, [A, B, C]


WAYS = ("right", "wrong", "invalid", "thread")


@autotvm.template("tests/ways")
def ways(size: int) -> Any:
    """Doubles numbers in a way that may be wrong, or none at all."""
    cfg = autotvm.get_config()
    cfg.define_knob("way", WAYS)
    cfg.define_knob("unroll", [0, 1])
    cfg.add_flop(1000)
    way = cfg["way"].val
    x = te.placeholder((size,), name="x")
    factor = 3.0 if way == "wrong" else 2.0
    y: Any = te.compute((size,), lambda i: x[i] * factor, name="y")
    s = te.create_schedule(y.op)
    (i,) = s[y].op.axis  # type: ignore[union-attr]
    outer, inner = s[y].split(i, factor=4)
    if cfg["unroll"].val:
        s[y].unroll(inner)
    if way == "invalid":
        cfg.raise_error("this way is none")
    if way == "thread":
        s[y].bind(outer, te.thread_axis("threadIdx.x"))
    return s, [x, y]


def matmul_task(size: int = 16) -> Task:
    return autotvm.task.create("tests/matmul", args=(size, size, size, "float32"), target="llvm")


def ways_task() -> Task:
    return autotvm.task.create("tests/ways", args=(16,), target="llvm")


class Seen:
    """A callback that keeps what it is told."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.results: list[Any] = []

    def __call__(self, tuner: object, inputs: Any, results: Any) -> None:
        self.inputs += inputs
        self.results += results

    @property
    def configs(self) -> list[str]:
        return [str(inp.config.entities) for inp in self.inputs]


def slow_link(library: str, objects: list[str]) -> None:
    """Never writes a library in time."""
    time.sleep(60)
