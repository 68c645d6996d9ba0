# SPDX-License-Identifier: Apache-2.0
"""Times attention alone, in several sizes, against what the machine allows and against peers.

    python -m benchmarks.attention [--only 1500,causal] [--threads 1] [--seconds 1] [--against REV]

All take turns in bursts of runs and the fastest burst counts: Treadle, Treadle of another revision,
and onnxruntime, OpenVINO and torch's scaled_dot_product_attention where they are installed. The
roofline is the time of all multiply-adds at the measured peak plus that of one exponential per
score, at the pace of a kernel that does nothing else with what lies in the nearest cache.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import treadle
from benchmarks.engines import Arrays, Run, open_onnxruntime, open_openvino
from benchmarks.measure import largest_error
from benchmarks.revisions import ROOT, checkout, compiled
from treadle.build.kernel import Kernel
from treadle.cli.peak import fma_gflops
from treadle.graph.nodes import Function, Var
from treadle.graph.types import TensorType
from treadle.ops.elementwise import exp
from treadle.target.parse import parse_target

_BURST_SECONDS = 4e-3
_LEAST_BURSTS = 7
_EXPONENTIALS = 2048


@dataclass(frozen=True, slots=True)
class Case:
    """Attention of `queries` to `keys` in each of `heads`, with vectors of `width` elements.

    `mask`: "keys" for one number added per key, "causal" for a triangle known beforehand.
    """

    heads: int
    queries: int
    keys: int
    width: int
    mask: str = ""

    def __str__(self) -> str:
        sizes = f"{self.heads}x{self.queries}x{self.keys}x{self.width}"
        return f"{sizes} {self.mask}".strip()

    @property
    def scores(self) -> int:
        """How many scores there are; a causal mask needs about half of them."""
        return self.heads * self.queries * self.keys

    @property
    def flops(self) -> int:
        """Operations of both products over all scores."""
        return 4 * self.scores * self.width


CASES = (
    Case(12, 64, 64, 64, "causal"),
    Case(12, 128, 128, 64),
    Case(12, 128, 128, 64, "keys"),
    Case(12, 197, 197, 64),
    Case(12, 512, 512, 64),
    Case(12, 512, 512, 64, "keys"),
    Case(12, 1024, 1024, 64, "causal"),
    Case(6, 1500, 1500, 64),
    Case(8, 4096, 4096, 40),
    Case(12, 1, 1024, 64),
)


def write(case: Case, path: Path) -> Path:
    """Write the attention of a case as an ONNX model; its inputs are q, k, v and perhaps mask."""
    shape = {"q": case.queries, "k": case.keys, "v": case.keys}
    given = [_float(n, 1, case.heads, rows, case.width) for n, rows in shape.items()]
    stored = [numpy_helper.from_array(np.array(case.width**-0.5, np.float32), "scale")]
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scaled"]),
    ]
    if case.mask:
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["masked"]))
    if case.mask == "keys":
        given.append(_float("mask", 1, 1, 1, case.keys))
    elif case.mask == "causal":
        stored.append(numpy_helper.from_array(_triangle(case), "mask"))
    last = "masked" if case.mask else "scaled"
    nodes += [
        helper.make_node("Softmax", [last], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    result = _float("y", 1, case.heads, case.queries, case.width)
    graph = helper.make_graph(nodes, "attention", given, [result], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


def _float(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _triangle(case: Case) -> NDArray[np.float32]:
    later = np.triu(np.ones((case.queries, case.keys), bool), 1 + case.keys - case.queries)
    return np.where(later, -np.inf, 0).astype(np.float32)[None, None]


def inputs_of(case: Case) -> Arrays:
    """Return seeded inputs; of a mask of keys every fifth is hidden."""
    rng = np.random.default_rng(0)
    rows = {"q": case.queries, "k": case.keys, "v": case.keys}
    made: Arrays = {
        name: _aligned(rng.standard_normal((1, case.heads, n, case.width)).astype(np.float32))
        for name, n in rows.items()
    }
    if case.mask == "keys":
        hidden = np.arange(case.keys) % 5 == 4
        made["mask"] = _aligned(np.where(hidden, -1e9, 0).astype(np.float32)[None, None, None])
    return made


def _aligned(value: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a copy at a multiple of 64 bytes: other inputs Treadle would copy in every run."""
    raw = np.empty(value.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    made = raw[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    made[...] = value
    return made


def open_torch(case: Case, inputs: Arrays, threads: int) -> Run:
    """Return a run of torch's fused attention on the same inputs."""
    import torch

    torch.set_num_threads(threads)
    q, k, v = (torch.from_numpy(inputs[name]) for name in "qkv")
    mask = torch.from_numpy(inputs["mask"]) if case.mask == "keys" else None

    def run() -> list[NDArray[np.generic]]:
        with torch.inference_mode():
            made = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=case.mask == "causal"
            )
        return [made.numpy()]

    return run


def engines_of(case: Case, folder: Path, other: Path | None, threads: int) -> dict[str, Run]:
    """Return a run of every engine that is installed."""
    model, inputs = write(case, folder / "attention.onnx"), inputs_of(case)
    places = {"treadle": ROOT} | ({} if other is None else {"before": other})
    runs: dict[str, Run] = {}
    for name, place in places.items():
        loaded = treadle.load(compiled(model, place, folder / f"{name}.tar"))
        loaded.executor.num_threads = threads
        runs[name] = lambda x=loaded: [np.asarray(o) for o in x.run(inputs)]  # type: ignore[misc]
    if importlib.util.find_spec("onnxruntime"):
        runs["onnxruntime"] = open_onnxruntime(model, inputs, threads)
    if importlib.util.find_spec("openvino"):
        runs["openvino"] = open_openvino(model, inputs, threads)
    if importlib.util.find_spec("torch"):
        runs["torch"] = open_torch(case, inputs, threads)
    return runs


def fastest(runs: dict[str, Run], seconds: float) -> dict[str, float]:
    """Return the seconds of a run in the fastest burst of each engine; the engines take turns."""
    counts = {name: max(1, int(_BURST_SECONDS / _spent(run, 1))) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times["treadle"]) < _LEAST_BURSTS:
        for name, run in runs.items():
            times[name].append(_spent(run, counts[name]) / counts[name])
    return {name: min(t) for name, t in times.items()}


def _spent(run: Run, count: int) -> float:
    run()
    start = time.perf_counter()
    for _ in range(count):
        run()
    return time.perf_counter() - start


def exponentials_per_second() -> float:
    """Return how many exponentials one core computes of what lies in its nearest cache."""
    x = Var("x", TensorType((_EXPONENTIALS,), "float32"))
    kernel = Kernel(Function((x,), exp(x), "exponentials"), parse_target("llvm -num-cores=1"))
    value = _aligned(-np.random.default_rng(0).random(_EXPONENTIALS).astype(np.float32))
    timed = kernel.time_evaluator(number=100, repeat=9)(value, _aligned(np.zeros_like(value)))
    return _EXPONENTIALS / min(timed.results)


def roofline_seconds(case: Case, threads: int, gflops: float, exponentials: float) -> float:
    """Return the time that arithmetic alone takes; half of it under a causal mask."""
    seconds = case.flops / (gflops * 1e9) + case.scores / (exponentials * threads)
    seen = (case.keys + 1) / (2 * case.keys) if case.mask == "causal" else 1.0
    return seen * seconds


def rows(
    cases: Sequence[Case], other: Path | None, threads: int, seconds: float
) -> Iterator[list[str]]:
    """Yield one row of the table after the other."""
    gflops, exponentials = fma_gflops(threads), exponentials_per_second()
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            runs = engines_of(case, Path(folder), other, threads)
            made = {name: [np.array(a) for a in run()] for name, run in runs.items()}
            errors = [largest_error(made["treadle"], made[n]) for n in runs if n != "treadle"]
            times = fastest(runs, seconds)
        ours = times.pop("treadle")
        share = roofline_seconds(case, threads, gflops, exponentials) / ours
        ratios = ", ".join(f"{name} {t / ours:.2f}" for name, t in times.items())
        yield [str(case), f"{ours * 1e6:.0f}", f"{share:.0%}", ratios, f"{max(errors):.0e}"]


def main() -> None:
    """Time the cases that the command line says and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention")
    parser.add_argument("--only", default="", help="parts of names, as in 1500,causal")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="per case")
    parser.add_argument("--against", help="another revision")
    arguments = parser.parse_args()
    os.environ["TREADLE_NUM_THREADS"] = str(arguments.threads)
    wanted = [w for w in arguments.only.split(",") if w]
    cases = [c for c in CASES if not wanted or any(w in str(c) for w in wanted)]
    table = Table("heads x queries x keys x width", "us", "of roofline", "others / ours", "error")
    with ExitStack() as stack:
        other = stack.enter_context(checkout(arguments.against)) if arguments.against else None
        for row in rows(cases, other, arguments.threads, arguments.seconds):
            table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
