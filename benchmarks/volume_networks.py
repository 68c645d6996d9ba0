# SPDX-License-Identifier: Apache-2.0
"""Networks over volumes, signals and generated images, as ONNX models.

They try what image classifiers do not: convolutions over one and three axes, dilated ones, many
groups, and transposed ones. Normalisations stand folded into the convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import onnx
from onnx import TensorProto

from benchmarks.onnx_writer import Writer
from benchmarks.weights import Role

Curve: TypeAlias = Literal["", "Relu", "Silu", "Gelu", "Tanh", "LeakyRelu"]
_FLOAT = int(TensorProto.FLOAT)


def _curved(w: Writer, x: str, curve: Curve, name: str) -> str:
    if curve == "Silu":
        return w.node("Mul", [x, w.node("Sigmoid", [x], f"{name}.sigmoid")], f"{name}.curve")
    if curve == "Gelu":
        erf = w.node("Erf", [w.node("Mul", [x, w.scalar(0.5**0.5)], f"{name}.scaled")], f"{name}.e")
        shifted = w.node("Add", [erf, w.scalar(1.0)], f"{name}.shifted")
        half = w.node("Mul", [x, w.scalar(0.5)], f"{name}.half")
        return w.node("Mul", [half, shifted], f"{name}.curve")
    return w.node(curve, [x], f"{name}.curve") if curve else x


def _conv(
    w: Writer, x: str, widths: tuple[int, int], kernel: Sequence[int], name: str, *,
    strides: Sequence[int] = (), dilations: Sequence[int] = (), pads: Sequence[int] | None = None,
    groups: int = 1, curve: Curve = "", role: Role = "filter",
) -> str:  # fmt: skip
    """Add a convolution; `pads` are on both sides, without them odd kernels keep the extent."""
    inputs, outputs = widths
    weight = w.parameter(f"{name}.weight", (outputs, inputs // groups, *kernel), role)
    bias = w.parameter(f"{name}.bias", (outputs,), "bias")
    apart = list(dilations or (1,) * len(kernel))
    both = [d * (k - 1) // 2 for k, d in zip(kernel, apart, strict=True)] if pads is None else pads
    x = w.node("Conv", [x, weight, bias], name, kernel_shape=list(kernel), dilations=apart,
               strides=list(strides or (1,) * len(kernel)), pads=[*both, *both],
               group=groups)  # fmt: skip
    return _curved(w, x, curve, name)


def _grow(
    w: Writer, x: str, widths: tuple[int, int], kernel: Sequence[int], name: str, *,
    stride: int = 2, pad: int = 0, curve: Curve = "",
) -> str:  # fmt: skip
    """Add a transposed convolution, of as many axes as the kernel."""
    weight = w.parameter(f"{name}.weight", (*widths, *kernel), "filter")
    bias = w.parameter(f"{name}.bias", widths[1:], "bias")
    axes = len(kernel)
    x = w.node("ConvTranspose", [x, weight, bias], name, kernel_shape=list(kernel),
               strides=[stride] * axes, pads=[pad] * (2 * axes))  # fmt: skip
    return _curved(w, x, curve, name)


def _classes(w: Writer, x: str, width: int, count: int) -> None:
    flat = w.node("Flatten", [w.node("GlobalAveragePool", [x], "head.mean")], "head.flat")
    weight = w.parameter("head.weight", (count, width), "dense")
    w.node("Gemm", [flat, weight, w.parameter("head.bias", (count,), "bias")], "out", transB=1)


def _video(w: Writer, frames: int, size: int, opset: int | None) -> onnx.ModelProto:
    return w.model({"x": (_FLOAT, (1, 3, frames, size, size))}, {"out": (1, 400)}, opset)


def resnet3d_18(opset: int | None = None) -> onnx.ModelProto:
    """Return R3D-18 on eight frames of 112 x 112: 3x3x3 convolutions throughout."""
    w = Writer("resnet3d_18")
    x, width = _conv(w, "x", (3, 64), (3, 7, 7), "stem", strides=(1, 2, 2), curve="Relu"), 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            at, source = f"{stage}.{block}", x
            step = (2, 2, 2) if stage > 0 and block == 0 else (1, 1, 1)
            y = _conv(w, x, (width, outputs), (3, 3, 3), f"{at}.1", strides=step, curve="Relu")
            y = _conv(w, y, (outputs, outputs), (3, 3, 3), f"{at}.2")
            if width != outputs:
                source = _conv(w, x, (width, outputs), (1, 1, 1), f"{at}.shortcut", strides=step)
            x = w.node("Relu", [w.node("Add", [y, source], f"{at}.sum")], at)
            width = outputs
    _classes(w, x, width, 400)
    return _video(w, 8, 112, opset)


def resnet2plus1d(opset: int | None = None) -> onnx.ModelProto:
    """Return R(2+1)D-18 with one block per stage: space and time convolved in turns."""
    w = Writer("resnet2plus1d")
    x = _conv(w, "x", (3, 45), (1, 7, 7), "stem.space", strides=(1, 2, 2), curve="Relu")
    x, width = _conv(w, x, (45, 64), (3, 1, 1), "stem.time", curve="Relu"), 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        source, y, step = x, x, 2 if stage else 1
        for part in (1, 2):
            inner = 27 * width * outputs // (9 * width + 3 * outputs)
            at = f"{stage}.{part}"
            y = _conv(w, y, (width, inner), (1, 3, 3), f"{at}.space", strides=(1, step, step),
                      curve="Relu")  # fmt: skip
            y = _conv(w, y, (inner, outputs), (3, 1, 1), f"{at}.time", strides=(step, 1, 1),
                      curve="Relu" if part == 1 else "")  # fmt: skip
            if part == 1 and step > 1:
                source = _conv(w, x, (width, outputs), (1, 1, 1), f"{at}.shortcut",
                               strides=(2, 2, 2))  # fmt: skip
            width, step = outputs, 1
        x = w.node("Relu", [w.node("Add", [y, source], f"{stage}.sum")], f"{stage}")
    _classes(w, x, width, 400)
    return _video(w, 8, 112, opset)


def x3d_like(opset: int | None = None) -> onnx.ModelProto:
    """Return an X3D-S with fewer blocks: 3x3x3 depthwise between 1x1x1 convolutions, gated."""
    w = Writer("x3d_like")
    x = _conv(w, "x", (3, 24), (1, 3, 3), "stem.space", strides=(1, 2, 2))
    x, width = _conv(w, x, (24, 24), (5, 1, 1), "stem.time", groups=24, curve="Relu"), 24
    for stage, (outputs, repeats) in enumerate(((24, 2), (48, 3), (96, 4), (192, 3))):
        for block in range(repeats):
            at, source, step = f"{stage}.{block}", x, (1, 2, 2) if block == 0 else (1, 1, 1)
            hidden = outputs * 9 // 4
            y = _conv(w, x, (width, hidden), (1, 1, 1), f"{at}.expand", curve="Relu")
            y = _conv(w, y, (hidden, hidden), (3, 3, 3), f"{at}.depth", strides=step, groups=hidden)
            if block % 2 == 0:
                mean = w.node("GlobalAveragePool", [y], f"{at}.mean")
                gate = _conv(w, mean, (hidden, 8), (1, 1, 1), f"{at}.down", curve="Relu")
                gate = _conv(w, gate, (8, hidden), (1, 1, 1), f"{at}.up")
                y = w.node("Mul", [y, w.node("Sigmoid", [gate], f"{at}.gate")], f"{at}.gated")
            y = _curved(w, y, "Silu", f"{at}.silu")
            y = _conv(w, y, (hidden, outputs), (1, 1, 1), f"{at}.project")
            if block == 0:
                source = _conv(w, x, (width, outputs), (1, 1, 1), f"{at}.shortcut", strides=step)
            x = w.node("Relu", [w.node("Add", [y, source], f"{at}.sum")], at)
            width = outputs
    _classes(w, _conv(w, x, (width, 432), (1, 1, 1), "last", curve="Relu"), 432, 400)
    return _video(w, 8, 112, opset)


def unet3d(opset: int | None = None) -> onnx.ModelProto:
    """Return a 3-D U-Net: one channel of a volume in, three class maps out."""
    w = Writer("unet3d")
    x, width = "x", 1
    kept: list[tuple[str, int]] = []
    for level, outputs in enumerate((16, 32, 64, 128)):
        for step in range(2):
            x = _conv(w, x, (width, outputs), (3, 3, 3), f"down.{level}.{step}", curve="LeakyRelu")
            width = outputs
        if level < 3:
            kept.append((x, width))
            x = w.node("MaxPool", [x], f"down.{level}.pool", kernel_shape=[2] * 3, strides=[2] * 3)
    for level, (skipped, outputs) in enumerate(reversed(kept)):
        at = f"up.{level}"
        x = _grow(w, x, (width, outputs), (2, 2, 2), at)
        x, width = w.node("Concat", [skipped, x], f"{at}.joined", axis=1), 2 * outputs
        for step in range(2):
            x = _conv(w, x, (width, outputs), (3, 3, 3), f"{at}.{step}", curve="LeakyRelu")
            width = outputs
    w.node("Identity", [_conv(w, x, (width, 3), (1, 1, 1), "head")], "out")
    shape = (32, 64, 64)
    return w.model({"x": (_FLOAT, (1, 1, *shape))}, {"out": (1, 3, *shape)}, opset)


_SPEECH_LAYERS = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))
"""Kernel and stride of each convolution of wav2vec 2.0's feature encoder."""


