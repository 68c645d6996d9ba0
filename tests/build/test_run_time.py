# SPDX-License-Identifier: Apache-2.0
"""Models whose control flow and sizes the data decides, from a saved artifact, as onnxruntime."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.build.compile import compile_model
from treadle.build.loaded import LoadedExecutable

F, N, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Weights = Mapping[str, np.ndarray]


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: dict[str, int],
    weights: Weights,
) -> onnx.ModelProto:
    results = [helper.make_tensor_value_info(n, k, None) for n, k in outputs.items()]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "test", inputs, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def detector(random: np.random.Generator) -> onnx.ModelProto:
    """A convolution, one box and four scores per pixel, the best boxes and their scores."""
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["head"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Sigmoid", ["head"], ["likely"]),
        helper.make_node("Reshape", ["likely", "flat"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["pixels"], perm=[0, 2, 1]),
        helper.make_node("Split", ["pixels", "parts"], ["box", "score"], axis=2),
        helper.make_node("Add", ["box", "grid"], ["boxes"]),
        helper.make_node("Transpose", ["score"], ["scores"], perm=[0, 2, 1]),
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "scores", "most", "overlap", "lowest"],
            ["best"],
            center_point_box=1,
        ),
        helper.make_node("GatherND", ["scores", "best"], ["confidence"]),
        helper.make_node("Gather", ["best", "last"], ["which"], axis=1),
        helper.make_node("Squeeze", ["boxes", "first"], ["all"]),
        helper.make_node("Gather", ["all", "which"], ["found"], axis=0),
    ]
    weights = {
        "kernel": random.standard_normal((8, 3, 3, 3)).astype("float32"),
        "flat": np.array([1, 8, 64]),
        "parts": np.array([4, 4]),
        "grid": random.uniform(0, 4, (1, 64, 4)).astype("float32"),
        "most": np.array([20]),
        "overlap": np.array([0.3], "float32"),
        "lowest": np.array([0.8], "float32"),
        "last": np.array(2),
        "first": np.array([0]),
    }
    image = helper.make_tensor_value_info("image", F, [1, 3, 16, 16])
    return model(nodes, [image], {"best": N, "confidence": F, "found": F}, weights)


def decoder(random: np.random.Generator) -> onnx.ModelProto:
    """Greedy decoding: the next token follows from all before it, until the end or the limit."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["words"], axis=0),
        helper.make_node("ReduceMean", ["words"], ["state"], axes=[0], keepdims=1),
        helper.make_node("MatMul", ["state", "weight"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["next"], axis=1, keepdims=0),
        helper.make_node("Concat", ["tokens", "next"], ["more"], axis=0),
        helper.make_node("Less", ["next", "end"], ["left"]),
        helper.make_node("Squeeze", ["left", "axis"], ["goes_on"]),
        helper.make_node("Squeeze", ["logits", "axis"], ["row"]),
    ]
    body = helper.make_graph(
        nodes,
        "step",
        [value("i", N, []), value("c", B, []), value("tokens", N, None)],
        [value("goes_on", B, []), value("more", N, None), value("row", F, None)],
        [numpy_helper.from_array(np.array([9]), "end")],
    )
    loop = helper.make_node("Loop", ["limit", "", "prompt"], ["all", "scores"], body=body)
    weights = {
        "table": random.standard_normal((10, 16)).astype("float32"),
        "weight": random.standard_normal((16, 10)).astype("float32"),
        "axis": np.array([0]),
    }
    inputs = [value("limit", N, []), value("prompt", N, [3])]
    return model([loop], inputs, {"all": N, "scores": F}, weights)


def check(made: onnx.ModelProto, inputs: list[dict[str, np.ndarray]], folder: Path) -> None:
    """Fail unless a saved model computes what onnxruntime does, at both ends of optimisation."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    for level in (0, 3):
        compile_model(made, opt_level=level).save(folder / "model.tar")
        loaded = LoadedExecutable(folder / "model.tar")
        for given in inputs:
            for got, want in zip(loaded.run(given), session.run(None, given), strict=True):
                assert got.shape == want.shape
                np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


def test_a_detector_that_ends_in_non_max_suppression(
    random: np.random.Generator, tmp_path: Path
) -> None:
    images = [
        random.standard_normal((1, 3, 16, 16)).astype("float32") * np.float32(k)
        for k in (1, 0.5, 0)
    ]
    check(detector(random), [{"image": i} for i in images], tmp_path)


def test_decoding_in_a_loop(random: np.random.Generator, tmp_path: Path) -> None:
    prompts = random.integers(0, 9, (4, 3))
    given = [
        {"limit": np.array(k), "prompt": p} for k, p in zip((1, 5, 12, 40), prompts, strict=True)
    ]
    check(decoder(random), given, tmp_path)


@pytest.mark.parametrize("runs", [200])
def test_memory_stays_flat(random: np.random.Generator, runs: int) -> None:
    executor = compile_model(detector(random)).executor
    sizes = set()
    for k in range(runs):
        image = random.standard_normal((1, 3, 16, 16)).astype("float32") * (k % 7)
        executor.run({"image": image})
        if k >= runs // 2:
            sizes.add(executor.arena_bytes)
    assert len(sizes) == 1


def test_thirty_slices_of_slices_have_sizes_that_are_written_once(tmp_path: Path) -> None:
    """The size of each result has that of the one before in it twice: 2**30 words as a tree."""
    names = ["x", *(f"v{k}" for k in range(30))]
    nodes = [
        helper.make_node("Slice", [x, "begin", "end", "axis"], [y], name=y)
        for x, y in pairwise(names)
    ]
    cut = model(
        [*nodes, helper.make_node("Reshape", [names[-1], "pairs"], ["y"])],
        [helper.make_tensor_value_info("x", F, ["n"])],
        {"y": F, names[-1]: F},
        {"begin": np.array([1]), "end": np.array([-1]), "axis": np.array([0]),
         "pairs": np.array([-1, 2])},
    )  # fmt: skip
    compiled = compile_model(cut, dynamic=True)
    assert len(str(compiled.module.main.body.type)) < 10_000
    compiled.save(tmp_path / "m.tar")
    with tarfile.open(tmp_path / "m.tar") as archive:
        assert archive.getmember("mod.json").size < 100_000
    loaded = treadle.load(tmp_path / "m.tar")
    x = np.arange(101, dtype="float32")
    pairs_of_100, slices_of_100 = map(np.asarray, loaded(x[:100]))
    assert np.array_equal(slices_of_100, x[30:70])
    assert np.array_equal(pairs_of_100, x[30:70].reshape(-1, 2))
    assert [np.asarray(a).size for a in loaded(x[:50])] == [0, 0]
    with pytest.raises(treadle.TreadleError) as error:
        loaded(x)
    assert "different sizes: 41 and 40" in error.value.problem
    (alone,) = loaded.kernels
    slices, pairs = np.zeros(40, "float32"), np.zeros((20, 2), "float32")
    outputs = {(40,): slices, (20, 2): pairs}
    shapes = alone.signature.shapes({"n": 100})
    alone(x[:100], *(outputs[shape] for shape in shapes[1:]))
    assert np.array_equal(slices, x[30:70])
