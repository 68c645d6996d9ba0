# SPDX-License-Identifier: Apache-2.0
"""Transformers as ONNX models, each written the way a common exporter writes its kind.

BERT: normalisation and GELU in single operators, separate projections of query, key and value, an
additive mask. GPT-2: one Gemm for all three, a causal Where, GELU with tanh, an output projection
that shares the embedding. ViT: LayerNormalization nodes, one product for all three, a 5-D
transpose. The decoder: RMS normalisation, rotary positions, shared keys, gated linear units.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.onnx_writer import Writer
from benchmarks.weights import Role

HEAD = 64
"""The size of an attention head in all of them."""


def linear(w: Writer, x: str, sizes: tuple[int, int], name: str, *, bias: bool = True) -> str:
    """Add x times a weight [in, out], plus a bias unless `bias` is false."""
    product = w.node(
        "MatMul", [x, w.parameter(f"{name}.weight", sizes, "dense_transposed")], f"{name}.product"
    )
    if not bias:
        return product
    return w.node("Add", [w.parameter(f"{name}.bias", sizes[1:], "bias"), product], name)


def _gemm(w: Writer, x: str, rows: int, sizes: tuple[int, int], name: str) -> str:
    """Return a product as GPT-2's exporter writes it: on two axes, and back."""
    flat = w.reshape(x, [-1, sizes[0]], f"{name}.rows")
    weight = w.parameter(f"{name}.weight", sizes, "dense_transposed")
    bias = w.parameter(f"{name}.bias", sizes[1:], "bias")
    product = w.node("Gemm", [flat, weight, bias], f"{name}.gemm")
    return w.reshape(product, [1, rows, sizes[1]], name)


def layer_norm(w: Writer, x: str, size: int, name: str) -> str:
    """Add a LayerNormalization of the last axis."""
    weight = w.parameter(f"{name}.weight", (size,), "norm_scale")
    bias = w.parameter(f"{name}.bias", (size,), "norm_shift")
    return w.node("LayerNormalization", [x, weight, bias], name, axis=-1, epsilon=1e-5)


def _norm_in_steps(w: Writer, x: str, size: int, name: str) -> str:
    mean = w.node("ReduceMean", [x], f"{name}.mean", axes=[-1])
    centred = w.node("Sub", [x, mean], f"{name}.centred")
    square = w.node("Pow", [centred, w.scalar(2.0)], f"{name}.square")
    variance = w.node("ReduceMean", [square], f"{name}.variance", axes=[-1])
    shifted = w.node("Add", [variance, w.scalar(1e-12)], f"{name}.shifted")
    deviation = w.node("Sqrt", [shifted], f"{name}.deviation")
    unit = w.node("Div", [centred, deviation], f"{name}.unit")
    weight = w.parameter(f"{name}.weight", (size,), "norm_scale")
    scaled = w.node("Mul", [unit, weight], f"{name}.scaled")
    return w.node("Add", [scaled, w.parameter(f"{name}.bias", (size,), "norm_shift")], name)


def rms_norm(w: Writer, x: str, size: int, name: str) -> str:
    """Add a normalisation by the root of the mean square, in steps."""
    square = w.node("Pow", [x, w.scalar(2.0)], f"{name}.square")
    mean = w.node("ReduceMean", [square], f"{name}.mean", axes=[-1])
    shifted = w.node("Add", [mean, w.scalar(1e-6)], f"{name}.shifted")
    inverse = w.node("Reciprocal", [w.node("Sqrt", [shifted], f"{name}.root")], f"{name}.inverse")
    unit = w.node("Mul", [x, inverse], f"{name}.unit")
    return w.node("Mul", [w.parameter(f"{name}.weight", (size,), "norm_scale"), unit], name)


