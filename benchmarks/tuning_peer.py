# SPDX-License-Identifier: Apache-2.0
"""Three tasks tuned here and by TVM's MetaSchedule: `python -m benchmarks.tuning peer PYTHON`.

TVM runs in a process of another environment (`tuning_peer_tvm.py`): `pip install
apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post0 xgboost psutil cloudpickle`; of the versions
of apache-tvm-ffi that pip allows, 0.1.15 crashes in TuneContext. Both sides have the same CPU, as
many threads and trials, float32 inputs in the same layout (NCHW, rows) and constant weights whose
layout is theirs to choose. Results are compared before times are; times are medians of the same
rounds, in which both run one after the other. Here a time is that of all kernels of the task, those
that change layouts included; wall time is that of the whole search with its builds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.build.executable import Executable
from treadle.runtime import native
from treadle.target.host import host
from treadle.tune.model import tune_model
from treadle.tune.runner import MeasureOptions
from treadle.tune.tuner import TuneOptions

_ROUNDS = 31
_SECONDS = 0.02
"""How long each side runs in a round."""

TASKS: Mapping[str, dict[str, Any]] = {
    "conv3x3 of ResNet-50": {
        "kind": "conv", "input": [1, 64, 56, 56], "weights": [64, 64, 3, 3], "pad": 1,
    },
    "conv1x1 of ResNet-50": {
        "kind": "conv", "input": [1, 1024, 14, 14], "weights": [256, 1024, 1, 1], "pad": 0,
    },
    "matmul of BERT": {"kind": "matmul", "input": [128, 768], "weights": [768, 3072]},
}  # fmt: skip


class Peer:
    """The process of the other environment."""

    def __init__(self, python: Path, threads: int) -> None:
        script = Path(__file__).with_name("tuning_peer_tvm.py")
        environment = {**os.environ, "TVM_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [python, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )

    def ask(self, **request: object) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the peer ended with exit code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def model_of(task: Mapping[str, Any], weights: np.ndarray) -> bytes:
    """Return a task as an ONNX model with constant weights."""
    if task["kind"] == "matmul":
        node, shape = helper.make_node("MatMul", ["x", "w"], ["y"]), [*task["input"]]
        shape[-1] = task["weights"][1]
    else:
        node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[task["pad"]] * 4)
        shape = [*task["input"]]
        shape[1] = task["weights"][0]
    ends = [("x", task["input"]), ("y", shape)]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends)
    graph = helper.make_graph([node], "task", [x], [y], [numpy_helper.from_array(weights, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return bytes(made.SerializeToString())


def peer(arguments: argparse.Namespace) -> None:
    """Tune on both sides and print what each has found, and in which time."""
    threads = native.num_threads()
    for name, task in TASKS.items():
        if name.startswith(arguments.only):
            other = Peer(arguments.python, threads)
            try:
                _compare(name, task, other, threads, arguments.trials)
            finally:
                other.close()


def _compare(name: str, task: dict[str, Any], other: Peer, threads: int, trials: int) -> None:
    random = np.random.default_rng(0)
    x, weights = (random.standard_normal(task[k], np.float32) for k in ("input", "weights"))
    model = model_of(task, weights)
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records.jsonl"
        start = time.monotonic()
        options = TuneOptions(trials=trials, measure=MeasureOptions(threads=threads))
        tune_model(model, records, options=options)
        wall = time.monotonic() - start
        tuned = treadle.compile(model, records=records)
        (result,) = (np.asarray(y) for y in tuned.run({"x": x}))
        answer = other.ask(do="tune", task=task, cpu=host().cpu, threads=threads, trials=trials)
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, x=x, w=weights, y=result)
        other.ask(do="run", path=str(inputs))
        theirs = np.load(inputs.with_suffix(".tvm.npy"))
    scale = float(np.abs(result).max())
    error = float(np.abs(result - theirs).max()) / scale
    assert error < 1e-4, f"the results differ by {error:.1e} of the largest"
    own, their = _times(tuned, x, other)
    print(f"{name}: {trials} trials, {threads} threads, results agree within {error:.0e}")
    print(f"    Treadle       {own * 1e6:9.1f} us   wall {wall:6.0f} s")
    print(f"    MetaSchedule  {their * 1e6:9.1f} us   wall {answer['wall']:6.0f} s")
    print(f"    Treadle is {their / own:.2f} times as fast, and tunes in "
          f"{wall / answer['wall']:.2f} of the time", flush=True)  # fmt: skip


def _times(tuned: Executable, x: np.ndarray, other: Peer) -> tuple[float, float]:
    """Return the seconds of a call on both sides: medians over rounds in which both run."""
    inputs = {"x": treadle.array(x)}
    calls = [
        max(1, round(_SECONDS / max(_own(tuned, inputs, 3), 1e-7))),
        max(1, round(_SECONDS / max(other.ask(do="time", number=3)["seconds"], 1e-7))),
    ]
    figures: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        figures[0].append(_own(tuned, inputs, calls[0]))
        figures[1].append(other.ask(do="time", number=calls[1])["seconds"])
    own, their = (float(np.median(f)) for f in figures)
    return own, their


def _own(tuned: Executable, inputs: Mapping[str, Any], calls: int) -> float:
    """Return the seconds of a run: whole runs, all kernels and what is between them."""
    start = time.perf_counter()
    for _ in range(calls):
        tuned.run(inputs)
    return (time.perf_counter() - start) / calls
