# SPDX-License-Identifier: Apache-2.0
""".keras files made for tests, without Keras."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

KERNEL = np.arange(6, dtype="float32").reshape(3, 2)
BIAS = np.array([1, -1], "float32")
WEIGHTS = {"layers/dense/vars/0": KERNEL, "layers/dense/vars/1": BIAS}


def layer(
    class_name: str, name: str, *calls: Sequence[Any], module: str = "keras.layers", **config: Any
) -> dict[str, Any]:
    nodes = [{"args": list(args), "kwargs": {}} for args in calls]
    config = {"name": name, **config}
    return {"module": module, "class_name": class_name, "config": config, "name": name,
            "inbound_nodes": nodes}  # fmt: skip


def value(name: str, call: int = 0, result: int = 0) -> dict[str, Any]:
    return {"class_name": "__keras_tensor__", "config": {"keras_history": [name, call, result]}}


def functional(layers: Sequence[Any], inputs: Any, outputs: Any, **config: Any) -> dict[str, Any]:
    config = {"name": "net", "layers": list(layers), "input_layers": inputs,
              "output_layers": outputs, **config}  # fmt: skip
    return {"module": "keras.src.models.functional", "class_name": "Functional", "config": config}


def dense_model(*others: Any, last: str = "dense") -> dict[str, Any]:
    layers = [
        layer("InputLayer", "x", batch_shape=[None, 3], dtype="float32"),
        layer("Dense", "dense", [value("x")], units=2, activation="relu"),
        *others,
    ]
    return functional(layers, ["x", 0, 0], [last, 0, 0])


def weights_file(arrays: Mapping[str, np.ndarray]) -> bytes:
    content = io.BytesIO()
    with h5py.File(content, "w") as f:
        for key, array in arrays.items():
            f[key] = array
    return content.getvalue()


def write(
    folder: Path,
    config: Any,
    arrays: Mapping[str, np.ndarray] = WEIGHTS,
    *,
    weights: bytes | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    path = folder / "model.keras"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.11.0"}')
        archive.writestr("config.json", json.dumps(config))
        content = weights_file(arrays) if weights is None else weights
        archive.writestr("model.weights.h5", content)
    return path
