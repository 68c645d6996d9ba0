# SPDX-License-Identifier: Apache-2.0
"""The ONNX backend interface: prepare once, run many, the module as a backend."""

from __future__ import annotations

import inspect

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.base import Backend, BackendRep

from tests.frontend.onnx.models import make
from treadle.errors import InputError, ModelError, UnsupportedOperators, UsageError
from treadle.integrations import onnx_backend
from treadle.integrations.onnx_backend import TreadleBackend

X = np.arange(6, dtype="float32").reshape(2, 3) - 2


def _relu(shape: list[int | str] | None) -> onnx.ModelProto:
    return make([helper.make_node("Relu", ["x"], ["y"])], {"x": shape}, ["y"])


def test_prepare_and_run_by_position_and_by_name() -> None:
    rep = TreadleBackend.prepare(_relu([2, 3]), "CPU", opt_level=0)
    assert isinstance(rep, BackendRep)
    for inputs in ([X], (X,), X, {"x": X}):
        (y,) = rep.run(inputs)
        np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_open_sizes_are_compiled_for_the_inputs_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    compile_model = onnx_backend.compile_model
    monkeypatch.setattr(
        onnx_backend, "compile_model", lambda *a, **k: made.append(a) or compile_model(*a, **k)
    )
    rep = TreadleBackend.prepare(_relu(["n", 3]))
    assert not made
    for x in (X, X[:1], X, X[:1]):
        np.testing.assert_array_equal(rep.run([x])[0], np.maximum(x, 0))
    assert len(made) == 2


def test_parameters_given_as_inputs_are_fixed_per_value() -> None:
    declared = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        "reshape",
        declared,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    rep = TreadleBackend.prepare(helper.make_model(graph))
    for shape in ([3, 2], [6, -1], [3, 2]):
        (y,) = rep.run([X, np.array(shape)])
        np.testing.assert_array_equal(y, X.reshape(shape))


def test_run_node_and_run_model() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    (y,) = onnx_backend.run_node(node, [X, np.float32(1)], opset_version=13)
    np.testing.assert_array_equal(y, np.minimum(X, 1))
    (y,) = onnx_backend.run_model(_relu([2, 3]), [X])
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_the_module_is_a_backend() -> None:
    assert issubclass(TreadleBackend, Backend)
    assert onnx_backend.run == onnx_backend.run_model
    public = {n for n, _ in inspect.getmembers(Backend, inspect.ismethod)}
    assert all(callable(getattr(onnx_backend, name)) for name in public)
    assert onnx_backend.supports_device("CPU")
    assert onnx_backend.supports_device("CPU:0")
    assert not onnx_backend.supports_device("CUDA")


def test_is_compatible() -> None:
    assert onnx_backend.is_compatible(_relu([2]))
    assert not onnx_backend.is_compatible(_relu([2]), "CUDA")
    unknown = make([helper.make_node("StringSplit", ["x"], ["y"])], {"x": [2]}, ["y"])
    assert not onnx_backend.is_compatible(unknown)
    with pytest.raises(UnsupportedOperators):
        onnx_backend.prepare(unknown)


def test_wrong_calls() -> None:
    rep = onnx_backend.prepare(_relu([2, 3]))
    with pytest.raises(InputError, match="2 inputs are given, the model takes 1"):
        rep.run([X, X])
    with pytest.raises(InputError, match="no input 'z'"):
        rep.run({"z": X})
    with pytest.raises(InputError, match="the input 'x' is missing"):
        rep.run({})
    with pytest.raises(UsageError, match="run has no option 'fast'"):
        rep.run([X], fast=True)
    with pytest.raises(UsageError, match="the device 'CUDA' is not supported"):
        onnx_backend.prepare(_relu([2, 3]), "CUDA")
    with pytest.raises(UsageError, match="prepare has no option 'fast'"):
        onnx_backend.prepare(_relu([2, 3]), fast=True)


def test_maps_are_refused() -> None:
    text = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    declared = onnx.ValueInfoProto(name="m")
    declared.type.map_type.key_type = TensorProto.INT64
    declared.type.map_type.value_type.CopyFrom(text)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["m"], ["y"])],
        "m",
        [declared],
        [onnx.ValueInfoProto(name="y")],
    )
    with pytest.raises(ModelError, match="input 'm' is declared as a map_type"):
        onnx_backend.prepare(helper.make_model(graph)).run([[X]])