def speech_features(opset: int | None = None) -> onnx.ModelProto:
    """Return wav2vec 2.0's feature encoder on one second of sound: 512 channels, GELU."""
    w = Writer("speech_features")
    x, width = "x", 1
    for layer, (kernel, stride) in enumerate(_SPEECH_LAYERS):
        x = _conv(w, x, (width, 512), (kernel,), f"{layer}", strides=(stride,), pads=(0,),
                  curve="Gelu", role="wide_filter")  # fmt: skip
        width = 512
    w.node("Transpose", [x], "out", perm=[0, 2, 1])
    return w.model({"x": (_FLOAT, (1, 1, 16000))}, {"out": (1, 49, 512)}, opset)


def sound_classifier(opset: int | None = None) -> onnx.ModelProto:
    """Return M5 of Dai et al. (2016): a kernel of 80 on raw sound, then kernels of 3."""
    w = Writer("sound_classifier")
    x = _conv(w, "x", (1, 128), (80,), "stem", strides=(4,), pads=(38,), curve="Relu")
    x, width = w.node("MaxPool", [x], "stem.pool", kernel_shape=[4], strides=[4]), 128
    for layer, outputs in enumerate((128, 256, 512)):
        x = _conv(w, x, (width, outputs), (3,), f"{layer}", curve="Relu")
        x = w.node("MaxPool", [x], f"{layer}.pool", kernel_shape=[4], strides=[4])
        width = outputs
    _classes(w, x, width, 400)
    return w.model({"x": (_FLOAT, (1, 1, 16000))}, {"out": (1, 400)}, opset)


