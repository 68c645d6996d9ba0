# SPDX-License-Identifier: Apache-2.0
"""The network builder: files that onnxruntime runs, with outputs that say something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks import networks


def outputs(model: onnx.ModelProto, random: np.random.Generator, count: int) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (source,) = session.get_inputs()
    samples = [random.standard_normal(source.shape, dtype=np.float32) for _ in range(count)]
    return [session.run(None, {source.name: sample})[0] for sample in samples]


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize("opset", [None, 17])
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "mobilenet_v2"])
def test_outputs_are_finite_and_differ(
    name: str, opset: int | None, random: np.random.Generator
) -> None:
    first, second = outputs(networks.build(name, opset), random, 2)
    assert np.isfinite(first).all()
    assert first.std() > 1e-6
    assert np.abs(first).max() < 10
    assert distance(first, second) > 1e-3


def test_opsets_agree(random: np.random.Generator) -> None:
    state = random.bit_generator.state
    (old,) = outputs(networks.build("squeezenet"), random, 1)
    random.bit_generator.state = state
    (new,) = outputs(networks.build("squeezenet", 17), random, 1)
    assert distance(new.reshape(old.shape), old) < 1e-5


def test_same_name_gives_same_bytes(tmp_path: Path) -> None:
    for name in ("first.onnx", "second.onnx"):
        networks.write(networks.build("squeezenet"), tmp_path / name)
    first, second = sorted(tmp_path.iterdir())
    assert first.read_bytes() == second.read_bytes()


def test_parameters_are_no_inputs() -> None:
    graph = networks.build("squeezenet").graph
    assert [value.name for value in graph.input] == ["data_0"]
    assert not [node for node in graph.node if node.op_type == "ConstantOfShape"]


@pytest.mark.torch
def test_torch_export_is_the_same_network(random: np.random.Generator) -> None:
    state = random.bit_generator.state
    (direct,) = outputs(networks.build("mobilenet_v2"), random, 1)
    random.bit_generator.state = state
    (exported,) = outputs(networks.build("mobilenet_v2_torch"), random, 1)
    assert distance(exported, direct) < 1e-5


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenet_v3_like", "unet_small"])
def test_image_networks_say_something(name: str, random: np.random.Generator) -> None:
    first, second = outputs(networks.build(name), random, 2)
    assert np.isfinite(first).all()
    assert distance(first, second) > 1e-3


def test_a_decoder_says_something() -> None:
    model = networks.build("llama_like")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    ids = np.arange(32, dtype=np.int64)[None]
    (first,) = session.run(None, {"input_ids": ids})
    (second,) = session.run(None, {"input_ids": ids + (np.arange(32) == 31)})
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first[:, :31], second[:, :31])  # no position sees later ones
    assert distance(first[:, 31], second[:, 31]) > 1e-3
