# SPDX-License-Identifier: Apache-2.0
"""Image networks as ONNX models: EfficientNet-B0, and four smaller ones that try other shapes.

Normalisations stand folded into the convolutions, as exporters leave them in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import onnx
from onnx import TensorProto

from benchmarks.onnx_writer import Writer
from benchmarks.weights import Role

Curve: TypeAlias = Literal["", "Relu", "HardSwish", "Silu"]


def _conv(
    w: Writer, x: str, inputs: int, outputs: int, name: str, *, kernel: int = 1, stride: int = 1,
    groups: int = 1, curve: Curve = "", role: Role = "filter",
) -> str:  # fmt: skip
    weight = w.parameter(f"{name}.weight", (outputs, inputs // groups, kernel, kernel), role)
    bias = w.parameter(f"{name}.bias", (outputs,), "bias")
    x = w.node("Conv", [x, weight, bias], name, kernel_shape=[kernel] * 2, strides=[stride] * 2,
               pads=[(kernel - 1) // 2] * 4, group=groups)  # fmt: skip
    if curve == "Silu":
        return w.node("Mul", [x, w.node("Sigmoid", [x], f"{name}.sigmoid")], f"{name}.silu")
    return w.node(curve, [x], f"{name}.curve") if curve else x


def _gated(w: Writer, x: str, channels: int, inner: int, name: str, curve: Curve, gate: str) -> str:
    """Return x with each channel scaled by what the means of all channels say."""
    mean = w.node("GlobalAveragePool", [x], f"{name}.mean")
    down = _conv(w, mean, channels, inner, f"{name}.down", curve=curve)
    up = _conv(w, down, inner, channels, f"{name}.up")
    return w.node("Mul", [x, w.node(gate, [up], f"{name}.gate")], f"{name}.gated")


def _head(w: Writer, x: str, width: int) -> None:
    flat = w.node("Flatten", [w.node("GlobalAveragePool", [x], "head.mean")], "head.flat")
    weight = w.parameter("head.weight", (1000, width), "dense")
    w.node("Gemm", [flat, weight, w.parameter("head.bias", (1000,), "bias")], "logits", transB=1)


def _classifier(w: Writer, opset: int | None) -> onnx.ModelProto:
    inputs = {"image": (int(TensorProto.FLOAT), (1, 3, 224, 224))}
    return w.model(inputs, {"logits": (1, 1000)}, opset)


_EFFICIENTNET_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
"""Expansion, kernel, stride of the first block, output channels, number of blocks."""


def efficientnet_b0(opset: int | None = None) -> onnx.ModelProto:
    """Return EfficientNet-B0 with SiLU and squeeze-and-excitation."""
    w = Writer("efficientnet_b0")
    x, width = _conv(w, "image", 3, 32, "stem", kernel=3, stride=2, curve="Silu"), 32
    for stage, (expansion, kernel, first, outputs, repeats) in enumerate(_EFFICIENTNET_STAGES):
        for block in range(repeats):
            at, stride, source = f"{stage}.{block}", first if block == 0 else 1, x
            hidden = width * expansion
            if expansion > 1:
                x = _conv(w, x, width, hidden, f"{at}.expand", curve="Silu")
            x = _conv(w, x, hidden, hidden, f"{at}.spatial", kernel=kernel, stride=stride,
                      groups=hidden, curve="Silu")  # fmt: skip
            x = _gated(w, x, hidden, max(1, width // 4), f"{at}.gate", "Silu", "Sigmoid")
            x = _conv(w, x, hidden, outputs, f"{at}.project", role="wide_filter")
            if stride == 1 and width == outputs:
                x = w.node("Add", [x, source], f"{at}.sum")
            width = outputs
    _head(w, _conv(w, x, width, 1280, "last", curve="Silu"), 1280)
    return _classifier(w, opset)


_MOBILENET_V3_BLOCKS: tuple[tuple[int, int, int, bool, Curve, int], ...] = (
    (3, 16, 16, False, "Relu", 1),
    (3, 64, 24, False, "Relu", 2),
    (3, 72, 24, False, "Relu", 1),
    (5, 72, 40, True, "Relu", 2),
    (5, 120, 40, True, "Relu", 1),
    (3, 240, 80, False, "HardSwish", 2),
    (3, 200, 80, False, "HardSwish", 1),
    (3, 480, 112, True, "HardSwish", 1),
    (5, 672, 160, True, "HardSwish", 2),
    (5, 960, 160, True, "HardSwish", 1),
)
"""Kernel, hidden channels, output channels, is gated, curve, stride."""


def mobilenet_v3_like(opset: int | None = None) -> onnx.ModelProto:
    """Return a MobileNetV3-large with fewer repeated blocks."""
    w = Writer("mobilenet_v3_like")
    x, width = _conv(w, "image", 3, 16, "stem", kernel=3, stride=2, curve="HardSwish"), 16
    for at, (kernel, hidden, outputs, is_gated, curve, stride) in enumerate(_MOBILENET_V3_BLOCKS):
        source = x
        if hidden != width:
            x = _conv(w, x, width, hidden, f"{at}.expand", curve=curve)
        x = _conv(w, x, hidden, hidden, f"{at}.spatial", kernel=kernel, stride=stride,
                  groups=hidden, curve=curve)  # fmt: skip
        if is_gated:
            x = _gated(w, x, hidden, hidden // 4, f"{at}.gate", "Relu", "HardSigmoid")
        x = _conv(w, x, hidden, outputs, f"{at}.project", role="wide_filter")
        if stride == 1 and width == outputs:
            x = w.node("Add", [x, source], f"{at}.sum")
        width = outputs
    _head(w, _conv(w, x, width, 960, "last", curve="HardSwish"), 960)
    return _classifier(w, opset)


def resnet18_odd(opset: int | None = None) -> onnx.ModelProto:
    """Return a ResNet-18 whose channels are no multiple of a vector."""
    w = Writer("resnet18_odd")
    x = _conv(w, "image", 3, 45, "stem", kernel=7, stride=2, curve="Relu")
    x = w.node("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 45
    for stage, outputs in enumerate((45, 99, 198, 375)):
        for block in range(2):
            at, stride, source = f"{stage}.{block}", 2 if stage > 0 and block == 0 else 1, x
            y = _conv(w, x, width, outputs, f"{at}.1", kernel=3, stride=stride, curve="Relu")
            y = _conv(w, y, outputs, outputs, f"{at}.2", kernel=3)
            if width != outputs or stride != 1:
                source = _conv(w, x, width, outputs, f"{at}.shortcut", stride=stride)
            x = w.node("Relu", [w.node("Add", [y, source], f"{at}.sum")], at)
            width = outputs
    _head(w, x, width)
    return _classifier(w, opset)


def _channel_norm(w: Writer, x: str, channels: int, name: str) -> str:
    moved = w.transpose(x, (0, 2, 3, 1), f"{name}.last")
    weight = w.parameter(f"{name}.weight", (channels,), "norm_scale")
    bias = w.parameter(f"{name}.bias", (channels,), "norm_shift")
    normal = w.node("LayerNormalization", [moved, weight, bias], f"{name}.norm", axis=-1)
    return w.transpose(normal, (0, 3, 1, 2), name)


def convnext_like(opset: int | None = None) -> onnx.ModelProto:
    """Return a ConvNeXt-tiny with fewer blocks: 7x7 depthwise, LayerNorm, GELU, layer scale."""
    w = Writer("convnext_like")
    weight = w.parameter("stem.weight", (96, 3, 4, 4), "filter")
    bias = w.parameter("stem.bias", (96,), "bias")
    x = w.node("Conv", ["image", weight, bias], "stem", kernel_shape=[4, 4], strides=[4, 4])
    x, width = _channel_norm(w, x, 96, "stem.norm"), 96
    for stage, (outputs, repeats) in enumerate(((96, 2), (192, 2), (384, 4), (768, 2))):
        if outputs != width:
            at = f"{stage}.down"
            x = _channel_norm(w, x, width, f"{at}.norm")
            weight = w.parameter(f"{at}.weight", (outputs, width, 2, 2), "filter")
            bias = w.parameter(f"{at}.bias", (outputs,), "bias")
            x = w.node("Conv", [x, weight, bias], at, kernel_shape=[2, 2], strides=[2, 2])
            width = outputs
        for block in range(repeats):
            x = _convnext_block(w, x, width, f"{stage}.{block}")
    _head(w, x, width)
    return _classifier(w, opset)


def _convnext_block(w: Writer, x: str, width: int, at: str) -> str:
    y = _conv(w, x, width, width, f"{at}.spatial", kernel=7, groups=width)
    y = w.transpose(y, (0, 2, 3, 1), f"{at}.last")
    scale = w.parameter(f"{at}.norm.weight", (width,), "norm_scale")
    shift = w.parameter(f"{at}.norm.bias", (width,), "norm_shift")
    y = w.node("LayerNormalization", [y, scale, shift], f"{at}.norm", axis=-1, epsilon=1e-6)
    weight = w.parameter(f"{at}.up.weight", (width, 4 * width), "dense_transposed")
    y = w.node("MatMul", [y, weight], f"{at}.up.product")
    y = w.node("Add", [y, w.parameter(f"{at}.up.bias", (4 * width,), "bias")], f"{at}.up")
    erf = w.node("Erf", [w.node("Div", [y, w.scalar(2**0.5)], f"{at}.scaled")], f"{at}.erf")
    shifted = w.node("Add", [erf, w.scalar(1.0)], f"{at}.shifted")
    y = w.node("Mul", [w.node("Mul", [y, shifted], f"{at}.product"), w.scalar(0.5)], f"{at}.gelu")
    weight = w.parameter(f"{at}.down.weight", (4 * width, width), "dense_transposed")
    y = w.node("MatMul", [y, weight], f"{at}.down.product")
    y = w.node("Add", [y, w.parameter(f"{at}.down.bias", (width,), "bias")], f"{at}.down")
    y = w.node("Mul", [y, w.parameter(f"{at}.scale", (width,), "branch_scale")], f"{at}.layer")
    return w.node("Add", [x, w.transpose(y, (0, 3, 1, 2), f"{at}.first")], f"{at}.sum")


def unet_small(opset: int | None = None) -> onnx.ModelProto:
    """Return a U-Net with transposed convolutions: image in, four class maps out."""
    w = Writer("unet_small")
    x, width = "image", 3
    kept: list[tuple[str, int]] = []
    for level, outputs in enumerate((32, 64, 128, 256)):
        for step in range(2):
            x = _conv(w, x, width, outputs, f"down.{level}.{step}", kernel=3, curve="Relu")
            width = outputs
        if level < 3:
            kept.append((x, width))
            x = w.node("MaxPool", [x], f"down.{level}.pool", kernel_shape=[2, 2], strides=[2, 2])
    for level, (skipped, outputs) in enumerate(reversed(kept)):
        at = f"up.{level}"
        weight = w.parameter(f"{at}.weight", (width, outputs, 2, 2), "filter")
        bias = w.parameter(f"{at}.bias", (outputs,), "bias")
        x = w.node("ConvTranspose", [x, weight, bias], at, kernel_shape=[2, 2], strides=[2, 2])
        x, width = w.node("Concat", [skipped, x], f"{at}.joined", axis=1), 2 * outputs
        for step in range(2):
            x = _conv(w, x, width, outputs, f"{at}.{step}", kernel=3, curve="Relu")
            width = outputs
    w.node("Identity", [_conv(w, x, width, 4, "head")], "classes")
    inputs = {"image": (int(TensorProto.FLOAT), (1, 3, 128, 128))}
    return w.model(inputs, {"classes": (1, 4, 128, 128)}, opset)


NETWORKS: dict[str, Callable[[int | None], onnx.ModelProto]] = {
    "efficientnet_b0": efficientnet_b0,
    "mobilenet_v3_like": mobilenet_v3_like,
    "resnet18_odd": resnet18_odd,
    "convnext_like": convnext_like,
    "unet_small": unet_small,
}