def _gelu(w: Writer, x: str, name: str) -> str:
    scaled = w.node("Div", [x, w.scalar(2.0**0.5)], f"{name}.scaled")
    erf = w.node("Erf", [scaled], f"{name}.erf")
    shifted = w.node("Add", [erf, w.scalar(1.0)], f"{name}.shifted")
    product = w.node("Mul", [x, shifted], f"{name}.product")
    return w.node("Mul", [product, w.scalar(0.5)], name)


def gelu_tanh(w: Writer, x: str, name: str) -> str:
    """Add GELU in its form with tanh, in steps."""
    cube = w.node("Pow", [x, w.scalar(3.0)], f"{name}.cube")
    part = w.node("Mul", [cube, w.scalar(0.044715)], f"{name}.part")
    total = w.node("Add", [x, part], f"{name}.total")
    scaled = w.node("Mul", [total, w.scalar((2 / np.pi) ** 0.5)], f"{name}.scaled")
    tanh = w.node("Tanh", [scaled], f"{name}.tanh")
    shifted = w.node("Add", [tanh, w.scalar(1.0)], f"{name}.shifted")
    half = w.node("Mul", [x, w.scalar(0.5)], f"{name}.half")
    return w.node("Mul", [half, shifted], name)


def _heads(w: Writer, x: str, rows: int, heads: int, name: str, perm: tuple[int, ...]) -> str:
    split = w.reshape(x, [1, rows, heads, HEAD], f"{name}.split")
    return w.transpose(split, perm, f"{name}.heads")


def _joined(w: Writer, x: str, rows: int, width: int, name: str) -> str:
    return w.reshape(w.transpose(x, (0, 2, 1, 3), f"{name}.rows"), [1, rows, width], name)


