# SPDX-License-Identifier: Apache-2.0
"""Whole .keras files: names, notes, what is refused, and damaged files."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")

import treadle  # noqa: E402
from tests.frontend.keras.models import (  # noqa: E402
    BIAS,
    KERNEL,
    WEIGHTS,
    dense_model,
    functional,
    layer,
    value,
    weights_file,
    write,
)
from treadle.errors import ModelError, UnsupportedOperators  # noqa: E402
from treadle.frontend.keras.importer import import_keras, snake_case  # noqa: E402

X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


def test_names_notes_and_results(tmp_path: Path) -> None:
    path = write(tmp_path, dense_model())
    imported = import_keras(path)
    (x,) = imported.module.main.params
    assert (x.name, str(x.type)) == ("x", "float32[1, 3]")
    assert imported.module.output_names == ("dense",)
    (note,) = imported.notes
    assert "unknown dimension 0 is compiled as 1" in note
    (made,) = treadle.compile(path, dynamic=True).run({"x": X})
    np.testing.assert_allclose(np.asarray(made), np.maximum(X @ KERNEL + BIAS, 0), rtol=1e-5)


def test_layers_that_are_called_twice_and_outputs_with_names(tmp_path: Path) -> None:
    layers = [
        layer("InputLayer", "a", batch_shape=[2, 3], dtype="float32"),
        layer("InputLayer", "b", batch_shape=[2, 3], dtype="float32"),
        layer("Dense", "dense", [value("a")], [value("b")], units=2),
        layer("Subtract", "minus", [[value("dense", 1), value("dense", 0)]], module="keras.layers"),
    ]
    inputs = [["a", 0, 0], ["b", 0, 0]]
    config = functional(layers, inputs, {"far": ["minus", 0, 0], "near": ["dense", 0, 0]})
    path = write(tmp_path, config)
    assert import_keras(path).module.output_names == ("far", "near")
    far, near = treadle.compile(path).run({"a": X[:2], "b": X[2:]})
    np.testing.assert_allclose(np.asarray(far), (X[2:] - X[:2]) @ KERNEL, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(near), X[:2] @ KERNEL + BIAS, rtol=1e-4, atol=1e-5)


@pytest.mark.tiny
def test_names_of_classes_in_files_of_weights() -> None:
    names = {
        "Conv2D": "conv2d",
        "LSTM": "lstm",
        "GlobalAveragePooling1D": "global_average_pooling1d",
        "ReLU": "re_lu",
        "UpSampling2D": "up_sampling2d",
    }
    assert {name: snake_case(name) for name in names} == names


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        import_keras(path)
    return str(caught.value)


@pytest.mark.tiny
def test_code_is_never_run(tmp_path: Path) -> None:
    code = {"class_name": "__lambda__", "config": {"code": "4wEAAA=="}}
    config = dense_model(layer("Lambda", "trick", [value("dense")], function=code), last="trick")
    assert "the layer 'trick' is a Lambda, which is Python code" in refused(write(tmp_path, config))
    function = {"module": "os", "class_name": "function", "config": "system"}
    own = dense_model(layer("Activation", "a", [value("dense")], activation=function), last="a")
    assert "is none of Keras's" in refused(write(tmp_path, own))


@pytest.mark.tiny
def test_classes_of_their_own_are_listed(tmp_path: Path) -> None:
    config = dense_model(
        layer("Strange", "s", [value("dense")], module="my_project.layers"),
        layer("Dense", "d", [value("s")], module="my_project.layers"),
        last="d",
    )
    with pytest.raises(UnsupportedOperators) as caught:
        import_keras(write(tmp_path, config))
    assert "my_project.layers.Strange: 1 node, first s" in str(caught.value)
    assert "my_project.layers.Dense: 1 node, first d" in str(caught.value)
    model = {"module": "my_project", "class_name": "Net", "config": {}}
    assert "the model is a class 'Net' of its own" in refused(write(tmp_path, model))


@pytest.mark.tiny
def test_errors_name_the_layer(tmp_path: Path) -> None:
    path = write(tmp_path, dense_model(), {"layers/dense/vars/0": KERNEL})
    text = refused(path)
    assert "the file has no variable 1 of 'layers/dense'" in text
    assert "layer Dense ('dense')" in text


def test_links_and_data_elsewhere_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"\0" * 64)
    other = tmp_path / "other.h5"
    other.write_bytes(weights_file({"d": KERNEL}))

    def with_kernel(change: Any) -> Path:
        content = io.BytesIO(weights_file({"layers/dense/vars/1": BIAS}))
        with h5py.File(content, "r+") as f:
            change(f["layers/dense/vars"])
        return write(tmp_path, dense_model(), weights=content.getvalue())

    def external(group: Any) -> None:
        group.create_dataset("0", (3, 2), "float32", external=[(str(secret), 0, 24)])

    def virtual(group: Any) -> None:
        layout = h5py.VirtualLayout((3, 2), "float32")
        layout[:] = h5py.VirtualSource(str(other), "d", (3, 2))
        group.create_virtual_dataset("0", layout)

    def chunked(group: Any) -> None:
        group.create_dataset("0", data=np.zeros((3, 2), "float32"), compression="gzip")

    def linked(group: Any) -> None:
        group["0"] = h5py.ExternalLink(str(other), "/d")

    for change in (external, virtual, chunked):
        assert "not stored as a plain array" in refused(with_kernel(change))
    assert "is a link, which is not followed" in refused(with_kernel(linked))


@pytest.mark.tiny
def test_archives_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    assert "cannot be read" in refused(path)
    path.write_bytes(b"no archive")
    assert "this is not a .keras file" in refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{")
    assert "its 'config.json' is damaged" in refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(dense_model()))
    assert "holds no 'model.weights.h5'" in refused(path)
    assert "its 'model.weights.h5' is damaged" in refused(
        write(tmp_path, dense_model(), weights=b"\x89HDF no")
    )
    bomb = write(
        tmp_path, dense_model(), weights=b"\0" * (100 << 20), compression=zipfile.ZIP_DEFLATED
    )
    assert "is compressed more than 16 times" in refused(bomb)


def test_a_circle_of_layers_is_refused(tmp_path: Path) -> None:
    config = dense_model(
        layer("ReLU", "a", [value("b")]), layer("ReLU", "b", [value("a")]), last="a"
    )
    assert "reads what it makes" in refused(write(tmp_path, config))


def test_damaged_descriptions_end_in_errors_of_ours(tmp_path: Path) -> None:
    whole = dense_model(
        layer("Reshape", "reshape", [value("dense")], target_shape=[2, -1]),
        layer("Softmax", "softmax", [value("reshape")], axis=-1),
        last="softmax",
    )
    for seed in range(120):
        chance = random.Random(seed)
        config = copy.deepcopy(whole)
        place: Any = config["config"]
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = chance.choice(keys)
            if not isinstance(place[key], (dict, list)) or not place[key] or chance.random() < 0.2:
                break
            place = place[key]
        place[key] = chance.choice([None, -7, "x", [], {}, 1.5, [[]], 1 << 70])
        try:
            import_keras(write(tmp_path, config, WEIGHTS))
        except treadle.TreadleError:
            continue
