# SPDX-License-Identifier: Apache-2.0
"""Layers and operations against Keras: files that it saves, of one layer each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from treadle.build.reading import read_model

pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

L, O = keras.layers, keras.ops  # noqa: E741
IMAGE, ROWS, ROW = (6, 7, 4), (5, 4), (6,)

LAYERS: dict[str, tuple[tuple[int, ...], Callable[[], Any]]] = {
    "dense": (ROW, lambda: L.Dense(3, activation="gelu")),
    "dense of rows": (ROWS, lambda: L.Dense(3, activation="softmax", use_bias=False)),
    "einsum": (ROWS, lambda: L.EinsumDense("abc,cd->abd", (None, 7), bias_axes="d")),
    "conv1d": (ROWS, lambda: L.Conv1D(3, 2, padding="causal", dilation_rate=2)),
    "conv2d": (IMAGE, lambda: L.Conv2D(6, 3, strides=2, padding="same", groups=2)),
    "dilated": (IMAGE, lambda: L.Conv2D(3, 2, dilation_rate=2, activation="leaky_relu")),
    "conv3d": ((4, 5, 4, 2), lambda: L.Conv3D(3, 2, activation="hard_sigmoid")),
    "depthwise1d": (ROWS, lambda: L.DepthwiseConv1D(2, depth_multiplier=2)),
    "depthwise2d": (IMAGE, lambda: L.DepthwiseConv2D(3, strides=2, padding="same")),
    "separable1d": (ROWS, lambda: L.SeparableConv1D(3, 2)),
    "separable2d": (IMAGE, lambda: L.SeparableConv2D(5, 3, depth_multiplier=2, padding="same")),
    "transposed1d": (ROWS, lambda: L.Conv1DTranspose(3, 3, strides=2, padding="same")),
    "transposed2d": (IMAGE, lambda: L.Conv2DTranspose(3, 3, strides=2, padding="same")),
    "transposed valid": (IMAGE, lambda: L.Conv2DTranspose(3, (2, 4), strides=(3, 2))),
    "maxpool": (IMAGE, lambda: L.MaxPooling2D(3, strides=2, padding="same")),
    "maxpool1d": (ROWS, lambda: L.MaxPooling1D(2)),
    "averagepool": (IMAGE, lambda: L.AveragePooling2D(2, padding="same")),
    "averagepool3d": ((4, 4, 4, 2), lambda: L.AveragePooling3D(2)),
    "globalmax": (IMAGE, lambda: L.GlobalMaxPooling2D(keepdims=True)),
    "globalaverage": (ROWS, lambda: L.GlobalAveragePooling1D()),
    "batchnorm": (IMAGE, lambda: L.BatchNormalization(scale=False)),
    "batchnorm row": (ROW, lambda: L.BatchNormalization(center=False)),
    "batchnorm first": (IMAGE, lambda: L.BatchNormalization(axis=1)),
    "batchnorm middle": (IMAGE, lambda: L.BatchNormalization(axis=2)),
    "layernorm": (IMAGE, lambda: L.LayerNormalization(axis=(2, 3))),
    "layernorm inner": (IMAGE, lambda: L.LayerNormalization(axis=1)),
    "layernorm plain": (ROWS, lambda: L.LayerNormalization(scale=False, epsilon=0.1)),
    "groupnorm": (IMAGE, lambda: L.GroupNormalization(2)),
    "rmsnorm": (ROWS, lambda: L.RMSNormalization()),
    "unitnorm": (ROWS, lambda: L.UnitNormalization()),
    "normalization": (ROWS, lambda: L.Normalization(mean=[1, 2, 3, 4], variance=[1, 4, 9, 2])),
    "rescaling": (IMAGE, lambda: L.Rescaling(0.5, offset=-1)),
    "padding": (IMAGE, lambda: L.ZeroPadding2D(((1, 2), (0, 3)))),
    "padding1d": (ROWS, lambda: L.ZeroPadding1D((1, 2))),
    "cropping": (IMAGE, lambda: L.Cropping2D(((1, 2), (0, 3)))),
    "upsampling": (IMAGE, lambda: L.UpSampling2D((2, 3))),
    "upsampling linear": (IMAGE, lambda: L.UpSampling2D(2, interpolation="bilinear")),
    "upsampling1d": (ROWS, lambda: L.UpSampling1D(2)),
    "upsampling3d": ((2, 3, 4, 2), lambda: L.UpSampling3D((1, 2, 3))),
    "resizing": (IMAGE, lambda: L.Resizing(9, 4)),
    "resizing nearest": (IMAGE, lambda: L.Resizing(9, 4, interpolation="nearest")),
    "resizing cubic": (IMAGE, lambda: L.Resizing(9, 11, interpolation="bicubic")),
    "crop": (IMAGE, lambda: L.CenterCrop(3, 4)),
    "flatten": (IMAGE, lambda: L.Flatten()),
    "reshape": (IMAGE, lambda: L.Reshape((-1, 8))),
    "permute": (IMAGE, lambda: L.Permute((3, 1, 2))),
    "repeat": (ROW, lambda: L.RepeatVector(3)),
    "relu": (ROWS, lambda: L.ReLU(max_value=1.0, negative_slope=0.1, threshold=0.2)),
    "prelu": (IMAGE, lambda: L.PReLU(shared_axes=[1, 2], alpha_initializer="ones")),
    "elu": (ROWS, lambda: L.ELU(alpha=0.5)),
    "softmax": (ROWS, lambda: L.Softmax(axis=1)),
    "lstm": (ROWS, lambda: L.LSTM(3, return_sequences=True, go_backwards=True)),
    "lstm last": (ROWS, lambda: L.LSTM(3, use_bias=False, recurrent_activation="hard_sigmoid")),
    "gru": (ROWS, lambda: L.GRU(3, reset_after=False, return_sequences=True)),
    "gru last": (ROWS, lambda: L.GRU(3, bias_initializer="ones")),
    "rnn": (ROWS, lambda: L.SimpleRNN(3, activation="relu", go_backwards=True)),
    "bidirectional": (ROWS, lambda: L.Bidirectional(L.GRU(3, return_sequences=True), "ave")),
    "every step": (ROWS, lambda: L.TimeDistributed(L.Dense(3, activation="tanh"))),
    **{
        f"activation {name}": (ROWS, lambda name=name: L.Activation(name))
        for name in (
            "relu6", "softplus", "softsign", "selu", "silu", "mish", "exponential", "hard_silu",
            "hard_tanh", "log_sigmoid", "log_softmax", "squareplus", "tanh_shrink", "celu",
        )
    },
}  # fmt: skip


def values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    if dtype == "float32":
        return random.normal(size=shape).astype(dtype)
    return random.integers(0, 8, shape).astype(dtype)


def disturb(model: Any) -> None:
    """Give variables other values than those that layers begin with."""
    random = np.random.default_rng(1)
    for v in model.variables:
        if v.dtype.startswith(("float", "bfloat")):
            v.assign(np.abs(O.convert_to_numpy(v)) + random.uniform(0.1, 0.5, v.shape))


def check(model: Any, folder: Path, tolerance: float = 1e-5) -> None:
    disturb(model)
    path = folder / "model.keras"
    model.save(path)
    inputs = [values((2, *i.shape[1:]), i.dtype, k) for k, i in enumerate(model.inputs)]
    module = read_model(path, None, dynamic=True).module
    given = {p.name: v for p, v in zip(module.main.params, inputs, strict=True)}
    made = treadle.compile(module).run(given)
    expected = keras.tree.flatten(model(inputs if len(inputs) > 1 else inputs[0], training=False))
    for a, b in zip(made, expected, strict=True):
        wanted = O.convert_to_numpy(b)
        found = np.asarray(a)
        assert found.shape == wanted.shape
        scale = max(float(np.abs(wanted).max(initial=0)), 1e-6)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_alone(name: str, tmp_path: Path) -> None:
    shape, layer = LAYERS[name]
    inputs = keras.Input(shape)
    # TensorFlow rounds places between pixels to 1/1024 where it interpolates by cubic polynomials.
    tolerance = 2e-3 if name == "resizing cubic" else 1e-5
    check(keras.Model(inputs, layer()(inputs)), tmp_path, tolerance)


def test_merges(tmp_path: Path) -> None:
    a, b = keras.Input(ROWS), keras.Input(ROWS)
    merges = [L.Add(), L.Subtract(), L.Multiply(), L.Average(), L.Maximum(), L.Minimum(),
              L.Concatenate(axis=1), L.Dot(axes=(2, 2)), L.Dot(axes=1, normalize=True)]  # fmt: skip
    check(keras.Model([a, b], [merge([a, b]) for merge in merges]), tmp_path)


def test_attention(tmp_path: Path) -> None:
    a, b = keras.Input(ROWS), keras.Input((3, 4))
    mask = keras.Input((5, 3), dtype="int32")
    outputs = [
        L.MultiHeadAttention(2, 3)(a, b, attention_mask=mask),
        L.MultiHeadAttention(2, 3, value_dim=5, use_bias=False)(a, a, use_causal_mask=True),
        L.Attention(use_scale=True)([a, b]),
        L.AdditiveAttention()([a, b, b]),
    ]
    check(keras.Model([a, b, mask], outputs), tmp_path)


def test_operations(tmp_path: Path) -> None:
    x, y = keras.Input(ROWS), keras.Input(ROWS)
    outputs = [
        2.0 * x + y / (O.abs(y) + 1) - 3,
        x[:, 1:-1, ::2],
        x[..., None, 0],
        O.concatenate([x, y], axis=-1),
        O.stack([x, y], axis=1),
        O.mean(x, axis=(1, 2), keepdims=True),
        O.max(x, axis=-1),
        O.argmax(x, axis=-1),
        O.reshape(x, (-1, 2, 10)),
        O.transpose(x, (0, 2, 1)),
        O.expand_dims(x, 1),
        O.squeeze(O.expand_dims(x, 1), 1),
        O.matmul(x, O.transpose(y, (0, 2, 1))),
        O.einsum("abc,abd->acd", x, y),
        O.where(x > y, x, 0.0),
        O.clip(x, -0.5, 0.5),
        O.softmax(x, axis=1),
        O.gelu(x, approximate=False),
        O.take(x, [2, 0], axis=1),
        O.cast(x > 0, "float32"),
        O.sqrt(O.square(x)) + O.exp(y) - O.tanh(x) ** 2,
    ]
    check(keras.Model([x, y], outputs), tmp_path)


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "SimpleRNN"])
def test_steps_that_do_not_count(layer: str, tmp_path: Path) -> None:
    tokens = keras.Input((6,), dtype="int32")
    x = L.Embedding(8, 4, mask_zero=True)(tokens)
    both = L.Bidirectional(getattr(L, layer)(3, return_sequences=True))(x)
    last = getattr(L, layer)(3)(L.Dense(4)(both))
    check(keras.Model(tokens, [both, last, L.GlobalAveragePooling1D()(x)]), tmp_path)


def test_masks_of_a_sequential_are_handed_on(tmp_path: Path) -> None:
    layers = [keras.Input(ROWS), L.Masking(0.0), L.Dropout(0.5), L.LSTM(3)]
    check(keras.Sequential(layers), tmp_path)


def test_states_and_shared_layers(tmp_path: Path) -> None:
    a, b = keras.Input(ROWS), keras.Input(ROWS)
    lstm = L.LSTM(3, return_state=True)
    first, h, c = lstm(a)
    second, _, _ = lstm(b, initial_state=[h, c])
    check(keras.Model([a, b], {"first": first, "second": second}), tmp_path)


def test_networks_of_networks(tmp_path: Path) -> None:
    inner = keras.Sequential([keras.Input((6, 7, 3)), L.Conv2D(4, 3), L.BatchNormalization()])
    image = keras.Input((6, 7, 3))
    deep = keras.Model(image, L.Dense(3)(L.Flatten()(inner(image))))
    outer = keras.Sequential([keras.Input((6, 7, 3)), deep, L.Dense(2), L.Dense(2)])
    check(outer, tmp_path)


@pytest.mark.parametrize(("policy", "tolerance"), [("mixed_float16", 5e-3), ("float64", 1e-6)])
def test_types_that_layers_compute_in(policy: str, tolerance: float, tmp_path: Path) -> None:
    image = keras.Input(IMAGE)
    x = L.Conv2D(4, 3, dtype=policy)(image)
    x = L.LayerNormalization(dtype=policy)(x)
    check(keras.Model(image, L.Dense(3, dtype=policy)(L.Flatten()(x))), tmp_path, tolerance)
