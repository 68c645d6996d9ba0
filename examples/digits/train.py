# SPDX-License-Identifier: Apache-2.0
"""Trains the demo's digit classifier with NumPy alone, and writes it as digits.onnx beside it.

    python -m examples.digits.train

A layer maps its input to its output and, on the way back, the loss's gradient by its output to the
one by its input, leaving those by its parameters in `gradients`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from examples.digits import data

Array: TypeAlias = NDArray[np.float32]

MODEL = Path(__file__).parent / "digits.onnx"
SEED = 7
EPOCHS = 40
BATCH = 64
LEARNING_RATE = 2e-3
OPSET = 17


class Layer(Protocol):
    """One step of the network."""

    parameters: dict[str, Array]
    gradients: dict[str, Array]

    def forward(self, x: Array, training: bool) -> Array:
        """Return the layer's output for the batch `x`."""
        ...

    def backward(self, gradient: Array) -> Array:
        """Return the gradient by the last batch given to `forward`."""
        ...

    def node(self, source: str, target: str) -> tuple[onnx.NodeProto, dict[str, Array]]:
        """Return the layer as an ONNX node, and the initializers it reads."""
        ...


class Conv:
    """A 3x3 convolution with zero padding and without bias."""

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator) -> None:
        weight = random.standard_normal((outputs, inputs, 3, 3)) * np.sqrt(2 / (9 * inputs))
        self.parameters: dict[str, Array] = {"weight": weight.astype(np.float32)}
        self.gradients: dict[str, Array] = {}
        self._windows = np.empty(0, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        """Correlate each image with the filters."""
        self._windows = _windows(x)
        return _correlate(self._windows, self.parameters["weight"])

    def backward(self, gradient: Array) -> Array:
        """Correlate the gradient with the filters turned by 180 degrees."""
        weight = self.parameters["weight"]
        self.gradients["weight"] = np.tensordot(
            gradient, self._windows, axes=([0, 2, 3], [0, 2, 3])
        )
        turned = weight[:, :, ::-1, ::-1].swapaxes(0, 1)
        return _correlate(_windows(gradient), turned)

    def node(self, source: str, target: str) -> tuple[onnx.NodeProto, dict[str, Array]]:
        """Return a Conv node."""
        stored = {f"{target}.weight": self.parameters["weight"]}
        node = helper.make_node(
            "Conv", [source, *stored], [target], kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        )
        return node, stored


def _windows(x: Array) -> Array:
    """Return the 3x3 surroundings of every pixel: float32[n, c, h, w, 3, 3]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sliding_window_view(padded, (3, 3), axis=(2, 3))


def _correlate(windows: Array, weight: Array) -> Array:
    product = np.tensordot(windows, weight, axes=([1, 4, 5], [1, 2, 3]))
    return np.ascontiguousarray(product.transpose(0, 3, 1, 2))


class BatchNorm:
    """Normalises each channel by the batch's statistics; after training, by their running mean."""

    EPSILON = 1e-5
    MOMENTUM = 0.9

    def __init__(self, channels: int) -> None:
        self.parameters: dict[str, Array] = {
            "scale": np.ones(channels, np.float32),
            "shift": np.zeros(channels, np.float32),
        }
        self.gradients: dict[str, Array] = {}
        self.mean = np.zeros(channels, np.float32)
        self.variance = np.ones(channels, np.float32)
        self._normalised = np.empty(0, np.float32)
        self._deviation = np.empty(0, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        """Normalise, then scale and shift."""
        mean, variance = self.mean, self.variance
        if training:
            mean, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
            self.mean = self.MOMENTUM * self.mean + (1 - self.MOMENTUM) * mean
            self.variance = self.MOMENTUM * self.variance + (1 - self.MOMENTUM) * variance
        self._deviation = np.sqrt(variance + np.float32(self.EPSILON))
        self._normalised = (x - _per_channel(mean)) / _per_channel(self._deviation)
        scale, shift = self.parameters["scale"], self.parameters["shift"]
        return self._normalised * _per_channel(scale) + _per_channel(shift)

    def backward(self, gradient: Array) -> Array:
        """Go back through the scale and the batch's statistics."""
        axes = (0, 2, 3)
        self.gradients["shift"] = gradient.sum(axis=axes)
        self.gradients["scale"] = (gradient * self._normalised).sum(axis=axes)
        inner = gradient * _per_channel(self.parameters["scale"])
        common = inner.mean(axis=axes, keepdims=True)
        along = (inner * self._normalised).mean(axis=axes, keepdims=True)
        centred: Array = inner - common - self._normalised * along
        return centred / _per_channel(self._deviation)

    def node(self, source: str, target: str) -> tuple[onnx.NodeProto, dict[str, Array]]:
        """Return a BatchNormalization node."""
        stored = {
            f"{target}.scale": self.parameters["scale"],
            f"{target}.shift": self.parameters["shift"],
            f"{target}.mean": self.mean.astype(np.float32),
            f"{target}.variance": self.variance.astype(np.float32),
        }
        node = helper.make_node(
            "BatchNormalization", [source, *stored], [target], epsilon=self.EPSILON
        )
        return node, stored


def _per_channel(values: Array) -> Array:
    return values[:, np.newaxis, np.newaxis]


class Relu:
    """max(x, 0)."""

    def __init__(self) -> None:
        self.parameters: dict[str, Array] = {}
        self.gradients: dict[str, Array] = {}
        self._is_positive = np.empty(0, np.bool_)

    def forward(self, x: Array, training: bool) -> Array:
        """Cut off what is negative."""
        self._is_positive = x > 0
        return np.maximum(x, np.float32(0))

    def backward(self, gradient: Array) -> Array:
        """Pass on the gradient where the input was positive."""
        passed: Array = gradient * self._is_positive
        return passed

    def node(self, source: str, target: str) -> tuple[onnx.NodeProto, dict[str, Array]]:
        """Return a Relu node."""
        return helper.make_node("Relu", [source], [target]), {}


class MaxPool:
    """The largest of each 2x2 square."""

    def __init__(self) -> None:
        self.parameters: dict[str, Array] = {}
        self.gradients: dict[str, Array] = {}
        self._is_largest = np.empty(0, np.bool_)

    def forward(self, x: Array, training: bool) -> Array:
        """Halve height and width."""
        n, c, h, w = x.shape
        squares = x.reshape(n, c, h // 2, 2, w // 2, 2)
        largest: Array = squares.max(axis=(3, 5), keepdims=True)
        self._is_largest = squares == largest
        return largest.reshape(n, c, h // 2, w // 2)

    def backward(self, gradient: Array) -> Array:
        """Pass on the gradient to the largest, in equal parts where there are several."""
        shares = self._is_largest / self._is_largest.sum(axis=(3, 5), keepdims=True)
        n, c, h, _, w, _ = shares.shape
        spread = shares * gradient[:, :, :, np.newaxis, :, np.newaxis]
        whole: Array = spread.reshape(n, c, 2 * h, 2 * w).astype(np.float32)
        return whole

    def node(self, source: str, target: str) -> tuple[onnx.NodeProto, dict[str, Array]]:
        """Return a MaxPool node."""
        node = helper.make_node("MaxPool", [source], [target], kernel_shape=[2, 2], strides=[2, 2])
        return node, {}


class Flatten:
    """Turns each image into one row."""

    def __init__(self) -> None:
        self.parameters: dict[str, Array] = {}
        self.gradients: dict[str, Array] = {}
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Array, training: bool) -> Array:
        """Return [n, c * h * w]."""
        self._shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, gradient: Array) -> Array:
        """Return the images' shape."""
        return gradient.reshape(self._shape)

    def node(self, source: str, target: str) -> tuple[onnx.NodeProto, dict[str, Array]]:
        """Return a Flatten node."""
        return helper.make_node("Flatten", [source], [target], axis=1), {}


class Dense:
    """A matrix product with bias."""

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator) -> None:
        weight = random.standard_normal((outputs, inputs)) * np.sqrt(2 / inputs)
        self.parameters: dict[str, Array] = {
            "weight": weight.astype(np.float32),
            "bias": np.zeros(outputs, np.float32),
        }
        self.gradients: dict[str, Array] = {}
        self._input = np.empty(0, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        """Return x @ weight.T + bias."""
        self._input = x
        return x @ self.parameters["weight"].T + self.parameters["bias"]

    def backward(self, gradient: Array) -> Array:
        """Return gradient @ weight."""
        self.gradients["weight"] = gradient.T @ self._input
        self.gradients["bias"] = gradient.sum(axis=0)
        return gradient @ self.parameters["weight"]

    def node(self, source: str, target: str) -> tuple[onnx.NodeProto, dict[str, Array]]:
        """Return a Gemm node."""
        stored = {f"{target}.{name}": value for name, value in self.parameters.items()}
        return helper.make_node("Gemm", [source, *stored], [target], transB=1), stored


class Adam:
    """Adam: steps of a size that follows from the gradients' running mean and spread."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.steps = 0
        self._moments = [
            {name: (np.zeros_like(p), np.zeros_like(p)) for name, p in layer.parameters.items()}
            for layer in layers
        ]

    def step(self, rate: float) -> None:
        """Move every parameter against its gradient."""
        self.steps += 1
        for layer, moments in zip(self.layers, self._moments, strict=True):
            for name, gradient in layer.gradients.items():
                mean, square = moments[name]
                mean += 0.1 * (gradient - mean)
                square += 0.001 * (gradient**2 - square)
                mean_now = mean / (1 - 0.9**self.steps)
                square_now = square / (1 - 0.999**self.steps)
                layer.parameters[name] -= rate * mean_now / (np.sqrt(square_now) + 1e-8)


def network(random: np.random.Generator) -> list[Layer]:
    """Return the untrained network, which ends in ten logits."""
    return [
        *(Conv(1, 16, random), BatchNorm(16), Relu()),
        *(Conv(16, 32, random), BatchNorm(32), Relu(), MaxPool()),
        *(Conv(32, 64, random), BatchNorm(64), Relu(), MaxPool()),
        *(Flatten(), Dense(256, 64, random), Relu()),
        Dense(64, 10, random),
    ]


def logits(layers: Sequence[Layer], x: Array, *, training: bool = False) -> Array:
    """Return the network's output before the softmax: float32[n, 10]."""
    for layer in layers:
        x = layer.forward(x, training)
    return x


def _softmax(values: Array) -> Array:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    total: Array = powers / powers.sum(axis=1, keepdims=True)
    return total


def _batches(
    digits: data.Digits, random: np.random.Generator
) -> Iterator[tuple[Array, NDArray[np.int64]]]:
    """Yield the digits in random order, each batch moved by up to one pixel."""
    order = random.permutation(len(digits))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        down, right = random.integers(-1, 2, size=2)
        padded = np.pad(digits.images[chosen], ((0, 0), (0, 0), (1, 1), (1, 1)))
        yield padded[:, :, 1 + down : 9 + down, 1 + right : 9 + right], digits.labels[chosen]


def train(digits: data.Digits, random: np.random.Generator) -> list[Layer]:
    """Return a network trained on `digits`; prints the loss as it goes."""
    layers = network(random)
    optimizer = Adam(layers)
    for epoch in range(EPOCHS):
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        losses = []
        for images, labels in _batches(digits, random):
            chances = _softmax(logits(layers, images, training=True))
            rows = np.arange(len(labels))
            losses.append(-np.log(chances[rows, labels] + 1e-12).mean())
            gradient = chances
            gradient[rows, labels] -= 1
            gradient /= len(labels)
            for layer in reversed(layers):
                gradient = layer.backward(gradient)
            optimizer.step(rate)
        print(f"epoch {epoch + 1:2}/{EPOCHS}  loss {np.mean(losses):.4f}", flush=True)
    return layers


def to_onnx(layers: Sequence[Layer]) -> onnx.ModelProto:
    """Return the network as an ONNX model: image[N, 1, 8, 8] -> probabilities[N, 10]."""
    nodes: list[onnx.NodeProto] = []
    stored: dict[str, Array] = {}
    source = "image"
    for index, layer in enumerate(layers):
        target = f"{type(layer).__name__.lower()}{index}"
        node, parameters = layer.node(source, target)
        node.name = target
        nodes.append(node)
        stored.update(parameters)
        source = target
    nodes.append(helper.make_node("Softmax", [source], ["probabilities"], name="softmax", axis=1))
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], producer_name="treadle examples")
    model.ir_version = 8  # what goes with opset 17
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Train, report the accuracy on the held-out digits, write the model."""
    training, held_out = data.load()
    layers = train(training, np.random.Generator(np.random.PCG64(SEED)))
    is_right = logits(layers, held_out.images).argmax(axis=1) == held_out.labels
    print(f"held-out accuracy: {is_right.mean():.2%} ({is_right.sum()} of {len(is_right)})")
    MODEL.write_bytes(to_onnx(layers).SerializeToString(deterministic=True))
    print(f"{MODEL}: {MODEL.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
