# SPDX-License-Identifier: Apache-2.0
"""`treadle explain` and `treadle compile --check`."""

from __future__ import annotations

import json
import re
import sys
from math import prod
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from treadle.build.agreement import agreement
from treadle.build.executable import Executable
from treadle.cli.main import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution with an activation, a pool, a product; a node without effect."""
    random = np.random.default_rng(0)
    weights = {"w": (32, 3, 3, 3), "v": (32, 4)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("Identity", ["c"], ["same"], name="nothing"),
        helper.make_node("Relu", ["same"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "v"], ["y"], name="product"),
        helper.make_node("ArgMax", ["y"], ["i"], name="best", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 16))],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4)),
            helper.make_tensor_value_info("i", TensorProto.INT64, (1, 1)),
        ],
        [numpy_helper.from_array(random.random(s).astype("f"), n) for n, s in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    path = tmp_path / "net.onnx"
    onnx.save(made, path)
    return path


def test_explain_says_what_became_of_every_node(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["nodes"][-1]: row for row in found["instructions"]}
    fused = rows["relu"]
    assert fused["nodes"] == ["conv", "relu"]
    assert fused["operators"][0] == "conv2d_nchwc"
    choices = {c["topic"]: c for c in fused["choices"]}
    assert choices["layout"]["choice"].startswith("NCHW")
    method = choices["method"]
    assert method["choice"] == "direct"
    assert method["call"].startswith("conv(float32[")
    table = {c["name"]: c for c in method["candidates"]}
    assert {"direct", "plain", "winograd-4", "strassen", "depthwise"} <= set(table)
    assert table["direct"]["reason"] == ""
    assert table["direct"]["cycles"] > 0
    assert table["depthwise"]["cycles"] is None
    assert all(c["reason"] for name, c in table.items() if name != "direct")
    assert "pool" in choices["ends"]["reason"]
    assert found["without_kernel"] == ["nothing", "flatten"]


def test_explain_prints_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(model)]) == 0
    out = capsys.readouterr().out
    assert "nodes    conv, relu" in out
    assert "method   direct: the least of the estimates" in out
    assert "a channel has not one filter of its own" in out
    assert "2 nodes without a kernel" in out


def test_explain_says_what_c_source_takes_of_the_stack(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target, said in (
        (
            "c -mtriple=thumbv7em-none-eabi",
            r"\d+ B: of 1\.0 kB that arrays may take; larger ones are",
        ),
        ("c -mtriple=armv7-linux-gnueabihf", r"\d+ B: of 1\.0 MB that an array may take"),
        ("c", ""),
    ):
        assert main(["explain", str(model), "--target", target]) == 0
        out = capsys.readouterr().out
        assert re.search(rf"stack +{said}", out) if said else "stack" not in out


def test_explain_refuses_an_artifact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.tar").write_bytes(b"")
    assert main(["explain", str(tmp_path / "x.tar")]) == 2
    assert "holds machine code" in capsys.readouterr().err


@pytest.mark.parametrize("is_installed", [True, False])
def test_check_compares_every_output(
    model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_installed: bool,
) -> None:
    if not is_installed:
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["compile", str(model), "-o", str(model.with_suffix(".tar")), "--check"]) == 0
    out = capsys.readouterr().out
    source = "against onnxruntime" if is_installed else "NumPy references (onnxruntime is not inst"
    assert source in out
    assert "i: equal" in out
    assert "y: max|Δ|" in out


def test_check_finds_a_wrong_output(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Executable.run
    monkeypatch.setattr(
        Executable, "run", lambda self, given: [np.asarray(o) * 2 for o in run(self, given)]
    )
    assert main(["compile", str(model), "-o", str(model.with_suffix(".tar")), "--check"]) == 1
    captured = capsys.readouterr()
    assert "departs" in captured.out
    assert "of 2 departs" in captured.err
    artifact = model.with_suffix(".tar")
    assert f"treadle compare {model} {artifact} --layers shows where" in captured.err
    assert f"{artifact} is kept" in captured.err
    assert artifact.exists()


def test_check_refuses_another_machine(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = "llvm -mtriple=aarch64-linux-gnu"
    words = ["compile", str(model), "--check", "--target", target, "--linker", "true"]
    assert main([*words, "-o", str(model.with_suffix(".tar"))]) == 2
    assert "the code is made for aarch64-linux-gnu, this machine is" in capsys.readouterr().err


def test_agreement() -> None:
    one = np.array([1.0, -100.0, np.inf, np.nan], np.float32)
    assert agreement(one, one).holds
    assert str(agreement(one, one)) == "equal"
    near = one + np.array([5e-3, 0, 0, 0], np.float32)
    assert agreement(near, one).holds
    assert not agreement(near, one, share=1e-6).holds
    assert "other places" in str(agreement(one[::-1].copy(), one))
    assert "is float64[4], not float32[4]" in str(agreement(one.astype("f8"), one))
    assert not agreement(np.array([1, 2]), np.array([1, 3])).holds
    assert "infinities or NaN more" in str(agreement(np.array([np.nan]), np.array([1.0])))


def test_code_is_dumped_beside_the_artifact(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = model.with_suffix(".tar")
    words = ["compile", str(model), "-o", str(output)]
    assert main([*words, "--dump-code", "relay,tir,ll,asm"]) == 0
    for kind, word in {"relay": "conv2d", "tir": "for ", "ll": "define ", "asm": "ret"}.items():
        assert word in output.with_name(f"{output.name}.{kind}").read_text()
    with pytest.raises(SystemExit):
        main([*words, "--dump-code", "ll,ptx"])
    assert "'ptx' is none of relay, tir, ll, c, cu, cl, asm" in capsys.readouterr().err


@pytest.fixture
def kernel_name(model: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The name of the kernel that has the convolution."""
    assert main(["explain", str(model), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["instructions"]
    return next(str(row["kernel"]) for row in rows if "relu" in row["nodes"])


def test_explain_prints_the_knobs_of_a_kernel(
    model: Path, kernel_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(model), "--kernel", kernel_name[:-3], "--json", "--space"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kernel"], found["config"]) == (kernel_name, {})
    assert found["origins"] == ["conv+relu"]
    tile = next(k for k in found["knobs"] if k["name"] == "tile")
    assert tile["parts"] == ["high", "wide", "vectors"]
    assert tile["next_best"]["cost"] >= tile["cost"]
    assert tile["next_best"] in tile["space"]
    assert found["size"] == prod(k["candidates"] for k in found["knobs"])
    for knob in found["knobs"]:
        assert knob["candidates"] == len(knob["space"])
        assert knob["is_default"]
        if knob["cost"] is not None:
            assert knob["cost"] == min(c["cost"] for c in knob["space"])
    assert main(["explain", str(model), "--kernel", kernel_name]) == 0
    out = capsys.readouterr().out
    assert f"kernel   {kernel_name}" in out
    assert "config   defaults" in out
    assert re.search(r"tile \(high × wide × vectors\) +\d+ × \d+ × \d+ +[\d.]+ ", out)


def test_explain_takes_the_number_of_a_kernel(
    model: Path, kernel_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(model)]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.endswith(f"  {kernel_name}"))
    assert main(["explain", str(model), "--kernel", line.split()[0]]) == 0
    assert f"kernel   {kernel_name}" in capsys.readouterr().out
    assert main(["explain", str(model), "--kernel", "99"]) == 2
    assert "error: there is no kernel 99\n" in capsys.readouterr().err


def test_explain_names_the_kernels_there_are(
    model: Path, kernel_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(model), "--kernel", kernel_name[:-1] + "x"]) == 2
    err = capsys.readouterr().err
    assert f"error: there is no kernel {kernel_name[:-1]}x\n" in err
    assert f"hint  name one, for example {kernel_name}" in err
    assert main(["explain", str(model), "--kernel", ""]) == 2
    assert "kernels are called …" in capsys.readouterr().err
    assert main(["explain", str(model), "--space"]) == 2
    assert "--space is of one kernel" in capsys.readouterr().err


def test_explain_shows_what_records_set(
    model: Path, kernel_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", str(model), "--kernel", kernel_name]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    other = next(k["next_best"]["value"] for k in found["knobs"] if k["name"] == "tile")
    record = {
        "version": 1,
        "kernel": kernel_name,
        "target": found["target"],
        "config": {"tile": other},
    }
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(record))
    assert main([*words, "--tuning-records", str(path), "--json"]) == 0
    knobs = {k["name"]: k for k in json.loads(capsys.readouterr().out)["knobs"]}
    assert (knobs["tile"]["value"], knobs["tile"]["is_default"]) == (other, False)
    assert main([*words, "--tuning-records", str(path), "--space"]) == 0
    out = capsys.readouterr().out
    assert f"config   tile = {' × '.join(map(str, other))}" in out
    assert "taken" in out
    path.write_text("{}\n")
    assert main([*words, "--tuning-records", str(path)]) == 2
    assert f"a record has no version\n  at    {path}, line 1" in capsys.readouterr().err


def test_compile_says_once_which_record_does_not_fit(
    model: Path, kernel_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(model), "--kernel", kernel_name, "--json"]) == 0
    target = json.loads(capsys.readouterr().out)["target"]
    record = {"version": 1, "kernel": kernel_name, "target": target, "config": {"tile": [99]}}
    path, saved = tmp_path / "records.jsonl", tmp_path / "net.tar"
    path.write_text(json.dumps(record))
    assert main(["compile", str(model), "-o", str(saved), "--tuning-records", str(path)]) == 0
    captured = capsys.readouterr()
    of = f"the record ({path}, line 1) of kernel {kernel_name}"
    said = f"{of} does not fit it, which runs by default: "
    assert (captured.out + captured.err).count(said + "99 is no candidate of knob tile") == 1
    assert (
        main(["explain", str(model), "--kernel", kernel_name, "--tuning-records", str(path)]) == 0
    )
    assert f"note     {said}" in capsys.readouterr().out
    assert main(["run", str(saved), "--tuning-records", str(path)]) == 2
    assert f"--tuning-records cannot change {saved}" in capsys.readouterr().err
