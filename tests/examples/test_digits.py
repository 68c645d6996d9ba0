# SPDX-License-Identifier: Apache-2.0
"""The digit example: its data, the trainer's gradients, the committed model, the picture."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from examples.digits import data, picture, train


def test_training_and_held_out_digits_are_apart() -> None:
    training, held_out = data.load()
    assert (len(training), len(held_out)) == (1437, data.HELD_OUT)
    assert training.images.shape == (1437, 1, 8, 8)
    assert held_out.labels[:8].tolist() == [9, 6, 7, 7, 5, 9, 3, 5]
    assert training.images.min() == 0
    assert training.images.max() == 1


def test_committed_model_classifies_held_out_digits() -> None:
    _, digits = data.load()
    session = onnxruntime.InferenceSession(train.MODEL)
    (probabilities,) = session.run(None, {"image": digits.images})
    assert (probabilities.argmax(axis=1) == digits.labels).mean() >= 0.98


def test_committed_model_has_the_trainers_network() -> None:
    fresh = train.to_onnx(train.network(np.random.default_rng(0)))
    committed = onnx.load(train.MODEL)
    assert fresh.graph.node == committed.graph.node
    shapes = [(i.name, tuple(i.dims)) for i in committed.graph.initializer]
    assert shapes == [(i.name, tuple(i.dims)) for i in fresh.graph.initializer]


@pytest.mark.parametrize(
    "make",
    [
        lambda random: train.Conv(3, 3, random),
        lambda random: train.BatchNorm(3),
        lambda random: train.Relu(),
        lambda random: train.MaxPool(),
        lambda random: _Flat(train.Dense(48, 5, random)),
    ],
    ids=["conv", "norm", "relu", "pool", "dense"],
)
def test_gradients(
    make: Callable[[np.random.Generator], train.Layer], random: np.random.Generator
) -> None:
    """A step along the gradient changes the output as much as the gradient says."""
    layer = make(random)
    x = random.standard_normal((2, 3, 4, 4))
    layer.parameters = {name: p.astype(np.float64) for name, p in layer.parameters.items()}
    weights = random.standard_normal(layer.forward(x, True).shape)
    by_input = layer.backward(weights)
    direction = random.standard_normal(x.shape)
    step = 1e-6
    change = weights * (
        layer.forward(x + step * direction, True) - layer.forward(x - step * direction, True)
    )
    assert np.isclose(change.sum() / (2 * step), (by_input * direction).sum(), rtol=1e-4)
    for name, gradient in dict(layer.gradients).items():
        around = random.standard_normal(gradient.shape)
        original = layer.parameters[name]
        layer.parameters[name] = original + step * around
        above = (weights * layer.forward(x, True)).sum()
        layer.parameters[name] = original - step * around
        below = (weights * layer.forward(x, True)).sum()
        layer.parameters[name] = original
        assert np.isclose((above - below) / (2 * step), (gradient * around).sum(), rtol=1e-4)


class _Flat:
    """A dense layer behind a Flatten, so that it takes images like the others."""

    def __init__(self, dense: train.Dense) -> None:
        self.flatten, self.dense = train.Flatten(), dense

    @property
    def parameters(self) -> dict[str, train.Array]:
        return self.dense.parameters

    @parameters.setter
    def parameters(self, values: dict[str, train.Array]) -> None:
        self.dense.parameters = values

    @property
    def gradients(self) -> dict[str, train.Array]:
        return self.dense.gradients

    def forward(self, x: train.Array, training: bool) -> train.Array:
        return self.dense.forward(self.flatten.forward(x, training), training)

    def backward(self, gradient: train.Array) -> train.Array:
        return self.flatten.backward(self.dense.backward(gradient))


def test_picture_is_a_png_with_the_digits(tmp_path: Path) -> None:
    images = np.zeros((2, 1, 8, 8), np.float32)
    images[1, 0, 0, 0] = 1
    path = tmp_path / "digits.png"
    picture.write_png(path, images, [3, 4], [3, 5])
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    start = content.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", content[start - 8 : start - 4])
    rows = np.frombuffer(zlib.decompress(content[start : start + length]), np.uint8)
    pixels = rows.reshape(height, 1 + 3 * width)[:, 1:].reshape(height, width, 3)
    left, right = np.split(pixels, 2, axis=1)
    assert (left[8:104] == 255).all()
    assert (right[8:20, 8:20] == 0).all()
    assert not (left == right).all()


def test_terminal_text_shows_pixels_and_mistakes() -> None:
    images = np.zeros((2, 1, 8, 8), np.float32)
    images[1, 0, 0:2, 0] = 1
    text = picture.terminal_rows(images, [3, 4], [3, 5]).plain
    assert text.splitlines()[0] == " " * 10 + "█" + " " * 9
    assert "4, not 5" in text
