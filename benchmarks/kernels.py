# SPDX-License-Identifier: Apache-2.0
"""Times single operators side by side: Treadle's kernels against onnxruntime, on one thread.

    python -m benchmarks.kernels [--only softmax,pool] [--seconds 0.5]

Both engines take turns in bursts of runs; the fastest burst counts, so that other work on the
machine disturbs little. Printed beside are GFLOP/s or GB/s of Treadle (bytes of inputs and
outputs, each counted once).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

_OPSET = 18
_BURST_SECONDS = 2e-3


@dataclass(frozen=True)
class Case:
    """One operator: its ONNX name, the shapes of its inputs, its attributes.

    `constants` are the positions of inputs that are weights (or given arrays); `flops` per run,
    0 where bytes are what counts.
    """

    name: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    attrs: Mapping[str, object] = field(default_factory=dict)
    constants: Mapping[int, np.ndarray | None] = field(default_factory=dict)
    flops: float = 0.0
    dtype: str = "float32"


def conv(name: str, x: tuple[int, ...], w: tuple[int, ...], **attrs: Any) -> Case:
    """A convolution of `x` with constant weights `w`; `attrs` as ONNX has them."""
    strides = attrs.get("strides", [1] * (len(x) - 2))
    pads = attrs.get("pads", [0] * 2 * (len(x) - 2))
    n = len(x) - 2
    out = [(x[2 + k] + pads[k] + pads[n + k] - w[2 + k]) // strides[k] + 1 for k in range(n)]
    flops = 2.0 * x[0] * w[0] * np.prod(out) * np.prod(w[1:])
    return Case(name, "Conv", (x, w), attrs, {1: None}, float(flops))


def gemm(m: int, n: int, k: int) -> Case:
    """A product with constant weights."""
    return Case(f"gemm {m}x{n}x{k}", "MatMul", ((m, k), (k, n)), {}, {1: None}, 2.0 * m * n * k)


def _batched(batch: int, m: int, n: int, k: int) -> Case:
    """Products of pairs of matrices, both given at run time."""
    shapes = ((batch, m, k), (batch, k, n))
    return Case(f"gemm {batch} of {m}x{n}x{k}", "MatMul", shapes, flops=2.0 * batch * m * n * k)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def cases() -> list[Case]:
    """Return the operators that are timed."""
    pads3 = [1, 1, 1, 1]
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads3}
    same = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": pads3}
    return [
        Case("softmax 12x197x197", "Softmax", ((1, 12, 197, 197),), {"axis": -1}),
        Case("softmax 12x128x128", "Softmax", ((1, 12, 128, 128),), {"axis": -1}),
        Case("softmax 8x1000", "Softmax", ((8, 1000),), {"axis": -1}),
        Case("softmax axis 1", "Softmax", ((1, 21, 64, 64),), {"axis": 1}),
        Case("log_softmax 64x1000", "LogSoftmax", ((64, 1000),), {"axis": -1}),
        Case(
            "layer_norm 197x768",
            "LayerNormalization",
            ((1, 197, 768), (768,), (768,)),
            {"axis": -1},
            {1: None, 2: None},
        ),
        Case(
            "instance_norm 64@56",
            "InstanceNormalization",
            ((1, 64, 56, 56), (64,), (64,)),
            {},
            {1: None, 2: None},
        ),
        Case("max_pool 3/2 64@112", "MaxPool", ((1, 64, 112, 112),), pool),
        Case("max_pool 2/2 64@112", "MaxPool", ((1, 64, 112, 112),),
             {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Case("max_pool 3/1 128@28", "MaxPool", ((1, 128, 28, 28),), same),
        Case("avg_pool 3/1 192@35", "AveragePool", ((1, 192, 35, 35),), same),
        Case("avg_pool 2/2 128@56", "AveragePool", ((1, 128, 56, 56),),
             {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Case("global_avg 2048@7", "GlobalAveragePool", ((1, 2048, 7, 7),)),
        Case("global_avg 64@112", "GlobalAveragePool", ((1, 64, 112, 112),)),
        Case("mean rows 197x768", "ReduceMean", ((197, 768),), {}, {1: _ints(1)}),
        Case("mean columns 197x768", "ReduceMean", ((197, 768),), {}, {1: _ints(0)}),
        Case("sum 1M", "ReduceSum", ((1024, 1024),), {}, {1: _ints(0, 1)}),
        Case("max axis 1 32x64x100", "ReduceMax", ((32, 64, 100),), {}, {1: _ints(1)}),
        Case("argmax 64x1000", "ArgMax", ((64, 1000),), {"axis": 1}),
        Case("argmax axis 1", "ArgMax", ((1, 21, 64, 64),), {"axis": 1}),
        Case("transpose 197x768", "Transpose", ((197, 768),), {"perm": [1, 0]}),
        Case("transpose 1024x1024", "Transpose", ((1024, 1024),), {"perm": [1, 0]}),
        Case("transpose heads", "Transpose", ((1, 197, 12, 64),), {"perm": [0, 2, 1, 3]}),
        Case("transpose keys", "Transpose", ((1, 197, 12, 64),), {"perm": [0, 2, 3, 1]}),
        Case("transpose nchw-nhwc", "Transpose", ((1, 64, 56, 56),), {"perm": [0, 2, 3, 1]}),
        Case("transpose nhwc-nchw", "Transpose", ((1, 56, 56, 64),), {"perm": [0, 3, 1, 2]}),
        Case("transpose nhwc-nchw 3", "Transpose", ((1, 224, 224, 3),), {"perm": [0, 3, 1, 2]}),
        Case("shuffle channels", "Transpose", ((1, 2, 58, 28, 28),), {"perm": [0, 2, 1, 3, 4]}),
        Case("concat channels", "Concat", ((1, 64, 28, 28), (1, 96, 28, 28)), {"axis": 1}),
        Case("concat last 197", "Concat", ((64, 197), (64, 59)), {"axis": 1}),
        Case("gather rows 768", "Gather", ((5000, 768), (128,)), {"axis": 0}, {1: None}),
        Case("pad 64@56", "Pad", ((1, 64, 56, 56),), {}, {1: _ints(0, 0, 1, 1, 0, 0, 1, 1)}),
        Case("slice ::2", "Slice", ((1, 64, 56, 56),), {},
             {1: _ints(0), 2: _ints(56), 3: _ints(3), 4: _ints(2)}),
        Case("resize x2 nearest", "Resize", ((1, 64, 28, 28),),
             {"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
              "nearest_mode": "floor"},
             {1: np.zeros(0, np.float32), 2: np.array([1, 1, 2, 2], np.float32)}),
        Case("resize x2 linear", "Resize", ((1, 64, 28, 28),),
             {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
             {1: np.zeros(0, np.float32), 2: np.array([1, 1, 2, 2], np.float32)}),
        Case("add 64@7 + bias", "Add", ((8, 64, 7, 7), (64, 1, 1))),
        Case("mul 1000x9 * row", "Mul", ((4000, 9), (9,))),
        Case("relu 64@56", "Relu", ((1, 64, 56, 56),)),
        Case("lrn 5 64@55", "LRN", ((1, 64, 55, 55),), {"size": 5}),
        *(gemm(m, n, k) for m in (64, 128, 197)
          for n, k in ((768, 768), (3072, 768), (768, 3072))),
        *(gemm(m, 4096, 4096) for m in (1, 4, 16)),
        _batched(12, 128, 128, 64),
        _batched(12, 128, 64, 128),
        _batched(12, 197, 197, 64),
        _batched(12, 197, 64, 197),
        conv("conv3d 16@16x28x28", (1, 16, 16, 28, 28), (32, 16, 3, 3, 3),
              pads=[1] * 6),
        conv("conv1d 64@1000 k5", (1, 64, 1000), (64, 64, 5), pads=[2, 2]),
        conv("conv groups=3", (1, 48, 28, 28), (48, 16, 3, 3), group=3, pads=pads3),
        conv("conv odd 30-20", (1, 30, 28, 28), (20, 15, 3, 3), group=2, pads=pads3),
        Case("conv_transpose 256-128 4/2@14", "ConvTranspose",
             ((1, 256, 14, 14), (256, 128, 4, 4)),
             {"strides": [2, 2], "pads": pads3}, {1: None},
             2.0 * 14 * 14 * 256 * 128 * 16),
        Case("conv_transpose 64-32 2/2@56", "ConvTranspose",
             ((1, 64, 56, 56), (64, 32, 2, 2)),
             {"strides": [2, 2]}, {1: None}, 2.0 * 56 * 56 * 64 * 32 * 4),
    ]  # fmt: skip


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of one node and inputs for it."""
    rng = np.random.default_rng(0)
    inputs, stored, names, arrays = [], [], [], {}
    for k in range(max(len(case.shapes), *case.constants.keys(), 0) + 1):
        given = case.constants.get(k)
        if k >= len(case.shapes) and given is None:
            continue
        name = f"x{k}"
        names.append(name)
        value = given if given is not None else _aligned(_random(case, k, rng))
        if k in case.constants:
            stored.append(numpy_helper.from_array(value, name))
            continue
        arrays[name] = value
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, case.shapes[k]))
    node = helper.make_node(case.op, names, ["y"])
    node.attribute.extend(helper.make_attribute(k, v) for k, v in case.attrs.items())
    dtype = TensorProto.INT64 if case.op == "ArgMax" else TensorProto.FLOAT
    output = helper.make_tensor_value_info("y", dtype, None)
    graph = helper.make_graph([node], "kernel", inputs, [output], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = 9
    return model, arrays


def _random(case: Case, k: int, rng: np.random.Generator) -> np.ndarray:
    if case.op == "Gather" and k == 1:
        return rng.integers(0, case.shapes[0][0], case.shapes[1])
    return rng.standard_normal(case.shapes[k]).astype(case.dtype)


def _aligned(value: np.ndarray) -> np.ndarray:
    """Return a copy at a multiple of 64 bytes: other inputs Treadle would copy in every run."""
    raw = np.empty(value.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    made = raw[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    made[...] = value
    return made


Timer = Callable[[int], float]
"""timer(count) -> seconds of that many runs."""


def open_engines(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray]
) -> tuple[dict[str, Timer], list[np.ndarray], list[np.ndarray], list[str]]:
    """Return a timer per engine, the outputs of both, and the names of Treadle's kernels."""
    import onnxruntime

    import treadle

    executable = treadle.compile(model)
    executor = executable.executor
    executor.num_threads = 1
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    binding.bind_output("y")

    def ours(count: int) -> float:
        return executor.benchmark(inputs, number=count, repeat=1).mean * count

    def theirs(count: int) -> float:
        session.run_with_iobinding(binding)
        start = time.perf_counter()
        for _ in range(count):
            session.run_with_iobinding(binding)
        return time.perf_counter() - start

    mine = [np.asarray(a) for a in executable.run(inputs)]
    timers: dict[str, Timer] = {"treadle": ours, "onnxruntime": theirs}
    names = [k.name for k in executable.kernels]
    return timers, mine, list(session.run(None, inputs)), names


def _burst(timer: Timer) -> int:
    """Return how many runs fill a burst."""
    count = 1
    while (spent := timer(count)) < _BURST_SECONDS:
        count = max(count + 1, min(10 * count, int(1.2 * count * _BURST_SECONDS / spent)))
    return count


def fastest(timers: dict[str, Timer], seconds: float) -> dict[str, float]:
    """Return the seconds of a run in the fastest burst of each engine; the engines take turns."""
    counts = {name: _burst(timer) for name, timer in timers.items()}
    times: dict[str, list[float]] = {name: [] for name in timers}
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times["treadle"]) < 5:
        for name, timer in timers.items():
            times[name].append(timer(counts[name]) / counts[name])
    return {name: min(t) for name, t in times.items()}


def _rate(case: Case, arrays: Sequence[np.ndarray], seconds: float) -> str:
    if case.flops:
        return f"{case.flops / seconds / 1e9:6.1f} GFLOP/s"
    return f"{sum(a.nbytes for a in arrays) / seconds / 1e9:6.1f} GB/s"


def main() -> None:
    """Time what the command line says and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=0.4)
    arguments = parser.parse_args()
    os.environ.setdefault("TREADLE_NUM_THREADS", "1")
    table = Table("operator", "treadle us", "onnxruntime us", "ratio", "rate", "largest error")
    wanted = [w for w in arguments.only.split(",") if w]
    for case in cases():
        if wanted and not any(w in case.name for w in wanted):
            continue
        model, inputs = model_of(case)
        timers, mine, theirs, _ = open_engines(model, inputs)
        error = max(float(np.abs(a - b).max()) for a, b in zip(mine, theirs, strict=True))
        times = fastest(timers, arguments.seconds)
        ours, other = times["treadle"], times["onnxruntime"]
        rate = _rate(case, [*inputs.values(), *mine], ours)
        row = (f"{ours * 1e6:.1f}", f"{other * 1e6:.1f}", f"{other / ours:.2f}")
        table.add_row(case.name, *row, rate, f"{error:.1e}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
