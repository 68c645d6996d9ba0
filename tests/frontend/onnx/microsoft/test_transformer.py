# SPDX-License-Identifier: Apache-2.0
"""Operators of onnxruntime's own domain, each against onnxruntime."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper

import treadle
from tests.frontend.onnx.models import Arrays, check_with_onnxruntime, make, outputs_of

RNG = np.random.default_rng(11)
DOMAIN = "com.microsoft"


def _floats(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


def _check(kind: str, arrays: Arrays, outputs: int = 1, **attributes: object) -> None:
    """Run one node; arrays named with an underscore are left out, `total` is a constant."""
    names = ["" if n.startswith("_") else n for n in arrays]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(kind, names, results, domain=DOMAIN, **attributes)
    constants = {n: a for n, a in arrays.items() if n == "total"}
    model = make([node], {}, results, 17, constants, domains=[DOMAIN])
    given = {n: a for n, a in arrays.items() if not n.startswith("_") and n != "total"}
    for name, array in given.items():
        number = helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, number, array.shape))
    check_with_onnxruntime(model, given)


_erf = np.vectorize(math.erf)
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


@pytest.mark.parametrize("side", ["transBatchA", "transBatchB"])
def test_fused_product_with_the_batch_inside(side: str) -> None:
    a, b = _floats(2, 3, 5), _floats(2, 5, 4)
    if side == "transBatchA":
        a = _floats(3, 2, 5)
    else:
        b = _floats(5, 2, 4)
    _check("FusedMatMul", {"a": a, "b": b}, **{side: 1})


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4]),
     ("Tanh", []), ("Sigmoid", [])],
)  # fmt: skip
def test_fused_convolution(activation: str, parameters: list[float]) -> None:
    arrays = {"x": _floats(1, 4, 6, 6), "w": _floats(4, 4, 3, 3), "b": _floats(4)}
    more = {"activation": activation, "activation_params": parameters, "pads": [1, 1, 1, 1]}
    if not parameters:
        del more["activation_params"]
    _check("FusedConv", arrays, **more)
    if activation == "Relu":
        _check("FusedConv", {**arrays, "z": _floats(1, 4, 6, 6)}, **more)


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Tanh"])
def test_fused_gemm(activation: str) -> None:
    arrays = {"a": _floats(3, 5), "b": _floats(4, 5), "c": _floats(4)}
    more = {"activation_alpha": 0.3} if activation == "LeakyRelu" else {}
    _check("FusedGemm", arrays, transB=1, alpha=0.5, activation=activation, **more)


def test_sums_before_a_function() -> None:
    """These have no kernel for the CPU in onnxruntime."""
    x, bias, skip = _floats(2, 3, 8), _floats(1, 3, 8), _floats(2, 3, 8)
    total = x + bias
    powers = np.exp(total)
    halves = total[..., :4], total[..., 4:]
    wanted = {
        "BiasSoftmax": powers / powers.sum(-1, keepdims=True),
        "BiasAdd": total + skip,
        "BiasSplitGelu": halves[0] * halves[1] * (1 + _erf(halves[1] / np.sqrt(2))) / 2,
    }
    for kind, want in wanted.items():
        arrays = {"x": x, "b": bias} | ({"s": skip} if kind == "BiasAdd" else {})
        attributes = {"axis": 2, "is_inner_broadcast": 0} if kind == "BiasSoftmax" else {}
        node = helper.make_node(kind, list(arrays), ["y"], domain=DOMAIN, **attributes)
        shapes = {n: a.shape for n, a in arrays.items()}
        model = make([node], shapes, ["y"], 17, domains=[DOMAIN])
        np.testing.assert_allclose(outputs_of(model, arrays)[0], want, rtol=1e-5, atol=1e-6)


def _grouped(batch: int, steps: int, room: int, total: int) -> dict[str, np.ndarray]:
    """Return the inputs of four query heads and two of keys, of sixteen features each."""
    return {
        "q": _floats(batch, steps, 64),
        "k": _floats(batch, steps, 32),
        "v": _floats(batch, steps, 32),
        ("pk" if room else "_pk"): _floats(batch, 2, room, 16),
        ("pv" if room else "_pv"): _floats(batch, 2, room, 16),
        "last": np.full(batch, total - 1, "int32"),
        "total": np.array(total, "int32"),
    }


def _check_grouped(arrays: Arrays, **attributes: object) -> None:
    _check("GroupQueryAttention", arrays, 3, num_heads=4, kv_num_heads=2, **attributes)


@pytest.mark.parametrize("rotary", [0, 1])
def test_group_query_attention(rotary: int) -> None:
    tables = {"cos": _floats(20, 8), "sin": _floats(20, 8)} if rotary else {}
    for steps, room, total in ((5, 0, 5), (1, 6, 7), (1, 12, 7)):
        for batch in (1, 2):
            arrays = _grouped(batch, steps, room, total)
            _check_grouped({**arrays, **tables}, do_rotary=rotary)
            if steps > 1:
                _check_grouped({**arrays, **tables}, do_rotary=rotary, local_window_size=3)
                _check_grouped({**arrays, **tables}, do_rotary=rotary, softcap=2.0, scale=0.2)
                _check_grouped({**arrays, **tables}, do_rotary=rotary, smooth_softmax=1)


def test_group_query_attention_of_packed_inputs_with_a_bias() -> None:
    arrays = _grouped(1, 4, 0, 4)
    packed = np.concatenate([arrays.pop(n) for n in "qkv"], axis=2)
    arrays = {"q": packed, "_k": NOTHING, "_v": NOTHING, **arrays}
    _check_grouped(arrays)
    missing = {f"_{k}": NOTHING for k in range(3)}
    _check_grouped({**arrays, **missing, "bias": _floats(1, 1, 4, 4)})
    missing["_3"] = NOTHING
    _check_grouped({**arrays, **missing, "sink": _floats(4)})


def test_layer_normalization_before_it_was_standard() -> None:
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1, epsilon=1e-6)
    arrays = {"x": _floats(2, 3, 8), "s": _floats(8), "b": _floats(8)}
    shapes = {n: a.shape for n, a in arrays.items()}
    check_with_onnxruntime(make([node], shapes, ["y"], 12), arrays)


def test_packed_multi_head_attention() -> None:
    q, k, v = (_floats(2, 3, 2, 4) for _ in "qkv")
    flat = {n: x.reshape(2, 3, 8) for n, x in (("q", q), ("k", k), ("v", v))}
    forms = [{"q": np.stack([q, k, v], 3)}, {"q": flat["q"], "k": np.stack([k, v], 3)}]
    wanted = None
    for arrays in [flat, *forms]:
        names = list(arrays)
        node = helper.make_node("MultiHeadAttention", names, ["y"], domain=DOMAIN, num_heads=2)
        shapes = {n: a.shape for n, a in arrays.items()}
        (got,) = outputs_of(make([node], shapes, ["y"], 17, domains=[DOMAIN]), arrays)
        wanted = got if wanted is None else wanted
        np.testing.assert_array_equal(got, wanted)


def test_what_is_skipped_broadcasts_to_the_input_only() -> None:
    def exe(x: list[int | str], skip: list[int | str]) -> treadle.Executable:
        shapes = {"x": x, "skip": skip, "scale": [9]}
        node = helper.make_node("SkipLayerNormalization", list(shapes), ["y"], domain=DOMAIN)
        infos = [helper.make_tensor_value_info(n, 1, s) for n, s in shapes.items()]
        graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", 1, None)])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        return treadle.compile(helper.make_model(graph, opset_imports=opsets), dynamic=True)

    def arrays(x: int, skip: int) -> list[np.ndarray]:
        return [_floats(x, 2, 9), _floats(skip, 2, 9), _floats(9)]

    with pytest.raises(treadle.ModelError, match="does not broadcast to"):
        exe([1, 2, 9], [3, 2, 9])
    made = exe(["m", 2, 9], ["n", 2, 9])
    for x, skip in ((3, 3), (3, 1), (1, 1)):
        assert made.run(arrays(x, skip))[0].shape == (x, 2, 9)
    with pytest.raises(treadle.InputError, match="different sizes: 3 and 1"):
        made.run(arrays(1, 3))