def wavenet_like(opset: int | None = None) -> onnx.ModelProto:
    """Return gated dilated convolutions over a signal, with a sum of all layers' skips."""
    w = Writer("wavenet_like")
    x, skips = _conv(w, "x", (1, 64), (1,), "stem"), ""
    for layer in range(12):
        at, apart = f"{layer}", 1 << layer % 6
        both = _conv(w, x, (64, 128), (3,), f"{at}.both", dilations=(apart,))
        w.node_of("Split", [both, w.integers(64, 64)], f"{at}.split", [f"{at}.a", f"{at}.b"],
                  axis=1)  # fmt: skip
        tanh = w.node("Tanh", [f"{at}.a"], f"{at}.tanh")
        y = w.node("Mul", [tanh, w.node("Sigmoid", [f"{at}.b"], f"{at}.gate")], f"{at}.gated")
        skip = _conv(w, y, (64, 64), (1,), f"{at}.skip")
        skips = w.node("Add", [skips, skip], f"{at}.skips") if skips else skip
        x = w.node("Add", [_conv(w, y, (64, 64), (1,), f"{at}.residual"), x], f"{at}.sum")
    y = _conv(w, w.node("Relu", [skips], "skips"), (64, 128), (1,), "last", curve="Relu")
    w.node("Identity", [_conv(w, y, (128, 256), (1,), "head")], "out")
    return w.model({"x": (_FLOAT, (1, 1, 4000))}, {"out": (1, 256, 4000)}, opset)


