# SPDX-License-Identifier: Apache-2.0
"""`treadle profile`: the table, the timeline, saved models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.build import plan_json
from treadle.build.compile import compile_model
from treadle.build.cost import Cost
from treadle.build.loaded import Runnable
from treadle.cli import peak, profile
from treadle.cli.inputs import filled_inputs
from treadle.cli.main import main
from treadle.cli.peak import CacheLevel
from treadle.cli.roofline import Layer, Limits
from treadle.errors import TypeMismatch
from treadle.graph.nodes import Function

ROWS, INNER, COLUMNS = 24, 48, 80


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A product with a bias, then a softmax."""
    weights = np.random.default_rng(0).standard_normal((INNER, COLUMNS)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Add", ["product", "b"], ["sum"], name="sum"),
        helper.make_node("Softmax", ["sum"], ["y"], name="softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (ROWS, INNER))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (ROWS, COLUMNS))],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(weights[0], "b")],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine can do is no subject here, and takes seconds to measure."""
    monkeypatch.setattr(peak, "fma_gflops", lambda threads, target: 100.0 * threads)
    monkeypatch.setattr(peak, "read_gigabytes", lambda threads: 10.0)
    monkeypatch.setattr(peak, "cache_levels", lambda threads: (CacheLevel("L2", 1 << 20, 50.0),))


def test_fewer_multiplications_than_counted_are_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    limits = Limits(100.0, 10.0)
    direct = Layer("direct", "k", 50_000, 100, 1e-6)
    fast = Layer("fast", "w", 150_000, 100, 1e-6, saves=True)
    profile.print_layers([direct, fast], limits, 0)
    profile.print_summary([direct, fast], limits, 2e-6, 1)
    text = capsys.readouterr().out
    rows = {row.split()[0]: row for row in text.splitlines() if row.strip()}
    assert "*" not in rows["direct"]
    assert "150.0*" in rows["fast"]
    assert "150%*" in rows["fast"]
    assert "* operations of the direct algorithm; this kernel multiplies less" in text
    assert "100 GFLOP/s (the fastest, not profiled; 75% counted as the direct algorithm*)" in text
    profile.print_layers([direct], limits, 0)
    profile.print_summary([direct], limits, 2e-6, 1)
    assert "*" not in capsys.readouterr().out


def test_work_of_the_kernels(model: Path) -> None:
    executable = compile_model(model)
    product, softmax = executable.instructions()
    assert product["origin"] == "product+sum"
    assert product["flops"] == 2 * ROWS * INNER * COLUMNS + ROWS * COLUMNS
    panels = next(v.nbytes for v in executable.memory.constants.values() if v.ndim == 3)
    bias, result = 4 * COLUMNS, 4 * ROWS * COLUMNS
    assert product["bytes"] == 4 * ROWS * INNER + panels + bias + result
    assert softmax["bytes"] == 2 * result


@pytest.mark.parametrize("top", ["0", "1"])
def test_table(model: Path, top: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(model), "--repeat", "2", "--threads", "1", "--top", top]) == 0
    text = capsys.readouterr().out
    shown = [name for name in ("product+sum", "softmax") if f"\n{name}" in text]
    assert len(shown) == (2 if top == "0" else 1)
    assert ("1 more instruction" in text) == (top == "1")
    assert "of roofline" in text
    assert "at most 100 GFLOP/s and 10.0 GB/s from memory, 50 from L2 on 1 thread" in text


def test_a_saved_model_and_its_timeline(model: Path, tmp_path: Path) -> None:
    saved, trace = tmp_path / "net.tar", tmp_path / "t.json"
    compile_model(model).save(saved)
    assert main(["profile", str(saved), "--repeat", "2", "--trace", str(trace)]) == 0
    track, *events = json.loads(trace.read_text())["traceEvents"]
    assert track["args"]["name"].endswith("not which thread did what")
    assert [e["name"] for e in events] == ["product+sum", "softmax"]
    first, second = events
    assert first["ph"] == "X"
    assert first["args"]["flops"] == 2 * ROWS * INNER * COLUMNS + ROWS * COLUMNS
    assert second["ts"] == pytest.approx(first["ts"] + first["dur"], abs=0.01)


def test_a_timeline_that_cannot_be_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", str(model), "--trace", str(tmp_path)]) == 2
    assert "cannot be written: it is a folder" in capsys.readouterr().err


def test_every_instruction_is_timed(model: Path) -> None:
    executable = compile_model(model)
    layers, seconds = profile.measure(executable, filled_inputs(executable, "random"), repeat=3)
    assert len(layers) == 2
    assert sum(layer.seconds for layer in layers) > 0
    assert seconds > 0


def open_model(tmp_path: Path) -> Path:
    """A product, an attention-like pair of products and a pool, over two open sizes."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Transpose", ["p"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["p", "t"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["y"], name="softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", "m", INNER))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", "m", "m"))],
        [numpy_helper.from_array(np.ones((INNER, COLUMNS), np.float32), "w")],
    )
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize("is_saved", [False, True])
def test_open_sizes_count_the_work_of_the_run(tmp_path: Path, is_saved: bool) -> None:
    path, n, m = open_model(tmp_path), 3, 17
    executable = compile_model(path, dynamic=True)
    model: Runnable = executable
    if is_saved:
        executable.save(tmp_path / "open.tar")
        model = treadle.load(tmp_path / "open.tar")
    inputs = filled_inputs(model, "random", {"x": (n, m, INNER)})
    layers, _ = profile.measure(model, inputs, repeat=1)
    work = {name: [la for la in layers if name in la.origin] for name in ("product", "scores")}
    assert [la.flops for la in work["product"]] == [2 * n * m * INNER * COLUMNS]
    assert sum(la.flops for la in layers) >= 2 * n * m * COLUMNS * (INNER + m)
    assert all(la.bytes for la in layers)
    fixed = compile_model(path, shapes={"x": (n, m, INNER)})
    kinds = {
        str(row["origin"]): row["flops"] for row in fixed.instructions() if row["op"] == "call"
    }
    assert sum(la.flops for la in work["product"]) == kinds["product"]


def test_the_command_says_what_open_sizes_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--dynamic", "--input-shapes", f"x:[2,9,{INNER}]", "--repeat", "2"]
    assert main(["profile", str(open_model(tmp_path)), *words]) == 0
    text = capsys.readouterr().out
    assert " 0 GFLOP/s" not in text
    (row,) = (line for line in text.splitlines() if line.startswith("product"))
    assert "compute" in row or "L2" in row


def test_work_that_cannot_be_counted_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def needs_sizes(function: Function) -> Cost:
        raise TypeMismatch("each of the sizes must be known here")

    monkeypatch.setattr(plan_json, "group_cost", needs_sizes)
    executable = compile_model(open_model(tmp_path), dynamic=True)
    assert not any("flops" in row for row in executable.instructions())
    inputs = filled_inputs(executable, "random", {"x": (2, 5, INNER)})
    layers, _ = profile.measure(executable, inputs, repeat=1)
    assert {layer.flops for layer in layers} == {0}


def test_json_has_every_kernel(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((ROWS, INNER), np.float32))
    words = ["--repeat", "2", "--threads", "1", "--json", "--top", "1"]
    assert main(["profile", str(model), "-i", str(tmp_path / "in.npz"), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["threads"], found["machine"]["gflops"]) == (1, 100.0)
    product, softmax = found["kernels"]
    assert (product["layer"], softmax["layer"]) == ("product+sum", "softmax")
    assert product["flops"] == 2 * ROWS * INNER * COLUMNS + ROWS * COLUMNS
    assert product["share"] + softmax["share"] == pytest.approx(1, abs=1e-5)
    assert found["kernels_ms"] == pytest.approx(product["ms"] + softmax["ms"])


LONG = [
    Layer(
        f"/encoder/layer.{k}/attention/self/query/MatMul+Add", f"fused_{'dense_' * 6}{k}", 9, 9, 1.0
    )
    for k in range(3)
]


@pytest.mark.parametrize("limits", [None, Limits(1.0, 1.0)])
@pytest.mark.parametrize("width", [40, 80, 120, 200, None])
def test_names_of_kernels_are_neither_cut_nor_wrapped(
    width: int | None,
    limits: Limits | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if width is not None:
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(width))
    profile.print_layers(LONG, limits, 0)
    heading, *rows = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert len(rows) == len(LONG)
    for row, layer in zip(rows, LONG, strict=True):
        assert layer.kernel in row
        assert (layer.origin in row) or (width is not None and "…" in row)
        if width is not None and width >= 80:
            assert len(row) <= width
    assert "layer" in heading
    if width is None:
        assert all(layer.origin in row for row, layer in zip(rows, LONG, strict=True))
        assert ("bound by" in heading) == (limits is not None)


def test_both_commands_print_one_table(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    headings = []
    for words in (["profile", str(model), "--repeat", "1"], ["run", str(model), "--profile"]):
        assert main(words) == 0
        headings += [row for row in capsys.readouterr().out.splitlines() if "kernel  " in row]
    profile_words, run_words = (heading.split() for heading in headings)
    assert [word for word in profile_words if word in run_words] == run_words
