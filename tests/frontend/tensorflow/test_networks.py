# SPDX-License-Identifier: Apache-2.0
"""Networks that Keras saves as SavedModel, frozen graph and .keras file, against TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from treadle.build.reading import read_model

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
L = keras.layers


def images() -> Any:
    """Residual and depthwise convolutions, normalisations, pools and resizes."""
    image = keras.Input((32, 32, 3))
    x = L.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(image)
    x = L.ReLU(max_value=6)(L.BatchNormalization()(x))
    y = L.DepthwiseConv2D(3, padding="same")(L.Conv2D(16, 1, activation="swish")(x))
    x = L.Add()([x, L.Conv2D(8, 1)(L.BatchNormalization()(y))])
    up = L.UpSampling2D(2, interpolation="bilinear")(L.MaxPooling2D(2)(x))
    up = L.Conv2DTranspose(4, 3, strides=2, padding="same")(L.Concatenate()([up, x]))
    return keras.Model(image, L.Dense(5, activation="softmax")(L.GlobalAveragePooling2D()(up)))


def sequences() -> Any:
    """Recurrent layers over sequences of any length, in loops."""
    rows = keras.Input((None, 6))
    x = L.Bidirectional(L.LSTM(8, return_sequences=True))(rows)
    x = L.GRU(5, return_sequences=True, go_backwards=True)(x)
    return keras.Model(rows, L.Dense(3)(L.SimpleRNN(4)(x)))


def text() -> Any:
    """Attention over embedded tokens with a mask."""
    tokens, mask = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    x = L.Embedding(50, 16)(tokens)
    for _ in range(2):
        y = L.MultiHeadAttention(2, 8)(x, x, attention_mask=L.Reshape((1, -1))(mask))
        x = L.LayerNormalization()(x + y)
        x = L.LayerNormalization()(x + L.Dense(16)(L.Dense(32, activation="gelu")(x)))
    return keras.Model([tokens, mask], x)


def frozen(model: Any, folder: Path) -> Path:
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    specs = [tf.TensorSpec(i.shape, i.dtype, f"x{k}") for k, i in enumerate(model.inputs)]
    function = tf.function(lambda *a: model(list(a) if len(a) > 1 else a[0], training=False))
    made = convert_variables_to_constants_v2(
        function.get_concrete_function(*specs), lower_control_flow=False
    )
    path = folder / "graph.pb"
    path.write_bytes(made.graph.as_graph_def().SerializeToString())
    return path


def exported(model: Any, folder: Path) -> Path:
    model.export(folder / "saved_model", verbose=False)
    return folder / "saved_model"


def saved(model: Any, folder: Path) -> Path:
    model.save(folder / "model.keras")
    return folder / "model.keras"


@pytest.mark.parametrize("network", [images, sequences, text])
@pytest.mark.parametrize("write", [frozen, exported, saved])
def test_networks(
    network: Callable[[], Any], write: Callable[[Any, Path], Path], tmp_path: Path
) -> None:
    keras.utils.set_random_seed(0)
    model = network()
    random = np.random.default_rng(0)
    inputs = []
    for k, i in enumerate(model.inputs):
        shape = [2 if d is None and a == 0 else d or 7 for a, d in enumerate(i.shape)]
        value = random.normal(size=shape) if i.dtype == "float32" else random.integers(0, 50, shape)
        inputs.append((value % 2 if k else value).astype(i.dtype))
    module = read_model(write(model, tmp_path), None, dynamic=True).module
    by_name = dict(zip((i.name for i in model.inputs), inputs, strict=True))
    by_name |= {f"x{k}": v for k, v in enumerate(inputs)}
    if write is saved:  # whose inputs have the names of layers, in order
        by_name = dict(zip((p.name for p in module.main.params), inputs, strict=True))
    (made,) = treadle.compile(module).run({p.name: by_name[p.name] for p in module.main.params})
    wanted = keras.ops.convert_to_numpy(model(inputs if len(inputs) > 1 else inputs[0]))
    np.testing.assert_allclose(np.asarray(made), wanted, rtol=1e-4, atol=1e-5)