def temporal_blocks(opset: int | None = None) -> onnx.ModelProto:
    """Return a temporal convolutional network: causal dilated pairs and shortcuts."""
    w = Writer("temporal_blocks")
    x, width = "x", 24
    for layer, outputs in enumerate((48, 48, 96, 96, 96)):
        at, apart, source, y = f"{layer}", 1 << layer, x, x
        for part in range(2):
            ends = w.integers(0, 0, 4 * apart, 0, 0, 0)
            padded = w.node("Pad", [y, ends], f"{at}.{part}.pad")
            y = _conv(w, padded, (width if part == 0 else outputs, outputs), (5,), f"{at}.{part}",
                      dilations=(apart,), pads=(0,), curve="Relu")  # fmt: skip
        if width != outputs:
            source = _conv(w, x, (width, outputs), (1,), f"{at}.shortcut")
        x, width = w.node("Relu", [w.node("Add", [y, source], f"{at}.sum")], at), outputs
    _classes(w, x, width, 400)
    return w.model({"x": (_FLOAT, (1, 24, 1000))}, {"out": (1, 400)}, opset)


def conformer_convs(opset: int | None = None) -> onnx.ModelProto:
    """Return the convolution modules of a Conformer: gated 1x1, depthwise 31, 1x1."""
    w, width = Writer("conformer_convs"), 256
    x = "x"
    for layer in range(6):
        at = f"{layer}"
        both = _conv(w, x, (width, 2 * width), (1,), f"{at}.both")
        w.node_of("Split", [both, w.integers(width, width)], f"{at}.split",
                  [f"{at}.a", f"{at}.b"], axis=1)  # fmt: skip
        y = w.node("Mul", [f"{at}.a", w.node("Sigmoid", [f"{at}.b"], f"{at}.gate")], f"{at}.gated")
        y = _conv(w, y, (width, width), (31,), f"{at}.depth", groups=width, curve="Silu")
        y = _conv(w, y, (width, width), (1,), f"{at}.project")
        x = w.node("Add", [x, y], f"{at}.sum")
    w.node("Identity", [x], "out")
    return w.model({"x": (_FLOAT, (1, width, 400))}, {"out": (1, width, 400)}, opset)


def dcgan_generator(opset: int | None = None) -> onnx.ModelProto:
    """Return the generator of DCGAN: 100 numbers in, an image of 64 x 64 out."""
    w = Writer("dcgan_generator")
    x, width = _grow(w, "x", (100, 512), (4, 4), "0", stride=1, curve="Relu"), 512
    for layer, outputs in enumerate((256, 128, 64, 3), start=1):
        curve: Curve = "Tanh" if outputs == 3 else "Relu"
        x = _grow(w, x, (width, outputs), (4, 4), f"{layer}", pad=1, curve=curve)
        width = outputs
    w.node("Identity", [x], "out")
    return w.model({"x": (_FLOAT, (1, 100, 1, 1))}, {"out": (1, 3, 64, 64)}, opset)


