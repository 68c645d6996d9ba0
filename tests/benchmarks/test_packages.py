# SPDX-License-Identifier: Apache-2.0
"""The comparison on packages' models, without fetching any: what is read of a wheel, ratios."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.package_models import PACKAGES, File
from benchmarks.packages import Row, arrays_of, examine, extracted, table_of

MEMBER = "some_package/models/net.onnx"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Return a wheel with a model of an open batch and a sampling rate."""
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["rate"], ["r"], to=1),
            helper.make_node("Mul", ["x", "r"], ["y"]),
        ],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path = tmp_path / "some_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, model.SerializeToString())
        archive.writestr("some_package/__init__.py", "raise SystemExit('never run')")
    return path


def test_a_model_of_a_wheel_is_examined(wheel: Path) -> None:
    cases = [{"x": (n, 3), "rate": np.array(2)} for n in (1, 4)]
    file = File("models/net.onnx", cases)
    model = extracted(wheel, file)
    assert onnx.load(model).graph.name == "net"
    inputs = arrays_of(model, cases[1])
    assert (inputs["x"].dtype, inputs["x"].shape, inputs["rate"]) == (np.float32, (4, 3), 2)
    row = examine(model, file)
    assert (row.fixed, row.opened) == ("right", "right")


def test_files_that_are_not_there(wheel: Path) -> None:
    with pytest.raises(LookupError, match=r"0 files other\.onnx"):
        extracted(wheel, File("other.onnx", ()))


def test_ratios_are_to_the_fastest_peer() -> None:
    row = Row("net", "right", "right", times={1: {"treadle": 2.0, "onnxruntime": 3.0, "o": 5.0}})
    assert row.ratio(1) == 1.5
    assert row.ratio(2) is None
    assert table_of([row], [1, 2]).row_count == 1


def test_cases_of_a_model_give_the_same_inputs() -> None:
    files = [f for p in PACKAGES for f in p.files]
    assert len(PACKAGES) >= 20
    assert len(files) >= 30
    for file in files:
        assert all(set(case) == set(file.cases[0]) for case in file.cases)
