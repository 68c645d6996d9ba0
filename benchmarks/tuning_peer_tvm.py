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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms

BUILD_SECONDS = 180.0
"""With TVM's own limit of 30 s most candidates fail where two cores build many at a time."""
ROUND = 16
"""Candidates that are built and measured together; TVM's own choice is 64."""
FINALISTS, ROUNDS = 3, 5


def computation(request: dict[str, Any], x: np.ndarray, w: np.ndarray) -> tvm.tirx.PrimFunc:
    """Return the task as TVM's own operators give it."""
    data, weights = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w")
    if request["kind"] == "dense":
        made = topi.nn.matmul(data, weights)
    else:
        made = topi.nn.conv2d_nchw(data, weights, stride=1, padding=request["pad"], dilation=1)
    return te.create_prim_func([data, weights, made])


def fields_of_session() -> Iterator[list[str]]:
    """Give what Linux says of each process of this session, from its state on."""
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == os.getsid(0):
            yield fields


def processor_seconds() -> float:
    """Return the processor time of this session's processes, those that have ended included."""
    ticks = sum(int(f) for fields in fields_of_session() for f in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


class Server:
    """The tasks that are tuned here, round by round, and then timed.

    What was measured stays in the folder: another process goes on after the last whole round.
    """

    def __init__(self, cpu: str, threads: int, folder: Path) -> None:
        self.target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})
        self.threads, self.folder = threads, folder
        self.timers: dict[str, Callable[[], float]] = {}
        self.models: dict[str, ms.cost_model.XGBModel] = {}

    def _function(self, request: dict[str, Any]) -> tvm.tirx.PrimFunc:
        arrays = np.load(self.folder / f"{request['name']}.npz")
        return computation(request, arrays["x"], arrays["w"])

    def _place(self, request: dict[str, Any]) -> Path:
        return self.folder / f"tvm-{request['name']}"

    def tune(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measure the candidates of one round; say what it took."""
        place, name = self._place(request), str(request["name"])
        start, spent = time.monotonic(), processor_seconds()
        ms.tir_integration.tune_tir(
            mod=self._function(request),
            target=self.target,
            work_dir=str(place),
            max_trials_global=int(str(request["trials"])),
            num_trials_per_iter=ROUND,
            cost_model=self._model(name, place / "model.tar"),
            builder=ms.builder.LocalBuilder(max_workers=os.cpu_count(), timeout_sec=BUILD_SECONDS),
            runner=ms.runner.LocalRunner(timeout_sec=60.0),
            seed=int(str(request["seed"])),
        )
        if self.models[name].booster is not None:
            self.models[name].save(str(place / "model.tar"))
        seconds, used = time.monotonic() - start, processor_seconds() - spent
        return {"error": "", "seconds": seconds, "processor": used}

    def _model(self, name: str, saved: Path) -> ms.cost_model.XGBModel:
        """Return what has learned from the task's rounds."""
        if name not in self.models:
            self.models[name] = ms.cost_model.XGBModel()
            if saved.exists():
                self.models[name].load(str(saved))
        return self.models[name]

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the best kernel of a task ready to be timed, and write its result to a file.

        The best records are timed once more, in turns: the one that was fastest in a single
        measurement need not be.
        """
        name, function = str(request["name"]), self._function(request)
        database = ms.database.create("json", work_dir=str(self._place(request)))
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        records = database.get_top_k(database.commit_workload(module), FINALISTS)
        if not records:
            return {"error": "no candidate was built and measured"}
        arguments = self._arguments(request)
        timers = [self._timer(module, record, arguments) for record in records]
        figures = np.asarray([[timer() for timer in timers] for _ in range(ROUNDS)])
        self.timers[name] = timers[int(np.argmin(np.median(figures, axis=0)))]
        self.timers[name]()
        result = self.folder / f"tvm-{name}.npy"
        np.save(result, arguments[-1].numpy())
        measured = len(database.get_all_tuning_records())
        return {"error": "", "result": str(result), "trials": measured}

    def _arguments(self, request: dict[str, Any]) -> list[tvm.runtime.Tensor]:
        """Return what a kernel is called with: data, weights, and room for the result."""
        arrays = np.load(self.folder / f"{request['name']}.npz")
        room = np.zeros(request["result"], np.float32)
        return [tvm.runtime.tensor(a, tvm.cpu()) for a in (arrays["x"], arrays["w"], room)]

    def _timer(
        self,
        module: tvm.IRModule,
        record: ms.database.TuningRecord,
        arguments: list[tvm.runtime.Tensor],
    ) -> Callable[[], float]:
        schedule = tvm.s_tir.Schedule(module)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        built = tvm.compile(schedule.mod, target=self.target)
        evaluator = built.jit().time_evaluator(
            "main", tvm.cpu(), number=1, repeat=1, min_repeat_ms=50
        )
        return lambda: float(evaluator(*arguments).min)

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time the best kernel of a task once."""
        return {"seconds": self.timers[str(request["name"])]()}

    def hello(self, request: dict[str, Any]) -> dict[str, Any]:
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
    verbs = {"tune": server.tune, "load": server.load, "time": server.time, "hello": server.hello}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = verbs[request["do"]](request)
        except Exception as error:  # said to the other side, which prints it
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        os.write(answers, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main()