def pose_head(opset: int | None = None) -> onnx.ModelProto:
    """Return the head of SimpleBaseline (Xiao et al., 2018): three 4x4 transposed convolutions."""
    w = Writer("pose_head")
    x, width = "x", 512
    for layer in range(3):
        x, width = _grow(w, x, (width, 256), (4, 4), f"{layer}", pad=1, curve="Relu"), 256
    w.node("Identity", [_conv(w, x, (256, 17), (1, 1), "head")], "out")
    return w.model({"x": (_FLOAT, (1, 512, 8, 6))}, {"out": (1, 17, 64, 48)}, opset)


def vocoder(opset: int | None = None) -> onnx.ModelProto:
    """Return a small HiFi-GAN generator: 80 bands to sound by 1-D transposed convolutions."""
    w = Writer("vocoder")
    x, width = _conv(w, "x", (80, 128), (7,), "stem"), 128
    for level, (stride, kernel) in enumerate(((8, 16), (8, 16), (2, 4))):
        x = _curved(w, x, "LeakyRelu", f"{level}.before")
        x = _grow(w, x, (width, width // 2), (kernel,), f"{level}.up", stride=stride,
                  pad=(kernel - stride) // 2)  # fmt: skip
        width //= 2
        for part, (taps, apart) in enumerate(((3, 1), (3, 3), (7, 5))):
            at = f"{level}.{part}"
            y = _curved(w, x, "LeakyRelu", f"{at}.before")
            y = _conv(w, y, (width, width), (taps,), f"{at}.1", dilations=(apart,),
                      curve="LeakyRelu")  # fmt: skip
            y = _conv(w, y, (width, width), (taps,), f"{at}.2")
            x = w.node("Add", [x, y], f"{at}.sum")
    x = _curved(w, x, "LeakyRelu", "last")
    w.node("Identity", [_conv(w, x, (width, 1), (7,), "head", curve="Tanh")], "out")
    return w.model({"x": (_FLOAT, (1, 80, 64))}, {"out": (1, 1, 8192)}, opset)


def resnext50(opset: int | None = None) -> onnx.ModelProto:
    """Return ResNeXt-50 32x4d: 3x3 convolutions in 32 groups."""
    w = Writer("resnext50")
    x = _conv(w, "x", (3, 64), (7, 7), "stem", strides=(2, 2), curve="Relu")
    x = w.node("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 64
    for stage, repeats in enumerate((3, 4, 6, 3)):
        inner, outputs = 128 << stage, 256 << stage
        for block in range(repeats):
            at, source = f"{stage}.{block}", x
            step = (2, 2) if stage > 0 and block == 0 else (1, 1)
            y = _conv(w, x, (width, inner), (1, 1), f"{at}.1", curve="Relu")
            y = _conv(w, y, (inner, inner), (3, 3), f"{at}.2", strides=step, groups=32,
                      curve="Relu")  # fmt: skip
            y = _conv(w, y, (inner, outputs), (1, 1), f"{at}.3")
            if width != outputs:
                source = _conv(w, x, (width, outputs), (1, 1), f"{at}.shortcut", strides=step)
            x = w.node("Relu", [w.node("Add", [y, source], f"{at}.sum")], at)
            width = outputs
    _classes(w, x, width, 1000)
    return w.model({"x": (_FLOAT, (1, 3, 224, 224))}, {"out": (1, 1000)}, opset)


NETWORKS: dict[str, Callable[[int | None], onnx.ModelProto]] = {
    "resnet3d_18": resnet3d_18,
    "resnet2plus1d": resnet2plus1d,
    "x3d_like": x3d_like,
    "unet3d": unet3d,
    "speech_features": speech_features,
    "sound_classifier": sound_classifier,
    "wavenet_like": wavenet_like,
    "temporal_blocks": temporal_blocks,
    "conformer_convs": conformer_convs,
    "dcgan_generator": dcgan_generator,
    "pose_head": pose_head,
    "vocoder": vocoder,
    "resnext50": resnext50,
}