def _bert(w: Writer, rows: int, width: int, layers: int, vocabulary: int) -> str:
    words = w.parameter("embeddings.word", (vocabulary, width), "embedding")
    places = w.parameter("embeddings.position", (1, rows, width), "embedding")
    taken = w.node("Gather", [words, "input_ids"], "embeddings.words")
    x = _norm_in_steps(w, w.node("Add", [taken, places], "embeddings.sum"), width, "embeddings")
    mask = w.node("Unsqueeze", ["attention_mask", w.integers(1, 2)], "mask.spread")
    mask = w.node("Cast", [mask], "mask.float", to=TensorProto.FLOAT)
    mask = w.node("Sub", [w.scalar(1.0), mask], "mask.inverse")
    mask = w.node("Mul", [mask, w.scalar(-10000.0)], "mask")
    for layer in range(layers):
        at = f"encoder.{layer}"
        heads = {}
        for part in ("query", "key", "value"):
            projected = linear(w, x, (width, width), f"{at}.{part}")
            perm = (0, 2, 3, 1) if part == "key" else (0, 2, 1, 3)
            heads[part] = _heads(w, projected, rows, width // HEAD, f"{at}.{part}", perm)
        scores = w.node("MatMul", [heads["query"], heads["key"]], f"{at}.products")
        scores = w.node("Div", [scores, w.scalar(HEAD**0.5)], f"{at}.scores")
        masked = w.node("Add", [scores, mask], f"{at}.masked")
        weights = w.node("Softmax", [masked], f"{at}.weights", axis=-1)
        context = w.node("MatMul", [weights, heads["value"]], f"{at}.context")
        context = _joined(w, context, rows, width, f"{at}.joined")
        output = linear(w, context, (width, width), f"{at}.output")
        total = w.node("Add", [output, x], f"{at}.residual")
        x = _norm_in_steps(w, total, width, f"{at}.attention.norm")
        inner = _gelu(w, linear(w, x, (width, 4 * width), f"{at}.inner"), f"{at}.gelu")
        outer = linear(w, inner, (4 * width, width), f"{at}.outer")
        x = _norm_in_steps(w, w.node("Add", [outer, x], f"{at}.sum"), width, f"{at}.norm")
    return x


def bert_base(opset: int | None = None, rows: int = 128) -> onnx.ModelProto:
    """Return BERT-base: int64 ids and mask in, hidden states and the pooled first one out."""
    width, vocabulary = 768, 30522
    w = Writer("bert_base")
    w.node("Identity", [_bert(w, rows, width, 12, vocabulary)], "last_hidden_state")
    index = w.constant("first", np.array(0, np.int64))
    first = w.node("Gather", ["last_hidden_state", index], "pooler.first", axis=1)
    weight = w.parameter("pooler.weight", (width, width), "dense")
    dense = w.node("Gemm", [first, weight, w.parameter("pooler.bias", (width,), "bias")], "pooler",
                   transB=1)  # fmt: skip
    w.node("Tanh", [dense], "pooler_output")
    ids = (TensorProto.INT64, (1, rows))
    outputs = {"last_hidden_state": (1, rows, width), "pooler_output": (1, width)}
    return w.model({"input_ids": ids, "attention_mask": ids}, outputs, opset)


def gpt2(opset: int | None = None, rows: int = 64) -> onnx.ModelProto:
    """Return GPT-2 small: int64 ids in, logits of every position out."""
    width, vocabulary, layers = 768, 50257, 12
    w = Writer("gpt2")
    words = w.parameter("words", (vocabulary, width), "embedding")
    places = w.parameter("places", (1024, width), "embedding")
    where = w.constant("positions", np.arange(rows, dtype=np.int64)[None])
    x = w.node("Add", [w.node("Gather", [words, "input_ids"], "words.taken"),
                       w.node("Gather", [places, where], "places.taken")], "embedded")  # fmt: skip
    causal = w.constant("causal", np.tril(np.ones((1, 1, rows, rows), bool)))
    for layer in range(layers):
        at = f"block.{layer}"
        normal = layer_norm(w, x, width, f"{at}.norm1")
        projected = _gemm(w, normal, rows, (width, 3 * width), f"{at}.qkv")
        parts = [f"{at}.{part}" for part in ("query", "key", "value")]
        w.node_of("Split", [projected, w.integers(width, width, width)], f"{at}.split", parts,
                  axis=2)  # fmt: skip
        perms = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        q, k, v = (
            _heads(w, part, rows, width // HEAD, part, perm)
            for part, perm in zip(parts, perms, strict=True)
        )
        scores = w.node("Div", [w.node("MatMul", [q, k], f"{at}.products"), w.scalar(HEAD**0.5)],
                        f"{at}.scores")  # fmt: skip
        masked = w.node("Where", [causal, scores, w.scalar(float(np.finfo(np.float32).min))],
                        f"{at}.masked")  # fmt: skip
        weights = w.node("Softmax", [masked], f"{at}.weights", axis=-1)
        context = w.node("MatMul", [weights, v], f"{at}.context")
        context = _joined(w, context, rows, width, f"{at}.joined")
        x = w.node("Add", [_gemm(w, context, rows, (width, width), f"{at}.output"), x],
                   f"{at}.residual")  # fmt: skip
        normal = layer_norm(w, x, width, f"{at}.norm2")
        inner = gelu_tanh(w, _gemm(w, normal, rows, (width, 4 * width), f"{at}.inner"),
                           f"{at}.gelu")  # fmt: skip
        outer = _gemm(w, inner, rows, (4 * width, width), f"{at}.outer")
        x = w.node("Add", [x, outer], f"{at}.sum")
    shared = w.transpose(words, (1, 0), "head.weight")
    w.node("MatMul", [layer_norm(w, x, width, "norm"), shared], "logits")
    inputs = {"input_ids": (int(TensorProto.INT64), (1, rows))}
    return w.model(inputs, {"logits": (1, rows, vocabulary)}, opset)


def vit_base(opset: int | None = None) -> onnx.ModelProto:
    """Return ViT-base with patches of 16 x 16 on an image of 224 x 224."""
    width, layers, rows = 768, 12, 197
    w = Writer("vit_base")
    filters = w.parameter("patch.weight", (width, 3, 16, 16), "filter")
    patches = w.node("Conv", ["image", filters, w.parameter("patch.bias", (width,), "bias")],
                     "patch", kernel_shape=[16, 16], strides=[16, 16])  # fmt: skip
    patches = w.transpose(w.reshape(patches, [1, width, 196], "patch.flat"), (0, 2, 1), "patches")
    token = w.parameter("class", (1, 1, width), "embedding")
    x = w.node("Concat", [token, patches], "tokens", axis=1)
    x = w.node("Add", [x, w.parameter("positions", (1, rows, width), "embedding")], "embedded")
    for layer in range(layers):
        x = _vit_block(w, x, rows, width, f"block.{layer}")
    first = w.constant("first", np.array(0, np.int64))
    token = w.node("Gather", [layer_norm(w, x, width, "norm"), first], "token", axis=1)
    weight = w.parameter("head.weight", (1000, width), "dense")
    w.node("Gemm", [token, weight, w.parameter("head.bias", (1000,), "bias")], "logits", transB=1)
    inputs = {"image": (int(TensorProto.FLOAT), (1, 3, 224, 224))}
    return w.model(inputs, {"logits": (1, 1000)}, opset)


def _vit_block(w: Writer, x: str, rows: int, width: int, at: str) -> str:
    projected = linear(w, layer_norm(w, x, width, f"{at}.norm1"), (width, 3 * width), f"{at}.qkv")
    split = w.reshape(projected, [1, rows, 3, width // HEAD, HEAD], f"{at}.qkv.split")
    moved = w.transpose(split, (2, 0, 3, 1, 4), f"{at}.qkv.heads")
    q, k, v = (
        w.node(
            "Gather",
            [moved, w.constant(f"part.{i}", np.array(i, np.int64))],
            f"{at}.part.{i}",
            axis=0,
        )
        for i in range(3)
    )
    scaled = w.node("Mul", [q, w.scalar(HEAD**-0.5)], f"{at}.scaled")
    keys = w.transpose(k, (0, 1, 3, 2), f"{at}.keys")
    scores = w.node("MatMul", [scaled, keys], f"{at}.scores")
    weights = w.node("Softmax", [scores], f"{at}.weights", axis=-1)
    context = _joined(w, w.node("MatMul", [weights, v], f"{at}.context"), rows, width,
                      f"{at}.joined")  # fmt: skip
    x = w.node("Add", [x, linear(w, context, (width, width), f"{at}.output")], f"{at}.residual")
    normal = layer_norm(w, x, width, f"{at}.norm2")
    inner = _gelu(w, linear(w, normal, (width, 4 * width), f"{at}.inner"), f"{at}.gelu")
    return w.node("Add", [x, linear(w, inner, (4 * width, width), f"{at}.outer")], f"{at}.sum")


def rotated(w: Writer, x: str, name: str) -> str:
    """Add x with its positions turned into angles: x * cos + (-x2, x1) * sin."""
    half, end = HEAD // 2, np.iinfo(np.int64).max
    axis = w.integers(3)
    low = w.node("Slice", [x, w.integers(0), w.integers(half), axis], f"{name}.low")
    high = w.node("Slice", [x, w.integers(half), w.integers(int(end)), axis], f"{name}.high")
    turned = w.node("Concat", [w.node("Neg", [high], f"{name}.minus"), low], f"{name}.turned",
                    axis=3)  # fmt: skip
    even = w.node("Mul", [x, "cosines"], f"{name}.even")
    return w.node("Add", [even, w.node("Mul", [turned, "sines"], f"{name}.odd")], f"{name}.rotated")


def _repeated(w: Writer, x: str, heads: int, times: int, rows: int, name: str) -> str:
    spread = w.node("Unsqueeze", [x, w.integers(2)], f"{name}.spread")
    shape = w.integers(1, heads, times, rows, HEAD)
    filled = w.node("Expand", [spread, shape], f"{name}.filled")
    return w.reshape(filled, [1, heads * times, rows, HEAD], f"{name}.repeated")


def gated_units(w: Writer, x: str, sizes: tuple[int, int], at: str) -> str:
    """Add silu(x gate) * (x up), times a weight that leads back; `sizes` are outer and inner."""
    width, hidden = sizes
    gate = linear(w, x, (width, hidden), f"{at}.gate", bias=False)
    silu = w.node("Mul", [gate, w.node("Sigmoid", [gate], f"{at}.sigmoid")], f"{at}.silu")
    up = linear(w, x, (width, hidden), f"{at}.up", bias=False)
    inner = w.node("Mul", [silu, up], f"{at}.inner")
    return linear(w, inner, (hidden, width), f"{at}.down", bias=False)


def llama_like(opset: int | None = None, rows: int = 32) -> onnx.ModelProto:
    """Return a decoder of 8 layers with 8 heads that share 2 heads of keys and values."""
    width, hidden, vocabulary, heads, shared = 512, 1408, 8000, 8, 2
    w = Writer("llama_like")
    angles = np.outer(np.arange(rows), 10000.0 ** -(np.arange(0, HEAD, 2) / HEAD))
    angles = np.concatenate([angles, angles], axis=1)[None, None]
    w.constant("cosines", np.cos(angles).astype(np.float32))
    w.constant("sines", np.sin(angles).astype(np.float32))
    causal = w.constant("causal", np.triu(np.full((rows, rows), -1e9, np.float32), 1)[None, None])
    words = w.parameter("words", (vocabulary, width), "embedding")
    x = w.node("Gather", [words, "input_ids"], "embedded")
    for layer in range(8):
        at = f"layer.{layer}"
        normal = rms_norm(w, x, width, f"{at}.norm1")
        q, k, v = (
            _heads(
                w,
                linear(w, normal, (width, count * HEAD), f"{at}.{part}", bias=False),
                rows,
                count,
                f"{at}.{part}",
                (0, 2, 1, 3),
            )
            for part, count in (("query", heads), ("key", shared), ("value", shared))
        )
        q, k = rotated(w, q, f"{at}.query"), rotated(w, k, f"{at}.key")
        k = _repeated(w, k, shared, heads // shared, rows, f"{at}.key")
        v = _repeated(w, v, shared, heads // shared, rows, f"{at}.value")
        keys = w.transpose(k, (0, 1, 3, 2), f"{at}.key.columns")
        scores = w.node("Mul", [w.node("MatMul", [q, keys], f"{at}.products"),
                                w.scalar(HEAD**-0.5)], f"{at}.scores")  # fmt: skip
        masked = w.node("Add", [scores, causal], f"{at}.masked")
        weights = w.node("Softmax", [masked], f"{at}.weights", axis=-1)
        context = _joined(w, w.node("MatMul", [weights, v], f"{at}.context"), rows, width,
                          f"{at}.joined")  # fmt: skip
        output = linear(w, context, (width, width), f"{at}.output", bias=False)
        x = w.node("Add", [x, output], f"{at}.residual")
        normal = rms_norm(w, x, width, f"{at}.norm2")
        x = w.node("Add", [x, gated_units(w, normal, (width, hidden), at)], f"{at}.sum")
    role: Role = "dense_transposed"
    head = w.parameter("head.weight", (width, vocabulary), role)
    w.node("MatMul", [rms_norm(w, x, width, "norm"), head], "logits")
    inputs = {"input_ids": (int(TensorProto.INT64), (1, rows))}
    return w.model(inputs, {"logits": (1, rows, vocabulary)}, opset)


NETWORKS: dict[str, Callable[[int | None], onnx.ModelProto]] = {
    "vit_base": vit_base,
    "bert_base": bert_base,
    "gpt2": gpt2,
    "llama_like": llama_like,
}
