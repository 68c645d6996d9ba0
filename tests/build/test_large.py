# SPDX-License-Identifier: Apache-2.0
"""Deep graphs and heavy weights: no recursion, and no weight twice in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from treadle.build.compile import compile_model

ROOT = Path(__file__).resolve().parents[2]
DEPTH = 5000


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    shape: list[int],
    **options: object,
) -> Path:
    """Save a network from x to the result of its last node, both of one shape."""
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, **options)
    return path


def arithmetic(random: np.random.Generator) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Add, Relu, Mul, Sub with vectors of their own."""
    nodes, weights, source = [], [], "x"
    for k in range(DEPTH):
        operator = ("Add", "Relu", "Mul", "Sub")[k % 4]
        inputs = [source]
        if operator != "Relu":
            vector = random.uniform(0.5, 1.5, 8).astype(np.float32)
            weights.append(numpy_helper.from_array(vector, f"c{k}"))
            inputs.append(f"c{k}")
        nodes.append(helper.make_node(operator, inputs, [f"v{k}"], name=f"n{k}"))
        source = f"v{k}"
    return nodes, weights


def anchors(_: np.random.Generator) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Softmax along one axis and the other: nothing fuses."""
    names = ["x", *(f"v{k}" for k in range(DEPTH))]
    return [
        helper.make_node("Softmax", [names[k]], [names[k + 1]], name=f"n{k}", axis=k % 2)
        for k in range(DEPTH)
    ], []


@pytest.mark.parametrize("make", [arithmetic, anchors])
@pytest.mark.parametrize("opt_level", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_five_thousand_nodes_in_a_row(
    tmp_path: Path, make: Callable[..., tuple[list[onnx.NodeProto], list[onnx.TensorProto]]],
    opt_level: int,
) -> None:  # fmt: skip
    nodes, weights = make(np.random.default_rng(0))
    path = save(tmp_path / "deep.onnx", nodes, weights, [4, 8])
    executable = compile_model(path, opt_level=opt_level)
    assert executable.nodes >= DEPTH
    executable.save(tmp_path / "deep.tar")
    x = np.random.default_rng(1).random((4, 8), dtype=np.float32)
    (found,) = executable.run([x])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-6)


# ---- weights -------------------------------------------------------------------------------------

LAYERS = 16

MEASURE = """
import json, sys
from pathlib import Path
import numpy as np
from treadle.build.compile import compile_model
def peak():  # of this program; what getrusage says includes the parent before exec
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
compile_model(sys.argv[1])  # what compiling takes in any case: the compiler itself
before = peak()
executable = compile_model(sys.argv[2])
compiled = peak()
executable.save(sys.argv[3])
saved = peak()
executable.run([np.ones(executable.inputs[0][2], np.float32)])
print(json.dumps([before, compiled, saved, peak(), executable.weight_bytes]))
"""


def dense(path: Path, size: int, **options: object) -> Path:
    random = np.random.default_rng(0)
    nodes, weights, source = [], [], "x"
    for k in range(LAYERS):
        weight = random.standard_normal((size, size), np.float32) / size
        weights.append(numpy_helper.from_array(weight, f"w{k}"))
        nodes.append(helper.make_node("MatMul", [source, f"w{k}"], [f"m{k}"]))
        nodes.append(helper.make_node("Relu", [f"m{k}"], [f"r{k}"]))
        source = f"r{k}"
    return save(path, nodes, weights, [1, size], **options)


def convolutions(path: Path, size: int, **options: object) -> Path:
    random = np.random.default_rng(0)
    nodes, weights, source = [], [], "x"
    channels = size // 4
    for k in range(LAYERS):
        weight = random.standard_normal((channels, channels, 4, 4), np.float32) / size
        weights.append(numpy_helper.from_array(weight, f"w{k}"))
        nodes.append(helper.make_node("Conv", [source, f"w{k}"], [f"m{k}"], auto_pad="SAME_UPPER"))
        nodes.append(helper.make_node("Relu", [f"m{k}"], [f"r{k}"]))
        source = f"r{k}"
    return save(path, nodes, weights, [1, channels, 4, 4], **options)


def normalised(path: Path, size: int, **options: object) -> Path:
    """Convolutions with a batch normalisation each, which is folded into their weights."""
    random = np.random.default_rng(0)
    nodes, weights, source = [], [], "x"
    channels = size // 2
    for k in range(LAYERS):
        weight = random.standard_normal((channels, channels, 2, 2), np.float32) / size
        weights.append(numpy_helper.from_array(weight, f"w{k}"))
        names = [f"{part}{k}" for part in ("scale", "bias", "mean", "variance")]
        weights += [
            numpy_helper.from_array(random.uniform(0.5, 1.5, channels).astype(np.float32), name)
            for name in names
        ]
        nodes.append(helper.make_node("Conv", [source, f"w{k}"], [f"m{k}"], auto_pad="SAME_UPPER"))
        nodes.append(helper.make_node("BatchNormalization", [f"m{k}", *names], [f"b{k}"]))
        nodes.append(helper.make_node("Relu", [f"b{k}"], [f"r{k}"]))
        source = f"r{k}"
    return save(path, nodes, weights, [1, channels, 2, 2], **options)


def peaks(folder: Path, make: Callable[..., Path], size: int, **options: object) -> list[int]:
    """Return bytes: the peak before, after compiling, saving, running; and those of the weights."""
    small = make(folder / "small.onnx", 64)
    large = make(folder / "large.onnx", size, **options)
    command = [sys.executable, "-c", MEASURE, str(small), str(large), str(folder / "large.tar")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=True
    )
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("make", [dense, convolutions, normalised])
@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize("size", [1024, pytest.param(4096, marks=pytest.mark.slow)])
def test_weights_are_in_memory_once(
    tmp_path: Path, make: Callable[..., Path], is_external: bool, size: int
) -> None:
    """67 MB, and as a slow test 1 GB, beside what the compiler itself takes."""
    options = {"save_as_external_data": True, "location": "weights.bin"} if is_external else {}
    before, compiled, saved, run, weights = peaks(tmp_path, make, size, **options)
    assert weights >= LAYERS * size * size * 4
    shares = [(peak - before) / weights for peak in (compiled, saved, run)]
    print(f"peak of {weights / 1e6:.0f} MB of weights: compile, save, run {shares}")
    assert max(shares) < 1.3, shares


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_more_weights_than_protobuf_holds_are_in_memory_once(tmp_path: Path) -> None:
    """2.6 GB: offsets, lengths and parts of the artifact beyond 2 GB."""
    options = {"save_as_external_data": True, "location": "weights.bin"}
    before, compiled, saved, run, weights = peaks(tmp_path, dense, 6400, **options)
    assert weights > 2 << 30
    assert max((peak - before) / weights for peak in (compiled, saved, run)) < 1.3
