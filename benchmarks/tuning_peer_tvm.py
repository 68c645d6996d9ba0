# SPDX-License-Identifier: Apache-2.0
"""TVM's side of `python -m benchmarks.tuning peer`: a process in an environment of its own.

It imports nothing of this project. Requests are lines of JSON on standard input, answers such lines
on standard output: `tune` a task, `time` its best schedule, `run` it on an input.

Weights are marked as free in their layout, as TVM's importers mark constants: MetaSchedule rewrites
them, and as in its own measurements the rewriting is no part of the time. Results come from the
same schedule with the rewriting inside.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir import transform

_TIMEOUT = 120.0
"""Seconds for a build or a measurement: its processes start anew, also on a busy machine."""


def computation(task: dict[str, Any]) -> Any:
    """Return a task as a TIR function of an input, weights and the result."""
    x = te.placeholder(task["input"], name="x")
    w = te.placeholder(task["weights"], name="w")
    attrs = {"layout_free_placeholders": [w]}
    if task["kind"] == "matmul":
        k = te.reduce_axis((0, task["weights"][0]), name="k")
        shape = (task["input"][0], task["weights"][1])
        y = te.compute(shape, lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y", attrs=attrs)
        return te.create_prim_func([x, w, y])
    pad = task["pad"]
    n, c, height, width = task["input"]
    filters, _, rows, columns = task["weights"]
    padded = x
    if pad:
        padded = te.compute(
            (n, c, height + 2 * pad, width + 2 * pad),
            lambda b, i, p, q: te.if_then_else(
                te.all(p >= pad, p < height + pad, q >= pad, q < width + pad),
                x[b, i, p - pad, q - pad],
                0.0,
            ),
            name="padded",
        )
    i, p, q = (te.reduce_axis((0, d), name=f"r{d}_{k}") for k, d in enumerate((c, rows, columns)))
    y = te.compute(
        (n, filters, height, width),
        lambda b, f, r, s: te.sum(padded[b, i, r + p, s + q] * w[f, i, p, q], axis=[i, p, q]),
        name="y",
        attrs=attrs,
    )
    return te.create_prim_func([x, w, y])


class Tuned:
    """The best schedule of a task."""

    def __init__(self, task: dict[str, Any], cpu: str, threads: int, trials: int) -> None:
        target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})
        module = tvm.IRModule({"main": computation(task)})
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            database = ms.tir_integration.tune_tir(
                module,
                target,
                folder,
                max_trials_global=trials,
                num_trials_per_iter=16,
                builder=ms.builder.LocalBuilder(max_workers=threads, timeout_sec=_TIMEOUT),
                runner=ms.runner.LocalRunner(timeout_sec=_TIMEOUT),
                seed=0,
            )
            self.wall = time.monotonic() - start
            record = database.query_tuning_record(module, target, "main")
            self.best = min(float(s) for s in record.run_secs)
            schedule = ms.tir_integration.compile_tir(database, module, target)
        self._whole = tvm.compile(schedule.mod, target)
        bare = transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
        function = bare["main"]
        self._shapes = [[int(d) for d in function.buffer_map[p].shape] for p in function.params]
        self._kernel = tvm.compile(bare, target)
        self._arguments: list[Any] = []

    def run(self, path: Path) -> None:
        """Compute the result of the inputs in a file into a file beside it."""
        with np.load(path) as data:
            x, w, y = data["x"], data["w"], np.zeros_like(data["y"])
        arguments = [tvm.runtime.tensor(a) for a in (x, w, y)]
        self._whole(*arguments)
        np.save(path.with_suffix(".tvm.npy"), arguments[2].numpy())
        flat = [x, w, y]
        self._arguments = [
            tvm.runtime.tensor(a.reshape(s)) for a, s in zip(flat, self._shapes, strict=True)
        ]

    def time(self, number: int) -> float:
        """Return the seconds of a call, the mean of some."""
        module = getattr(self._kernel, "mod", self._kernel)
        timer = module.time_evaluator("main", tvm.cpu(), number=number, repeat=1)
        return float(timer(*self._arguments).results[0])


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what TVM prints is no answer
    tuned: Tuned | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, object] = {}
        if request["do"] == "tune":
            tuned = Tuned(request["task"], request["cpu"], request["threads"], request["trials"])
            answer = {"wall": tuned.wall, "best": tuned.best}
        elif tuned is not None and request["do"] == "run":
            tuned.run(Path(request["path"]))
        elif tuned is not None:
            answer = {"seconds": tuned.time(request["number"])}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
