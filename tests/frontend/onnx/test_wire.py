# SPDX-License-Identifier: Apache-2.0
"""Taking large weights out of a file leaves the same model; damaged files end in ModelError."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.onnx.models import make
from treadle.errors import ModelError
from treadle.frontend.onnx.importer import import_onnx
from treadle.frontend.onnx.wire import LARGE, split_weights


def _model() -> onnx.ModelProto:
    weights = {
        "small": np.arange(4, dtype="float32"),
        "large": np.arange(LARGE, dtype="float32").reshape(4, -1),
        "other": np.arange(LARGE, dtype="int64"),
    }
    nodes = [
        helper.make_node("Add", ["x", "small"], ["a"]),
        helper.make_node("MatMul", ["a", "large"], ["y"]),
    ]
    return make(nodes, {"x": [4]}, ["y"], constants=weights)


@pytest.mark.tiny
def test_large_weights_are_views_and_the_rest_parses() -> None:
    model = _model()
    data = model.SerializeToString()
    split = split_weights(memoryview(data))
    assert sorted(split.weights) == [1, 2]
    assert bytes(split.weights[1]) == model.graph.initializer[1].raw_data
    rest = onnx.ModelProto()
    rest.ParseFromString(split.model)
    for index in split.weights:
        assert not rest.graph.initializer[index].raw_data
        rest.graph.initializer[index].raw_data = model.graph.initializer[index].raw_data
    assert rest == model


@pytest.mark.tiny
def test_weights_of_a_file_are_not_copied(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_model().SerializeToString())
    module = import_onnx(path).module
    (weight,) = [n for n in _constants(module.main.body) if n.value.shape == (4, LARGE // 4)]
    assert not weight.value.flags.owndata
    assert not weight.value.flags.writeable
    np.testing.assert_array_equal(weight.value.ravel(), np.arange(LARGE, dtype="float32"))


def _constants(body):
    from treadle.graph.nodes import Constant, topological

    return [n for n in topological([body]) if isinstance(n, Constant)]


def test_every_truncation_is_a_model_error() -> None:
    data = _model().SerializeToString()
    rest = len(data) - 3 * LARGE
    for length in [*range(0, len(data), 509), *range(rest, rest + 40), *range(1, 60)]:
        with pytest.raises(ModelError):
            import_onnx(data[:length])


def test_damaged_bytes_never_escape_as_another_error(random: np.random.Generator) -> None:
    data = bytearray(_model().SerializeToString())
    for _ in range(600):
        at = int(random.integers(0, len(data)))
        kept, data[at] = data[at], int(random.integers(0, 256))
        with contextlib.suppress(ModelError):
            import_onnx(bytes(data))
        data[at] = kept
