# SPDX-License-Identifier: Apache-2.0
"""Networks whose sizes each run decides give what onnxruntime gives, at every size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import treadle
from benchmarks import open_networks
from treadle.build.executable import Executable

Arrays = dict[str, np.ndarray]


def check(model: onnx.ModelProto, executable: Executable, inputs: Arrays) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = [np.asarray(x) for x in session.run(None, inputs)]
    results = [np.asarray(x) for x in executable.run(inputs)]
    for result, reference in zip(results, expected, strict=True):
        assert result.shape == reference.shape
        np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-4)
    return results


def decode(model: onnx.ModelProto, heads: int, vocabulary: int, tmp_path: Path) -> None:
    """A prompt, then steps of one id each with the keys of all before; from a saved file, too."""
    random = np.random.default_rng(0)
    treadle.compile(model, dynamic=True).save(tmp_path / "decoder.tar")
    executable = treadle.load(tmp_path / "decoder.tar")
    names = [i.name for i in model.graph.input if i.name.startswith("past")]
    outputs = [o.name for o in model.graph.output]
    for batch, prompt in ((1, 7), (2, 3)):
        past = {n: np.zeros((batch, heads, 0, 64), np.float32) for n in names}
        for length in (prompt, 1, 1, 2):
            ids = random.integers(0, vocabulary, (batch, length))
            results = check(model, executable, {"input_ids": ids, **past})
            present = dict(zip(outputs, results, strict=True))
            past = {n: present[n.replace("past", "present")] for n in names}


def test_gpt2_with_past_keys(tmp_path: Path) -> None:
    model = open_networks.gpt2_cached(layers=2, width=128, vocabulary=500)
    decode(model, 2, 500, tmp_path)


@pytest.mark.slow
def test_gpt2_small_with_past_keys(tmp_path: Path) -> None:
    decode(open_networks.gpt2_cached(), 12, 50257, tmp_path)


def test_decoder_with_rotary_positions_and_shared_keys(tmp_path: Path) -> None:
    model = open_networks.llama_cached(layers=2, width=256, hidden=384, vocabulary=300)
    decode(model, 1, 300, tmp_path)


@pytest.mark.slow
def test_larger_decoder_with_shared_keys(tmp_path: Path) -> None:
    decode(open_networks.llama_cached(), 2, 8000, tmp_path)


def test_lstm_tagger() -> None:
    model = open_networks.lstm_tagger(width=32, vocabulary=100)
    executable = treadle.compile(model, dynamic=True)
    random = np.random.default_rng(1)
    for batch, length in ((1, 1), (2, 9), (3, 4)):
        check(model, executable, {"input_ids": random.integers(0, 100, (batch, length))})


def test_detector_of_any_image() -> None:
    model = open_networks.detector(width=8)
    executable = treadle.compile(model, dynamic=True)
    random = np.random.default_rng(2)
    found = []
    for height, width in ((64, 64), (96, 128), (32, 64)):
        image = random.standard_normal((1, 3, height, width)).astype(np.float32)
        boxes, *_ = check(model, executable, {"image": image})
        found.append(len(boxes))
    assert len(set(found)) > 1
    assert max(found) > 10
