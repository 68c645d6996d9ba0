# SPDX-License-Identifier: Apache-2.0
"""`treadle bench --kernels`: every kernel alone, at the sizes of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.cli import peak
from treadle.cli.main import main
from treadle.cli.peak import CacheLevel

INNER = 48


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine can do is no subject here, and takes seconds to measure."""
    monkeypatch.setattr(peak, "fma_gflops", lambda threads, target: 100.0 * threads)
    monkeypatch.setattr(peak, "read_gigabytes", lambda threads: 10.0)
    monkeypatch.setattr(peak, "cache_levels", lambda threads: (CacheLevel("L2", 1 << 20, 50.0),))


def save(path: Path, nodes: list[onnx.NodeProto], rows: object, **weights: np.ndarray) -> Path:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, INNER))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    """Two equal layers, then a softmax, over any number of rows."""
    weights = np.random.default_rng(0).standard_normal((2, INNER, INNER)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"], name="first"),
        helper.make_node("Relu", ["p"], ["q"], name="relu"),
        helper.make_node("MatMul", ["q", "b"], ["r"], name="second"),
        helper.make_node("Relu", ["r"], ["s"], name="relu2"),
        helper.make_node("Softmax", ["s"], ["y"], name="softmax", axis=-1),
    ]
    return save(tmp_path / "net.onnx", nodes, "n", a=weights[0], b=weights[1])


def bench(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["bench", *map(str, words), "--kernels", "--repeat", "2"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("form", ["network", "artifact", "open"])
@pytest.mark.parametrize("flush", [False, True])
def test_kernels_are_counted_and_added_up(
    layers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, flush: bool
) -> None:
    words: list[object] = [layers, "--input-shapes", "x:[24,48]"]
    if form == "artifact":
        treadle.compile(layers, shapes={"x": (24, INNER)}).save(tmp_path / "net.tar")
        words = [tmp_path / "net.tar"]
    elif form == "open":
        words.append("--dynamic")
    found = json.loads(bench(capsys, *words, "--json", *(["--flush"] if flush else [])))
    dense, softmax = found["kernels"]
    assert (dense["uses"], softmax["uses"]) == (2, 1)
    assert dense["layer"] == "first+relu"
    assert dense["sizes"] == ({"n": 24} if form == "open" else {})
    assert dense["flops"] == 2 * 24 * INNER * INNER + 24 * INNER
    assert 0 < dense["ms"] <= dense["median_ms"]
    assert found["kernels_ms"] == pytest.approx(2 * dense["ms"] + softmax["ms"], abs=2e-6)
    assert dense["share"] + softmax["share"] == pytest.approx(1.0, abs=1e-5)
    assert softmax["bound_by"] == ("memory" if flush else "L2")
    assert found["run_ms"] > 0
    assert (found["rounds"], found["flush"]) == (2, flush)


def test_the_table_and_the_sum(layers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = bench(capsys, layers, "--dynamic", "--input-shapes", "x:[24,48]", "--threads", "1")
    rows = {row.split()[0]: row for row in text.splitlines() if row.strip()}
    assert "(n=24)  " in rows["first+relu"]
    assert "% " in rows["softmax"]
    assert "in 3 calls of 2 kernels, each alone (arguments stay where calls leave them)" in text
    assert "× the sum of its kernels" in rows["network"]
    assert "1 thread; the fastest of 2 rounds, taking turns" in rows["threads"]
    assert "at most 100 GFLOP/s" in rows["machine"]


def test_kernels_whose_sizes_data_decides_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"], name="places"),
        helper.make_node("Cast", ["places"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Relu", ["f"], ["y"], name="relu"),
    ]
    path = save(tmp_path / "data.onnx", nodes, 4)
    found = json.loads(bench(capsys, path, "--json"))
    problems = {row["layer"]: row.get("problem") for row in found["kernels"]}
    assert "data decides its sizes" in problems.values()
    assert None in problems.values()
    assert "not timed: " in bench(capsys, path)


def test_kernels_of_bodies_are_timed_and_not_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Sin", ["s"], ["t"], name="sine"),
            helper.make_node("ReduceSum", ["t"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "limit"], ["go"]),
            helper.make_node("Identity", ["t"], ["row"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, ()),
            value("c", TensorProto.BOOL, ()),
            value("s", TensorProto.FLOAT, (4, INNER)),
        ],
        [
            value("go", TensorProto.BOOL, ()),
            value("t", TensorProto.FLOAT, (4, INNER)),
        ],
    )
    nodes = [helper.make_node("Loop", ["", "begin", "x"], ["y"], body=body, name="loop")]
    weights = {"limit": np.array(-100.0, "float32"), "begin": np.array(True)}
    path = save(tmp_path / "loop.onnx", nodes, 4, **weights)
    found = json.loads(bench(capsys, path, "--json"))
    inside = [row for row in found["kernels"] if row["uses"] is None]
    assert inside
    assert all(row["ms"] > 0 for row in inside)
    assert found["kernels_ms"] == 0
    assert "  inside  " in bench(capsys, path)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--flush"], "--flush is for kernels alone"),
        (["--kernels", "--streams", "2"], "--kernels times the kernels of this model alone"),
        (["--kernels", "--vs", "onnxruntime"], "--kernels times the kernels of this model alone"),
    ],
)
def test_options_that_do_not_go_together(
    layers: Path, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(layers), *words]) == 2
    assert problem in capsys.readouterr().err
