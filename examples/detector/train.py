# SPDX-License-Identifier: Apache-2.0
"""Trains the detector with Keras and writes it as an int8 TFLite file.

python -m examples.detector.train [FILE]    # needs TensorFlow; two minutes on one core
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any  # models and tensors of Keras, which has no types

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from examples.detector.data import CELL, CELLS, NAMES, SIDE, scene

MODEL = Path(__file__).parent / "detector.tflite"
STEPS = 700
BATCH = 32
layers = tf.keras.layers


def network() -> Any:
    """Return a picture float32[n, 64, 64, 1] to a grid: scores [n, 8, 8, 3], boxes [n, 8, 8, 4].

    A box is its middle within the cell and its size, all as parts: of a cell, and of the picture.
    """
    picture = tf.keras.Input((SIDE, SIDE, 1), name="picture")
    x = layers.Rescaling(1 / 127.5, offset=-1)(picture)
    for width, stride in ((8, 2), (16, 2), (32, 2), (32, 1), (48, 1)):
        x = layers.Conv2D(width, 3, strides=stride, padding="same", use_bias=False)(x)
        x = layers.ReLU(6)(layers.BatchNormalization()(x))
    scores = layers.Conv2D(len(NAMES), 1, activation="sigmoid", name="scores")(x)
    boxes = layers.Conv2D(4, 1, activation="sigmoid", name="boxes")(x)
    return tf.keras.Model(picture, [scores, boxes])


def batch(random: np.random.Generator) -> tuple[NDArray[np.float32], ...]:
    """Return pictures, the scores wanted, the boxes wanted."""
    pictures = np.zeros((BATCH, SIDE, SIDE, 1), np.float32)
    scores = np.zeros((BATCH, CELLS, CELLS, len(NAMES)), np.float32)
    boxes = np.zeros((BATCH, CELLS, CELLS, 4), np.float32)
    for n in range(BATCH):
        made = scene(random)
        pictures[n] = made.picture
        for (top, left, bottom, right), label in zip(made.boxes, made.labels, strict=True):
            y, x = (top + bottom) / 2 / CELL, (left + right) / 2 / CELL
            at = (n, int(y), int(x))
            scores[(*at, label)] = 1
            boxes[at] = (y - int(y), x - int(x), (bottom - top) / SIDE, (right - left) / SIDE)
    return pictures, scores, boxes


def loss_of(scores: Any, boxes: Any, wanted: Any, places: Any) -> Any:
    """Return the cross entropy of the scores, and the distance of boxes where there are some."""
    entropy = tf.keras.losses.binary_crossentropy(wanted[..., None], scores[..., None])
    weight = 1 + 4 * wanted
    is_shape = tf.reduce_max(wanted, axis=-1, keepdims=True)
    distance = tf.reduce_sum(is_shape * tf.abs(boxes - places)) / tf.reduce_sum(is_shape)
    return tf.reduce_mean(entropy * weight) * 8 + distance


def trained(random: np.random.Generator) -> Any:
    """Return the network after training."""
    model = network()
    rate = tf.keras.optimizers.schedules.CosineDecay(4e-3, STEPS)
    optimizer = tf.keras.optimizers.Adam(rate)

    def step(pictures: Any, wanted: Any, places: Any) -> Any:
        with tf.GradientTape() as tape:
            scores, boxes = model(pictures, training=True)
            loss = loss_of(scores, boxes, wanted, places)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled = tf.function(step)
    for k in range(STEPS):
        loss = compiled(*batch(random))
        if k % 100 == 99:
            print(f"step {k + 1}: loss {float(loss):.3f}", flush=True)
    return model


def converted(model: Any, random: np.random.Generator) -> bytes:
    """Return the network as a TFLite file of int8, whose picture is uint8."""
    fixed = tf.keras.Input((SIDE, SIDE, 1), batch_size=1, name="picture")
    made = tf.lite.TFLiteConverter.from_keras_model(tf.keras.Model(fixed, model(fixed)))

    def pictures() -> Iterator[list[NDArray[np.float32]]]:
        for picture in np.concatenate([batch(random)[0] for _ in range(4)]):
            yield [picture[None]]

    made.optimizations = [tf.lite.Optimize.DEFAULT]
    made.representative_dataset = pictures
    made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    made.inference_input_type, made.inference_output_type = tf.uint8, tf.int8
    return bytes(made.convert())


def main() -> None:
    """Train and write the file."""
    tf.keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL
    path.write_bytes(converted(trained(random), random))
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
