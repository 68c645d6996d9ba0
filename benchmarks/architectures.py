# SPDX-License-Identifier: Apache-2.0
"""MobileNetV2 and ResNet-50 v2 as data, of which two modules make models: ONNX and torch.

A network is a sequence of layers. A layer's position in the sequences around it is its name
("12.body.3"), from which its weights are drawn: both makers give the same network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

INPUT_SHAPE = (1, 3, 224, 224)


@dataclass(frozen=True)
class Conv:
    """A square convolution with "same" padding for odd kernels, without bias."""

    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def padding(self) -> int:
        """The zeros on each side."""
        return self.kernel // 2

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """The filter as [out, in / groups, height, width]."""
        return (self.outputs, self.inputs // self.groups, self.kernel, self.kernel)


@dataclass(frozen=True)
class Norm:
    """A batch normalisation; `is_damped` where it scales a branch that is added."""

    channels: int
    is_damped: bool = False


@dataclass(frozen=True)
class Activation:
    """A ReLU, or a ReLU cut off at 6."""

    kind: Literal["relu", "relu6"]


@dataclass(frozen=True)
class MaxPool:
    """A square max pooling, padded by half its kernel."""

    kernel: int
    stride: int


@dataclass(frozen=True)
class GlobalPool:
    """The mean of each channel, flattened: [n, c, h, w] -> [n, c]."""


@dataclass(frozen=True)
class Dense:
    """A matrix product with bias."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class Residual:
    """Adds two branches: before -> body, and the shortcut.

    An empty shortcut hands on the block's own input; any other reads what `before` gives.
    """

    before: tuple[Layer, ...]
    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()


Layer: TypeAlias = Conv | Norm | Activation | MaxPool | GlobalPool | Dense | Residual


_MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, output channels, number of blocks, stride of the first."""


def _mobilenet_v2() -> Iterator[Layer]:
    yield Conv(3, 32, kernel=3, stride=2)
    yield Norm(32)
    yield Activation("relu6")
    width = 32
    for expansion, outputs, repeats, first_stride in _MOBILENET_STAGES:
        for block in range(repeats):
            yield from _inverted_residual(
                width, outputs, expansion, first_stride if block == 0 else 1
            )
            width = outputs
    yield Conv(width, 1280)
    yield Norm(1280)
    yield Activation("relu6")
    yield GlobalPool()
    yield Dense(1280, 1000)


def _inverted_residual(inputs: int, outputs: int, expansion: int, stride: int) -> Iterator[Layer]:
    is_added = stride == 1 and inputs == outputs
    hidden = inputs * expansion
    body: list[Layer] = []
    if expansion > 1:
        body += [Conv(inputs, hidden), Norm(hidden), Activation("relu6")]
    body += [Conv(hidden, hidden, kernel=3, stride=stride, groups=hidden), Norm(hidden)]
    body += [Activation("relu6"), Conv(hidden, outputs), Norm(outputs, is_damped=is_added)]
    if is_added:
        yield Residual(before=(), body=tuple(body))
    else:
        yield from body


def _resnet50_v2() -> Iterator[Layer]:
    yield Conv(3, 64, kernel=7, stride=2)
    yield MaxPool(kernel=3, stride=2)
    width = 64
    for stage, repeats in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        for block in range(repeats):
            yield _preactivation(width, inner, stride=2 if block == 0 and stage > 0 else 1)
            width = 4 * inner
    yield Norm(width)
    yield Activation("relu")
    yield GlobalPool()
    yield Dense(width, 1000)


def _preactivation(inputs: int, inner: int, stride: int) -> Residual:
    """Return a bottleneck whose normalisations and ReLUs stand before its convolutions."""
    outputs = 4 * inner
    needs_projection = inputs != outputs or stride != 1
    return Residual(
        before=(Norm(inputs, is_damped=not needs_projection), Activation("relu")),
        body=(
            *(Conv(inputs, inner), Norm(inner), Activation("relu")),
            *(Conv(inner, inner, kernel=3, stride=stride), Norm(inner), Activation("relu")),
            Conv(inner, outputs),
        ),
        shortcut=(Conv(inputs, outputs, stride=stride),) if needs_projection else (),
    )


ARCHITECTURES: dict[str, tuple[Layer, ...]] = {
    "mobilenet_v2": tuple(_mobilenet_v2()),
    "resnet50_v2": tuple(_resnet50_v2()),
}
