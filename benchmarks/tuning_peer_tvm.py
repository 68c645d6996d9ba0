# SPDX-License-Identifier: Apache-2.0
"""The other side of `tuning_peer.py`: TVM's MetaSchedule, run by a Python that has TVM.

    python tuning_peer_tvm.py CPU THREADS FOLDER

Requests are lines of JSON on standard input, answers lines on standard output. Nothing of Treadle
is imported.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms

BUILD_SECONDS = 180.0
"""With TVM's own limit of 30 s most candidates fail where two cores build many at a time."""


def computation(request: dict[str, object], x: np.ndarray, w: np.ndarray) -> tvm.tir.PrimFunc:
    """Return the task as TVM's own operators give it."""
    data, weights = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    if request["kind"] == "dense":
        made = topi.nn.matmul(data, weights)
    else:
        made = topi.nn.conv2d_nchw(data, weights, stride=1, padding=request["pad"], dilation=1)
    return te.create_prim_func([data, weights, made])


class Server:
    """The tasks that were tuned here, ready to be timed."""

    def __init__(self, cpu: str, threads: int, folder: Path) -> None:
        self.target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})
        self.threads, self.folder = threads, folder
        self.timers: dict[str, Callable[[], float]] = {}

    def tune(self, request: dict[str, object]) -> dict[str, object]:
        """Tune a task; keep its best kernel, and write its result to a file."""
        name = str(request["name"])
        arrays = np.load(self.folder / f"{name}.npz")
        x, w = arrays["x"], arrays["w"]
        place = self.folder / f"tvm-{name}"
        start = time.monotonic()
        database = ms.tir_integration.tune_tir(
            mod=computation(request, x, w),
            target=self.target,
            work_dir=str(place),
            max_trials_global=int(str(request["trials"])),
            num_trials_per_iter=16,
            builder=ms.builder.LocalBuilder(max_workers=os.cpu_count(), timeout_sec=BUILD_SECONDS),
            runner=ms.runner.LocalRunner(timeout_sec=60.0),
            seed=0,
        )
        schedule = ms.tir_integration.compile_tir(database, computation(request, x, w), self.target)
        seconds = time.monotonic() - start
        if schedule is None:
            return {"error": "no candidate was built and measured"}
        built = tvm.compile(schedule.mod, target=self.target)
        device = tvm.cpu()
        shape = tuple(
            int(d) for d in schedule.mod["main"].buffer_map[schedule.mod["main"].params[2]].shape
        )
        arguments = [tvm.runtime.tensor(a, device) for a in (x, w)]
        arguments.append(tvm.runtime.tensor(np.zeros(shape, np.float32), device))
        built["main"](*arguments)
        result = self.folder / f"tvm-{name}.npy"
        np.save(result, arguments[2].numpy())
        evaluator = built.time_evaluator("main", device, number=1, repeat=1, min_repeat_ms=50)
        self.timers[name] = lambda: evaluator(*arguments).min
        return {
            "error": "",
            "seconds": seconds,
            "trials": len(database.get_all_tuning_records()),
            "result": str(result),
        }

    def time(self, request: dict[str, object]) -> dict[str, object]:
        """Time the best kernel of a task once."""
        return {"seconds": self.timers[str(request["name"])]()}

    def hello(self, request: dict[str, object]) -> dict[str, object]:
        """Say which TVM this is."""
        return {"version": tvm.__version__}


def end_with_parent(parent: int) -> None:
    """End this process group when whoever asks is gone, even in the midst of tuning."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Answer requests until there are no more."""
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    answers = os.dup(1)
    os.dup2(2, 1)  # what TVM prints is no answer
    server = Server(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    verbs = {"tune": server.tune, "time": server.time, "hello": server.hello}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = verbs[request["do"]](request)
        except Exception as error:  # said to the other side, which prints it
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        os.write(answers, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main()
