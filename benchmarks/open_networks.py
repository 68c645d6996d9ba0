# SPDX-License-Identifier: Apache-2.0
"""Networks whose sizes each run decides: decoders with past keys, a tagger, a detector.

The decoders take the keys and values of earlier positions and give back those of all, so one model
serves the prompt (none in the past) and every step after it. The detector ends in
NonMaxSuppression: how many boxes come out, the image decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.onnx_writer import Writer
from benchmarks.transformers import (
    HEAD,
    gated_units,
    gelu_tanh,
    layer_norm,
    linear,
    rms_norm,
    rotated,
)

_IDS = int(TensorProto.INT64)
_FLOAT = int(TensorProto.FLOAT)
_LOWEST = float(np.finfo(np.float32).min)


def _positions(w: Writer) -> tuple[str, str]:
    """Add the positions of the new rows [s] and of all [p + s], as int64."""
    past = w.node("Shape", ["past.key.0"], "past.length", start=2, end=3)
    new = w.node("Shape", ["input_ids"], "new.length", start=1, end=2)
    total = w.node("Squeeze", [w.node("Add", [past, new], "total.length")], "total")
    first = w.node("Squeeze", [past], "first")
    zero, one = (w.constant(f"int.{k}", np.array(k, np.int64)) for k in (0, 1))
    queries = w.node("Range", [first, total, one], "positions")
    return queries, w.node("Range", [zero, total, one], "positions.all")


def _causal(w: Writer, queries: str, keys: str) -> str:
    """Add the mask [s, p + s] that is true where a row may look."""
    column = w.node("Unsqueeze", [queries, w.integers(1)], "positions.column")
    return w.node("LessOrEqual", [keys, column], "causal")


def _split_heads(w: Writer, x: str, heads: int, name: str) -> str:
    return w.transpose(w.reshape(x, [0, 0, heads, HEAD], f"{name}.split"), (0, 2, 1, 3), name)


def _attention(w: Writer, q: str, k: str, v: str, at: str, *, repeat: int, heads: int) -> str:
    """Add attention of rows to past and new keys; keys and values serve `repeat` heads each."""
    layer = at.rsplit(".", 1)[1]
    for part, new in (("key", k), ("value", v)):
        w.node("Concat", [f"past.{part}.{layer}", new], f"present.{part}.{layer}", axis=2)
    k, v = f"present.key.{layer}", f"present.value.{layer}"
    if repeat > 1:
        k, v = (_repeated(w, x, repeat, heads, f"{at}.{p}") for x, p in ((k, "k"), (v, "v")))
    keys = w.transpose(k, (0, 1, 3, 2), f"{at}.keys")
    scores = w.node("MatMul", [q, keys], f"{at}.products")
    scores = w.node("Mul", [scores, w.scalar(HEAD**-0.5)], f"{at}.scores")
    masked = w.node("Where", ["causal", scores, w.scalar(_LOWEST)], f"{at}.masked")
    weights = w.node("Softmax", [masked], f"{at}.weights", axis=-1)
    context = w.transpose(w.node("MatMul", [weights, v], f"{at}.context"), (0, 2, 1, 3), f"{at}.c")
    return w.reshape(context, [0, 0, heads * HEAD], f"{at}.joined")


def _repeated(w: Writer, x: str, repeat: int, heads: int, name: str) -> str:
    spread = w.node("Unsqueeze", [x, w.integers(2)], f"{name}.spread")
    copies = w.node("Concat", [spread] * repeat, f"{name}.copies", axis=2)
    return w.node("Reshape", [copies, w.integers(0, heads, -1, HEAD)], f"{name}.repeated")


def _decoder(w: Writer, sizes: tuple[int, int, int, int], opset: int | None) -> onnx.ModelProto:
    """Return the model; `sizes` are layers, heads of the keys, and the vocabulary."""
    layers, shared, _, vocabulary = sizes
    past = {f"past.{part}.{k}" for k in range(layers) for part in ("key", "value")}
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {"input_ids": (_IDS, ("batch", "new"))}
    inputs |= {n: (_FLOAT, ("batch", shared, "past", HEAD)) for n in sorted(past)}
    outputs: dict[str, Sequence[int | str]] = {"logits": ("batch", "new", vocabulary)}
    outputs |= {n.replace("past", "present"): ("batch", shared, "all", HEAD) for n in sorted(past)}
    return w.model(inputs, outputs, opset)


def gpt2_cached(
    opset: int | None = None, *, layers: int = 12, width: int = 768, vocabulary: int = 50257
) -> onnx.ModelProto:
    """Return GPT-2 (small) with past keys: int64 ids [batch, new] in, logits and all keys out."""
    w, heads = Writer("gpt2_cached"), width // HEAD
    words = w.parameter("words", (vocabulary, width), "embedding")
    places = w.parameter("places", (1024, width), "embedding")
    queries, keys = _positions(w)
    _causal(w, queries, keys)
    taken = w.node("Gather", [words, "input_ids"], "words.taken")
    x = w.node("Add", [taken, w.node("Gather", [places, queries], "places.taken")], "embedded")
    for layer in range(layers):
        at = f"block.{layer}"
        projected = linear(
            w, layer_norm(w, x, width, f"{at}.norm1"), (width, 3 * width), f"{at}.qkv"
        )
        parts = [f"{at}.{part}" for part in ("query", "key", "value")]
        w.node_of("Split", [projected, w.integers(width, width, width)], f"{at}.split", parts,
                  axis=2)  # fmt: skip
        q, k, v = (_split_heads(w, part, heads, f"{part}.heads") for part in parts)
        context = _attention(w, q, k, v, at, repeat=1, heads=heads)
        x = w.node("Add", [linear(w, context, (width, width), f"{at}.output"), x], f"{at}.residual")
        normal = layer_norm(w, x, width, f"{at}.norm2")
        inner = gelu_tanh(w, linear(w, normal, (width, 4 * width), f"{at}.inner"), f"{at}.gelu")
        x = w.node("Add", [x, linear(w, inner, (4 * width, width), f"{at}.outer")], f"{at}.sum")
    shared = w.transpose(words, (1, 0), "head.weight")
    w.node("MatMul", [layer_norm(w, x, width, "norm"), shared], "logits")
    return _decoder(w, (layers, heads, heads, vocabulary), opset)


def llama_cached(
    opset: int | None = None,
    *,
    layers: int = 8,
    width: int = 512,
    hidden: int = 1408,
    vocabulary: int = 8000,
) -> onnx.ModelProto:
    """Return a decoder with rotary positions whose heads share keys by fours, and past keys."""
    w, heads = Writer("llama_cached"), width // HEAD
    shared = max(1, heads // 4)
    rates = 10000.0 ** -(np.arange(0, HEAD, 2, dtype=np.float32) / HEAD)
    queries, keys = _positions(w)
    _causal(w, queries, keys)
    column = w.node("Cast", ["positions.column"], "positions.float", to=_FLOAT)
    angles = w.node("Mul", [column, w.constant("rates", np.tile(rates, 2))], "angles")
    w.node("Cos", [angles], "cosines")
    w.node("Sin", [angles], "sines")
    words = w.parameter("words", (vocabulary, width), "embedding")
    x = w.node("Gather", [words, "input_ids"], "embedded")
    for layer in range(layers):
        at = f"layer.{layer}"
        normal = rms_norm(w, x, width, f"{at}.norm1")
        q, k, v = (
            _split_heads(
                w,
                linear(w, normal, (width, count * HEAD), f"{at}.{part}", bias=False),
                count,
                f"{at}.{part}.heads",
            )
            for part, count in (("query", heads), ("key", shared), ("value", shared))
        )
        q, k = rotated(w, q, f"{at}.query"), rotated(w, k, f"{at}.key")
        context = _attention(w, q, k, v, at, repeat=heads // shared, heads=heads)
        output = linear(w, context, (width, width), f"{at}.output", bias=False)
        x = w.node("Add", [x, output], f"{at}.residual")
        normal = rms_norm(w, x, width, f"{at}.norm2")
        x = w.node("Add", [x, gated_units(w, normal, (width, hidden), at)], f"{at}.sum")
    head = w.parameter("head.weight", (width, vocabulary), "dense_transposed")
    w.node("MatMul", [rms_norm(w, x, width, "norm"), head], "logits")
    return _decoder(w, (layers, shared, heads, vocabulary), opset)


def lstm_tagger(
    opset: int | None = None, *, width: int = 128, vocabulary: int = 5000, tags: int = 20
) -> onnx.ModelProto:
    """Return a tagger: int64 ids [batch, length] in, log probabilities of the tags out.

    Two LSTM layers in both directions, each position first in memory.
    """
    w = Writer("lstm_tagger")
    words = w.parameter("words", (vocabulary, width), "embedding")
    x = w.transpose(w.node("Gather", [words, "input_ids"], "embedded"), (1, 0, 2), "rows")
    size = width
    for layer in range(2):
        at = f"layer.{layer}"
        weights = [
            w.parameter(f"{at}.input", (2, 4 * width, size), "dense"),
            w.parameter(f"{at}.recurrent", (2, 4 * width, width), "dense"),
            w.parameter(f"{at}.bias", (2, 8 * width), "bias"),
        ]
        states = w.node("LSTM", [x, *weights], at, hidden_size=width, direction="bidirectional")
        moved = w.transpose(states, (0, 2, 1, 3), f"{at}.moved")
        x, size = w.reshape(moved, [0, 0, 2 * width], f"{at}.joined"), 2 * width
    scores = linear(w, w.transpose(x, (1, 0, 2), "sentences"), (size, tags), "tags")
    w.node("LogSoftmax", [scores], "log_probabilities", axis=-1)
    inputs = {"input_ids": (_IDS, ("batch", "length"))}
    return w.model(inputs, {"log_probabilities": ("batch", "length", tags)}, opset)


def _conv(w: Writer, x: str, sizes: tuple[int, int], name: str, *, stride: int = 1) -> str:
    """Add a 3x3 convolution with x * sigmoid(x) behind it."""
    weight = w.parameter(f"{name}.weight", (sizes[1], sizes[0], 3, 3), "filter")
    bias = w.parameter(f"{name}.bias", sizes[1:], "bias")
    y = w.node("Conv", [x, weight, bias], f"{name}.sum", kernel_shape=[3, 3],
               strides=[stride] * 2, pads=[1] * 4)  # fmt: skip
    return w.node("Mul", [y, w.node("Sigmoid", [y], f"{name}.gate")], name)


def detector(opset: int | None = None, *, width: int = 16, classes: int = 10) -> onnx.ModelProto:
    """Return a one-stage detector of any image: boxes, scores and classes of what is found.

    A backbone of strides 8 and 16, an upsampled path back, a grid of boxes per scale, decoded from
    distances to the centre of a cell, and NonMaxSuppression per class.
    """
    w = Writer("detector")
    x = "image"
    for k, (inner, outer) in enumerate([(3, width), (width, 2 * width), (2 * width, 4 * width)]):
        x = _conv(w, x, (inner, outer), f"down.{k}", stride=2)
    fine = _conv(w, x, (4 * width, 4 * width), "fine")
    coarse = _conv(w, _conv(w, fine, (4 * width, 8 * width), "down.3", stride=2),
                   (8 * width, 8 * width), "coarse")  # fmt: skip
    size = w.node("Shape", [fine], "fine.shape")
    front = w.node("Slice", [w.node("Shape", [coarse], "coarse.shape"), w.integers(0),
                             w.integers(2)], "front")  # fmt: skip
    back = w.node("Slice", [size, w.integers(2), w.integers(4)], "back")
    sizes = w.node("Concat", [front, back], "sizes", axis=0)
    raised = w.node("Resize", [coarse, "", "", sizes], "raised", mode="nearest",
                    coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    merged = w.node("Concat", [raised, fine], "merged", axis=1)
    fine = _conv(w, merged, (12 * width, 4 * width), "mixed")
    parts = [
        _cells(w, x, channels, classes, stride, name)
        for x, channels, stride, name in (
            (fine, 4 * width, 8, "p8"),
            (coarse, 8 * width, 16, "p16"),
        )
    ]
    boxes = w.node("Concat", [part[0] for part in parts], "all.boxes", axis=1)
    scores = w.node("Concat", [part[1] for part in parts], "all.scores", axis=2)
    limit = w.constant("most", np.array(20, np.int64))
    kept = w.node("NonMaxSuppression", [boxes, scores, limit, w.scalar(0.5), w.scalar(0.55)],
                  "kept")  # fmt: skip
    column = {
        name: w.node("Gather", [kept, w.integers(*places)], f"kept.{name}", axis=1)
        for name, places in (("box", (0, 2)), ("score", (0, 1, 2)), ("class", (1,)))
    }
    w.node("GatherND", [boxes, column["box"]], "boxes")
    w.node("GatherND", [scores, column["score"]], "scores")
    w.node("Cast", [w.node("Squeeze", [column["class"], w.integers(1)], "kinds")], "classes",
           to=_FLOAT)  # fmt: skip
    inputs = {"image": (_FLOAT, (1, 3, "height", "width"))}
    outputs = {"boxes": ("found", 4), "scores": ("found",), "classes": ("found",)}
    return w.model(inputs, outputs, opset)


def _cells(w: Writer, x: str, channels: int, classes: int, stride: int, at: str) -> tuple[str, str]:
    """Add the boxes [1, cells, 4] and scores [1, classes, cells] of one scale."""
    weight = w.parameter(f"{at}.weight", (4 + classes, channels, 1, 1), "filter")
    bias = w.parameter(f"{at}.bias", (4 + classes,), "bias")
    raw = w.node("Conv", [x, weight, bias], f"{at}.raw", kernel_shape=[1, 1])
    flat = w.reshape(raw, [1, 4 + classes, -1], f"{at}.flat")
    names = [f"{at}.distances", f"{at}.logits"]
    w.node_of("Split", [flat, w.integers(4, classes)], f"{at}.parts", names, axis=1)
    scores = w.node("Sigmoid", [names[1]], f"{at}.scores")
    shape = w.node("Shape", [x], f"{at}.shape")
    one, zero = (w.constant(f"int.{k}", np.array(k, np.int64)) for k in (1, 0))
    places = []
    for axis, name in ((2, "y"), (3, "x")):
        index = w.constant(f"int.{axis}", np.array(axis, np.int64))
        count = w.node("Gather", [shape, index], f"{at}.{name}.count")
        cells = w.node("Range", [zero, count, one], f"{at}.{name}.cells")
        spread = w.reshape(cells, [-1, 1] if axis == 2 else [1, -1], f"{at}.{name}.spread")
        grid = w.node("Slice", [shape, w.integers(2), w.integers(4)], f"{at}.{name}.grid")
        filled = w.node("Expand", [spread, grid], f"{at}.{name}.filled")
        row = w.reshape(filled, [1, 1, -1], f"{at}.{name}.row")
        places.append(w.node("Cast", [row], f"{at}.{name}", to=_FLOAT))
    centres = w.node("Concat", places, f"{at}.centres", axis=1)
    softened = w.node("Softplus", [names[0]], f"{at}.softened")
    w.node_of("Split", [softened, w.integers(2, 2)], f"{at}.sides", [f"{at}.a", f"{at}.b"], axis=1)
    first = w.node("Sub", [centres, f"{at}.a"], f"{at}.first")
    last = w.node("Add", [centres, f"{at}.b"], f"{at}.last")
    corners = w.node("Concat", [first, last], f"{at}.corners", axis=1)
    scaled = w.node("Mul", [corners, w.scalar(float(stride))], f"{at}.scaled")
    return w.transpose(scaled, (0, 2, 1), f"{at}.boxes"), scores


NETWORKS: dict[str, Callable[[int | None], onnx.ModelProto]] = {
    "gpt2_cached": gpt2_cached,
    "llama_cached": llama_cached,
    "lstm_tagger": lstm_tagger,
    "detector": detector,
}
