# SPDX-License-Identifier: Apache-2.0
"""Operators of onnxruntime's own domain, each against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.frontend.onnx.models import Arrays, check_with_onnxruntime, make

RNG = np.random.default_rng(11)
DOMAIN = "com.microsoft"


def _floats(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


def _check(kind: str, arrays: Arrays, outputs: int = 1, **attributes: object) -> None:
    """Run one node; arrays whose name starts with an underscore are left out."""
    names = ["" if n.startswith("_") else n for n in arrays]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(kind, names, results, domain=DOMAIN, **attributes)
    model = make([node], {}, results, 17, domains=[DOMAIN])
    given = {n: a for n, a in arrays.items() if not n.startswith("_")}
    for name, array in given.items():
        number = helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, number, array.shape))
    check_with_onnxruntime(model, given)


NOTHING = np.zeros(0, "float32")


def test_activations() -> None:
    x, bias = _floats(3, 8) * 4, _floats(8)
    _check("Gelu", {"x": x})
    _check("BiasGelu", {"x": x, "b": bias})
    _check("FastGelu", {"x": x})
    _check("FastGelu", {"x": x, "b": bias})
    _check("QuickGelu", {"x": x}, alpha=1.5)


@pytest.mark.parametrize(("turn_a", "turn_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_product(turn_a: int, turn_b: int) -> None:
    a = _floats(2, 5, 3) if turn_a else _floats(2, 3, 5)
    b = _floats(2, 4, 5) if turn_b else _floats(2, 5, 4)
    _check("FusedMatMul", {"a": a, "b": b}, transA=turn_a, transB=turn_b, alpha=0.5)


def test_normalisations_of_sums() -> None:
    x, skip, scale, shift, bias = _floats(2, 3, 8), _floats(2, 3, 8), *(_floats(8) for _ in "abc")
    arrays = {"x": x, "skip": skip, "scale": scale, "shift": shift, "bias": bias}
    _check("SkipLayerNormalization", arrays, epsilon=1e-5)
    del arrays["shift"]
    _check("SkipSimplifiedLayerNormalization", arrays, epsilon=1e-5)


def test_embeddings() -> None:
    arrays = {
        "ids": RNG.integers(0, 20, (2, 5)).astype("int32"),
        "segments": RNG.integers(0, 2, (2, 5)).astype("int32"),
        "words": _floats(20, 8),
        "positions": _floats(9, 8),
        "kinds": _floats(2, 8),
        "scale": _floats(8),
        "shift": _floats(8),
        "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32"),
    }
    _check("EmbedLayerNormalization", arrays, 2, epsilon=1e-5)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", ["none", "raw", "lengths"])
def test_attention(mask: str, causal: int) -> None:
    arrays = {"x": _floats(2, 5, 8), "w": _floats(8, 24), "b": _floats(24)}
    if mask == "raw":
        arrays["mask"] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")
    if mask == "lengths":
        arrays["mask"] = np.array([3, 5], "int32")
    _check("Attention", arrays, num_heads=2, unidirectional=causal)


def test_attention_with_a_past() -> None:
    arrays = {"x": _floats(2, 1, 8), "w": _floats(8, 24), "b": _floats(24), "_": NOTHING}
    arrays["past"] = _floats(2, 2, 2, 4, 4)
    _check("Attention", arrays, 2, num_heads=2, unidirectional=1)


def test_multi_head_attention() -> None:
    arrays = {"q": _floats(2, 3, 8), "k": _floats(2, 5, 8), "v": _floats(2, 5, 8)}
    _check("MultiHeadAttention", arrays, num_heads=2)
    _check("MultiHeadAttention", {**arrays, "b": _floats(24)}, num_heads=2, scale=0.3)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32")
    _check("MultiHeadAttention", {**arrays, "_": NOTHING, "m": mask}, num_heads=2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    arrays = {
        "x": _floats(2, 3, 16),
        "p": RNG.integers(0, 9, (2, 3)),
        "cos": _floats(9, 4),
        "sin": _floats(9, 4),
    }
    _check("RotaryEmbedding", arrays, interleaved=interleaved)
    _check("RotaryEmbedding", {**arrays, "p": np.array([4])}, interleaved=interleaved)
    _check("RotaryEmbedding", {**arrays, "x": _floats(2, 2, 3, 8)}, interleaved=interleaved)
