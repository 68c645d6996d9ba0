# SPDX-License-Identifier: Apache-2.0
"""Converts ten Keras networks of our own to TFLite files, in float32 and quantised.

`python scripts/keras_to_tflite.py FOLDER` needs TensorFlow, in an environment of its own. Weights
are random from fixed seeds: what is compared is arithmetic, not accuracy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any  # models and layers of Keras, which has no types

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
CALIBRATION_RUNS = 8


def _conv_block(x: Any, filters: int, kernel: int = 3, stride: int = 1) -> Any:
    x = layers.Conv2D(filters, kernel, strides=stride, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU(max_value=6)(x)


def mobilenet() -> Any:
    """Depthwise separable convolutions with linear bottlenecks and residual additions."""
    image = tf.keras.Input((96, 96, 3), batch_size=1)
    x = _conv_block(image, 16, stride=2)
    for filters, stride in ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1)):
        before = x
        y = _conv_block(x, 4 * int(x.shape[-1]), kernel=1)
        y = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)(y)
        y = layers.ReLU(max_value=6)(layers.BatchNormalization()(y))
        x = layers.BatchNormalization()(layers.Conv2D(filters, 1, use_bias=False)(y))
        if stride == 1 and before.shape[-1] == filters:
            x = layers.Add()([before, x])
    x = layers.GlobalAveragePooling2D()(_conv_block(x, 64, kernel=1))
    return tf.keras.Model(image, layers.Dense(10, activation="softmax")(x))


def efficientnet() -> Any:
    """Squeeze and excitation with swish."""
    image = tf.keras.Input((64, 64, 3), batch_size=1)
    x = layers.Activation("swish")(layers.Conv2D(16, 3, strides=2, padding="same")(image))
    for filters in (16, 24):
        y = layers.Activation("swish")(layers.Conv2D(48, 1)(x))
        y = layers.Activation("swish")(layers.DepthwiseConv2D(5, padding="same", strides=2)(y))
        s = layers.GlobalAveragePooling2D(keepdims=True)(y)
        s = layers.Conv2D(48, 1, activation="sigmoid")(layers.Conv2D(8, 1, activation="swish")(s))
        x = layers.Conv2D(filters, 1)(layers.Multiply()([y, s]))
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(image, layers.Dense(10)(x))


def resnet() -> Any:
    """Residual blocks of two convolutions, with a projection."""
    image = tf.keras.Input((64, 64, 3), batch_size=1)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(_conv_block(image, 16, 7, 2))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        shortcut = x if stride == 1 else layers.Conv2D(filters, 1, strides=stride)(x)
        y = _conv_block(x, filters, stride=stride)
        y = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(y))
        x = layers.ReLU()(layers.Add()([shortcut, y]))
    x = layers.Flatten()(layers.AveragePooling2D(2)(x))
    return tf.keras.Model(image, layers.Dense(10)(x))


def unet() -> Any:
    """An encoder and a decoder with transposed convolutions, resizes and concatenations."""
    image = tf.keras.Input((64, 64, 3), batch_size=1)
    a = _conv_block(image, 8)
    b = _conv_block(layers.MaxPooling2D(2)(a), 16)
    c = _conv_block(layers.MaxPooling2D(2)(b), 32)
    up = layers.Conv2DTranspose(16, 3, strides=2, padding="same", activation="relu")(c)
    d = _conv_block(layers.Concatenate()([up, b]), 16)
    up = layers.UpSampling2D(2, interpolation="bilinear")(d)
    e = _conv_block(layers.Concatenate()([up, a]), 8)
    return tf.keras.Model(image, layers.Conv2D(2, 1, activation="sigmoid")(e))


def detector() -> Any:
    """Heads on two scales, with leaky ReLU and nearest upsampling."""
    image = tf.keras.Input((64, 64, 3), batch_size=1)
    x = layers.LeakyReLU(negative_slope=0.1)(layers.Conv2D(16, 3, strides=2, padding="same")(image))
    y = layers.LeakyReLU(negative_slope=0.1)(layers.Conv2D(32, 3, strides=2, padding="same")(x))
    z = layers.LeakyReLU(negative_slope=0.1)(layers.Conv2D(32, 3, strides=2, padding="same")(y))
    coarse = layers.Reshape((-1, 6))(layers.Conv2D(18, 1)(z))
    up = layers.Concatenate()([layers.UpSampling2D(2)(z), y])
    fine = layers.Reshape((-1, 6))(layers.Conv2D(18, 1)(up))
    return tf.keras.Model(image, layers.Concatenate(axis=1)([coarse, fine]))


def keywords() -> Any:
    """A spectrogram through depthwise convolutions with valid padding."""
    sound = tf.keras.Input((49, 40), batch_size=1)
    x = layers.Reshape((49, 40, 1))(sound)
    x = layers.Conv2D(24, (10, 4), strides=(2, 2), padding="same", activation="relu")(x)
    for _ in range(2):
        x = layers.DepthwiseConv2D(3, activation="relu")(x)
        x = layers.Conv2D(24, 1, activation="relu")(x)
    x = layers.GlobalMaxPooling2D()(x)
    return tf.keras.Model(sound, layers.Dense(12, activation="softmax")(x))


def autoencoder() -> Any:
    """Dense layers down and up again."""
    frame = tf.keras.Input((128,), batch_size=1)
    x = frame
    for width in (64, 32, 8, 32, 64):
        x = layers.Dense(width, activation="relu")(x)
    return tf.keras.Model(frame, layers.Dense(128, activation="tanh")(x))


def lstm() -> Any:
    """A recurrent layer over a sequence of known length."""
    sequence = tf.keras.Input((20, 12), batch_size=1)
    x = layers.LSTM(16, return_sequences=True)(sequence)
    x = layers.LSTM(16)(x)
    return tf.keras.Model(sequence, layers.Dense(5, activation="softmax")(x))


def gru() -> Any:
    """Gated recurrent units in both directions."""
    sequence = tf.keras.Input((16, 8), batch_size=1)
    x = layers.Bidirectional(layers.GRU(12))(sequence)
    return tf.keras.Model(sequence, layers.Dense(4)(x))


def transformer() -> Any:
    """A block of attention with normalisation over embedded tokens."""
    tokens = tf.keras.Input((24,), batch_size=1, dtype="int32")
    x = layers.Embedding(100, 32)(tokens)
    y = layers.MultiHeadAttention(4, 8)(x, x)
    x = layers.LayerNormalization()(layers.Add()([x, y]))
    y = layers.Dense(32)(layers.Dense(64, activation="gelu")(x))
    x = layers.LayerNormalization()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling1D()(x)
    return tf.keras.Model(tokens, layers.Dense(3, activation="softmax")(x))


NETWORKS: dict[str, Callable[[], Any]] = {
    f.__name__: f
    for f in (
        mobilenet,
        efficientnet,
        resnet,
        unet,
        detector,
        keywords,
        autoencoder,
        lstm,
        gru,
        transformer,
    )
}
"""The networks by name."""

QUANTISED = ("mobilenet", "efficientnet", "resnet", "unet", "detector", "keywords", "autoencoder")
"""Those that are quantised to integers, too."""


def _inputs(model: Any) -> Iterator[list[np.ndarray]]:
    random = np.random.default_rng(0)
    for _ in range(CALIBRATION_RUNS):
        yield [
            random.normal(size=i.shape).astype("float32")
            if i.dtype == "float32"
            else random.integers(0, 100, i.shape).astype("int32")
            for i in model.inputs
        ]


def _converter(model: Any) -> Any:
    made = tf.lite.TFLiteConverter.from_keras_model(model)
    made._experimental_lower_tensor_list_ops = True
    return made


def converted(model: Any, kind: str) -> bytes:
    """Return a network as a TFLite file: float, float16, dynamic, int8, uint8 or int16."""
    made = _converter(model)
    if kind == "float":
        return bytes(made.convert())
    made.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        made.target_spec.supported_types = [tf.float16]
    elif kind != "dynamic":
        made.representative_dataset = lambda: _inputs(model)
        ops = tf.lite.OpsSet.TFLITE_BUILTINS_INT8
        if kind == "int16":
            ops = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        made.target_spec.supported_ops = [ops]
        types = {"int8": tf.int8, "uint8": tf.uint8, "int16": tf.int16}
        made.inference_input_type = made.inference_output_type = types[kind]
    return bytes(made.convert())


def randomised(model: Any) -> Any:
    """Return a network with normalisations that are none of the identity."""
    random = np.random.default_rng(1)
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            scale, shift, mean, variance = layer.get_weights()
            layer.set_weights(
                [
                    random.uniform(0.5, 1.5, scale.shape),
                    random.normal(0, 0.2, shift.shape),
                    random.normal(0, 0.2, mean.shape),
                    random.uniform(0.5, 1.5, variance.shape),
                ]
            )
    return model


def main() -> None:
    """Write NAME_KIND.tflite of every network to a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NETWORKS:
        tf.keras.utils.set_random_seed(0)
        model = randomised(NETWORKS[name]())
        kinds = ["float", "float16", "dynamic"]
        if name in QUANTISED:
            kinds += ["int8", "uint8", "int16"]
        for kind in kinds:
            path = arguments.folder / f"{name}_{kind}.tflite"
            try:
                path.write_bytes(converted(model, kind))
            except Exception as error:  # what the converter refuses is no fault of ours
                print(f"{path.name}: not converted: {str(error)[:150]}")
            else:
                print(f"{path.name}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
