# SPDX-License-Identifier: Apache-2.0
"""Models of open sizes for `benchmarks.dynamic`, each with the grid of sizes it is timed at.

Networks (two ways of writing a transformer encoder, a convolutional network, a recurrent one) and
single operators, so that a ratio points at a kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto

from benchmarks import open_networks
from benchmarks.onnx_writer import Attribute, Writer
from benchmarks.transformers import layer_norm, linear

_FLOAT = int(TensorProto.FLOAT)
_IDS = int(TensorProto.INT64)
Sizes = Mapping[str, int]
Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class DynamicModel:
    """A model and the sizes it is compared at; `indices` bounds the values of int64 inputs."""

    name: str
    build: Callable[[], onnx.ModelProto]
    grid: Sequence[Sizes]
    indices: int = 1


def grid(**sizes: Sequence[int]) -> list[Sizes]:
    """Return every combination of the given sizes."""
    return [dict(zip(sizes, row, strict=True)) for row in itertools.product(*sizes.values())]


# Networks.


def _fed_forward(w: Writer, x: str, context: str, width: int, at: str) -> str:
    total = w.node("Add", [linear(w, context, (width, width), f"{at}.output"), x], f"{at}.first")
    x = layer_norm(w, total, width, f"{at}.norm1")
    inner = w.node("Relu", [linear(w, x, (width, 4 * width), f"{at}.inner")], f"{at}.relu")
    outer = linear(w, inner, (4 * width, width), f"{at}.outer")
    return layer_norm(w, w.node("Add", [outer, x], f"{at}.second"), width, f"{at}.norm2")


def _attended(w: Writer, q: str, k: str, v: str, depth: int, at: str) -> str:
    scores = w.node("MatMul", [q, k], f"{at}.products")
    scores = w.node("Mul", [scores, w.scalar(depth**-0.5)], f"{at}.scores")
    weights = w.node("Softmax", [scores], f"{at}.weights", axis=-1)
    return w.node("MatMul", [weights, v], f"{at}.context")


def _plain_layer(w: Writer, x: str, width: int, heads: int, at: str) -> str:
    """Add a layer whose heads are an axis that a Reshape with zeros splits off."""
    parts = []
    for part, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        projected = linear(w, x, (width, width), f"{at}.{part}")
        split = w.reshape(projected, [0, 0, heads, width // heads], f"{at}.{part}.split")
        parts.append(w.transpose(split, perm, f"{at}.{part}.heads"))
    context = _attended(w, parts[0], parts[1], parts[2], width // heads, at)
    rows = w.transpose(context, (0, 2, 1, 3), f"{at}.rows")
    return _fed_forward(w, x, w.reshape(rows, [0, 0, width], f"{at}.joined"), width, at)


def _folded_layer(w: Writer, x: str, width: int, heads: int, at: str) -> str:
    """Add a layer of x[length, batch, width] that folds batch and heads into one axis and back."""
    depth = width // heads
    projected = linear(w, x, (width, 3 * width), f"{at}.qkv")
    names = [f"{at}.{part}" for part in "qkv"]
    w.node_of("Split", [projected, w.integers(width, width, width)], f"{at}.split", names, axis=2)
    parts = []
    for name in names:
        shape = _concat(w, f"{name}.folded", "length", "folded", w.integers(depth))
        folded = w.transpose(
            w.node("Reshape", [name, shape], f"{name}.rows"), (1, 0, 2), f"{name}.t"
        )
        shape = _concat(w, f"{name}.shape", "batch", w.integers(heads), "length", w.integers(depth))
        parts.append(w.node("Reshape", [folded, shape], f"{name}.heads"))
    keys = w.transpose(parts[1], (0, 1, 3, 2), f"{at}.keys")
    context = _attended(w, parts[0], keys, parts[2], depth, at)
    moved = w.transpose(context, (2, 0, 1, 3), f"{at}.moved")
    rows = w.reshape(moved, [-1, width], f"{at}.flat")
    output = linear(w, rows, (width, width), f"{at}.projected")
    shape = _concat(w, f"{at}.shape", "length", "batch", w.integers(width))
    return _fed_forward(w, x, w.node("Reshape", [output, shape], f"{at}.joined"), width, at)


def _concat(w: Writer, name: str, *parts: str) -> str:
    return w.node("Concat", list(parts), name, axis=0)


def encoder(width: int, heads: int, *, layers: int = 2, folded: bool = False) -> onnx.ModelProto:
    """Return a transformer encoder of x[batch, length, width]."""
    w = Writer(f"encoder_{width}")
    y = "x"
    if folded:
        w.node("Shape", ["x"], "batch", start=0, end=1)
        w.node("Shape", ["x"], "length", start=1, end=2)
        w.node("Mul", ["batch", w.integers(heads)], "folded")
        y = w.transpose("x", (1, 0, 2), "rows_first")
    layer = _folded_layer if folded else _plain_layer
    for k in range(layers):
        y = layer(w, y, width, heads, f"layer.{k}")
    if folded:
        y = w.transpose(y, (1, 0, 2), "batch_first")
    w.node("Identity", [y], "y")
    shape = ("batch", "length", width)
    return w.model({"x": (_FLOAT, shape)}, {"y": shape}, None)


def _convolution(w: Writer, x: str, sizes: tuple[int, int], at: str, **attrs: Attribute) -> str:
    groups = attrs.get("group", 1)
    assert isinstance(groups, int)
    weight = w.parameter(f"{at}.weight", (sizes[1], sizes[0] // groups, 3, 3), "filter")
    bias = w.parameter(f"{at}.bias", sizes[1:], "bias")
    y = w.node("Conv", [x, weight, bias], f"{at}.sum", kernel_shape=[3, 3], pads=[1] * 4, **attrs)
    return w.node("Relu", [y], at)


def convnet(image: Shape) -> onnx.ModelProto:
    """Return a small residual network of images [batch, 3, height, width], given as `image`."""
    w = Writer("convnet")
    x = _convolution(w, "image", (3, 32), "stem", strides=[2, 2])
    x = w.node("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for k, width in enumerate((32, 64)):
        y = _convolution(w, x, (width, width), f"block.{k}.a")
        y = _convolution(w, y, (width, width), f"block.{k}.depthwise", group=width)
        x = w.node("Add", [x, y], f"block.{k}.sum")
        x = _convolution(w, x, (width, 2 * width), f"block.{k}.down", strides=[2, 2])
    x = w.node("GlobalAveragePool", [x], "mean")
    weight = w.parameter("head.weight", (10, 128), "dense")
    flat = w.node("Flatten", [x], "flat")
    w.node("Gemm", [flat, weight, w.parameter("head.bias", (10,), "bias")], "y", transB=1)
    return w.model({"image": (_FLOAT, image)}, {"y": (image[0], 10)}, None)


# Single operators.


@dataclass(frozen=True)
class _Single:
    """One operator of inputs with given shapes; `weights` are its parameters, in their order."""

    op: str
    shapes: Sequence[Shape]
    weights: Sequence[tuple[int, ...]] = ()
    attrs: Mapping[str, Attribute] = field(default_factory=dict)
    integers: Sequence[Sequence[int]] = ()
    ndim: int | None = None

    def build(self) -> onnx.ModelProto:
        w = Writer(self.op)
        inputs: dict[str, tuple[int, Sequence[int | str]]] = {
            f"x{k}": (_FLOAT, shape) for k, shape in enumerate(self.shapes)
        }
        names = [*inputs]
        names += [w.parameter(f"w{k}", s, "dense") for k, s in enumerate(self.weights)]
        names += [w.integers(*values) for values in self.integers]
        w.node(self.op, names, "y", **self.attrs)
        ndim = len(self.shapes[0]) if self.ndim is None else self.ndim
        return w.model(inputs, {"y": [f"out{k}" for k in range(ndim)]}, None)


def _gather() -> onnx.ModelProto:
    w = Writer("gather")
    table = w.parameter("table", (1000, 256), "embedding")
    w.node("Gather", [table, "ids"], "y")
    return w.model({"ids": (_IDS, ("n", "s"))}, {"y": ("n", "s", 256)}, None)


def _chain() -> onnx.ModelProto:
    w = Writer("chain")
    shifted = w.node("Add", ["x", w.parameter("shift", (256,), "bias")], "shifted")
    gate = w.node("Mul", [shifted, w.node("Sigmoid", [shifted], "sigmoid")], "gate")
    total = w.node("ReduceSum", [gate, w.integers(2)], "total", keepdims=1)
    w.node("Tanh", [w.node("Div", [gate, total], "share")], "y")
    return w.model({"x": (_FLOAT, ("n", "s", 256))}, {"y": ("n", "s", 256)}, None)


_ROWS = ("n", "s", 256)
_SEQUENCES = grid(n=(1, 4), s=(17, 128, 512))
_HEADS = grid(n=(1, 2), s=(17, 64, 256))
_IMAGES: Shape = ("n", 64, "h", "w")
_AREAS = grid(n=(1, 3), h=(28, 57), w=(28, 57))
_SINGLES: dict[str, tuple[_Single, Sequence[Sizes]]] = {
    "softmax": (_Single("Softmax", [_ROWS], attrs={"axis": -1}), _SEQUENCES),
    "softmax open": (
        _Single("Softmax", [("n", 8, "s", "s")], attrs={"axis": -1}), _HEADS,
    ),
    "layer_norm": (
        _Single("LayerNormalization", [_ROWS], [(256,), (256,)], {"axis": -1}), _SEQUENCES,
    ),
    "mean": (_Single("ReduceMean", [_ROWS], attrs={"axes": [1], "keepdims": 1}), _SEQUENCES),
    "relu": (_Single("Relu", [_ROWS]), _SEQUENCES),
    "add": (_Single("Add", [_ROWS, _ROWS]), _SEQUENCES),
    "transpose": (_Single("Transpose", [_ROWS], attrs={"perm": [0, 2, 1]}), _SEQUENCES),
    "transpose heads": (
        _Single("Transpose", [("n", "s", 4, 64)], attrs={"perm": [0, 2, 1, 3]}), _SEQUENCES,
    ),
    "concat": (_Single("Concat", [_ROWS, _ROWS], attrs={"axis": 1}), _SEQUENCES),
    "product": (_Single("MatMul", [_ROWS], [(256, 256)]), _SEQUENCES),
    "product 768": (_Single("MatMul", [("n", "s", 768)], [(768, 768)]), _SEQUENCES),
    "product of pairs": (
        _Single("MatMul", [("n", 8, "s", 64), ("n", 8, 64, "s")]), _HEADS,
    ),
    "product over s": (
        _Single("MatMul", [("n", 8, "s", "s"), ("n", 8, "s", 64)]), _HEADS,
    ),
    "conv 3x3, batch": (
        _Single("Conv", [("n", 64, 28, 28)], [(64, 64, 3, 3)], {"pads": [1] * 4}),
        grid(n=(1, 2, 5)),
    ),
    "conv 3x3": (_Single("Conv", [_IMAGES], [(64, 64, 3, 3)], {"pads": [1] * 4}), _AREAS),
    "conv 1x1": (_Single("Conv", [_IMAGES], [(128, 64, 1, 1)]), _AREAS),
    "conv 3x3 depthwise": (
        _Single("Conv", [_IMAGES], [(64, 1, 3, 3)], {"pads": [1] * 4, "group": 64}), _AREAS,
    ),
    "max_pool": (
        _Single("MaxPool", [_IMAGES],
                attrs={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}), _AREAS,
    ),
    "global_mean": (_Single("GlobalAveragePool", [_IMAGES]), _AREAS),
}  # fmt: skip

_SENTENCES = grid(batch=(1, 4), length=(16, 61, 128, 256, 512))
MODELS: list[DynamicModel] = [
    DynamicModel("encoder 64", lambda: encoder(64, 4), _SENTENCES),
    DynamicModel("encoder 64 folded", lambda: encoder(64, 4, folded=True), _SENTENCES),
    DynamicModel("encoder 768", lambda: encoder(768, 12),
                 grid(batch=(1, 2), length=(16, 61, 128, 256))),
    DynamicModel("encoder 768 folded", lambda: encoder(768, 12, folded=True),
                 grid(batch=(1, 2), length=(128, 256))),
    DynamicModel("convnet, batch", lambda: convnet(("n", 3, 112, 112)), grid(n=(1, 2, 5))),
    DynamicModel("convnet, image", lambda: convnet((1, 3, "h", "w")),
                 grid(h=(64, 112, 200), w=(96, 112))),
    DynamicModel("convnet, all", lambda: convnet(("n", 3, "h", "w")),
                 grid(n=(1, 3), h=(64, 112), w=(96,))),
    DynamicModel("recurrent", open_networks.lstm_tagger, grid(batch=(1, 4), length=(7, 32)), 5000),
    DynamicModel("chain", _chain, _SEQUENCES),
    DynamicModel("gather", _gather, _SEQUENCES, 1000),
    *(DynamicModel(name, single.build, sizes) for name, (single, sizes) in _SINGLES.items()),
]  # fmt: skip
