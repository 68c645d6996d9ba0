# SPDX-License-Identifier: Apache-2.0
"""Options that mean nothing, tools that are missing, disks that are full."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.abuse.conftest import Cli
from tests.abuse.models import model, relu, tensor
from tests.processes import PATIENCE

ROOT = Path(__file__).resolve().parents[2]

SHAPES = {
    "": "empty",
    "x": "'x'",
    "x:": "'x:'",
    "x:[2,3": "'x:[2,3'",
    "x:2,3": "'x:2,3'",
    "x:[2,3] y": "'y'",
    "x:[2 3]": "'2 3'",
    "x:[2,,3]": "''",
    "x:[a,b]": "'a'",
    "x:[-1,3]": "'-1'",
    "x:[2.5,3]": "'2.5'",
    "x:[99999999999999999999,3]": "'99999999999999999999'",
    "x:[2,3] x:[2,3]": "twice",
    "X:[2,3]": "no input 'X'",
    "x:[2]": "2 dimensions",
    "x:[2,4]": "not 4",
    "x:[٢,3]": "'٢'",
}


@pytest.mark.parametrize("text", SHAPES)
def test_shapes(cli: Cli, good: Path, text: str) -> None:
    assert SHAPES[text] in cli.fails("compile", good, "--input-shapes", text)


def test_shapes_that_overflow(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    made = model([relu()], [tensor("x", ["N", "C"])], [tensor("y", ["N", "C"])])
    path.write_bytes(made.SerializeToString())
    shapes = f"x:[{1 << 39},{1 << 39}]"
    assert "fits in no memory" in cli.fails("compile", path, "--input-shapes", shapes)
    big = f"x:[{1 << 20},{1 << 20}]"
    assert "memory" in cli.fails("run", path, "--input-shapes", big)


TARGETS = {
    "": "empty",
    "lvm": "did you mean llvm?",
    "cuda -arch=sm_1": "sm_1",
    "cuda -mcpu=haswell": "mcpu",
    "metal": "not built yet",
    "llvm -mcpu=hasswell": "did you mean haswell?",
    "llvm -mattr=+avx3": "'avx3'",
    "llvm -mattr=avx2": "no sign",
    "llvm -mtriple=z80-linux": "'z80'",
    "llvm -mcpuu=haswell": "mcpu",
    "llvm -num-cores=many": "many",
    "llvm -num-cores=0": "0",
    "llvm 'unclosed": "quotation",
    "llvm -mcpu=cortex-a72": "cortex-a72",
    "llvm -mtriple=x86_64-windows-msvc": "windows",
    "llvm; rm -rf /": "llvm;",
    "llvm\0": "llvm",
}


@pytest.mark.parametrize("text", TARGETS)
def test_targets(cli: Cli, good: Path, text: str) -> None:
    assert TARGETS[text] in cli.fails("compile", good, "--target", text)


def test_artifact_for_another_machine(cli: Cli, good: Path, tmp_path: Path) -> None:
    """It can be made where a linker for it is found, and says why it does not run here."""
    path = tmp_path / "other.tar"
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
    done = cli("compile", good, "--target", target, "-o", path)
    if done.code == 2:
        assert "linker" in done.err
        return
    assert "cpu feature" in cli.fails("run", path).lower() or "aarch64" in cli.fails("run", path)


BAD_OPTIONS: dict[str, tuple[list[str], str]] = {
    "level": (["compile", "good.onnx", "--opt-level", "9"], "--opt-level"),
    "level text": (["compile", "good.onnx", "--opt-level", "high"], "--opt-level"),
    "repeat zero": (["run", "good.tar", "--repeat", "0"], "--repeat"),
    "number huge": (["run", "good.tar", "--number", "9" * 30], "--number"),
    "top negative": (["run", "good.tar", "--print-top", "-1"], "--print-top"),
    "fill": (["run", "good.tar", "--fill-mode", "noise"], "--fill-mode"),
    "threads": (["run", "good.tar", "--threads", "0"], "--threads"),
    "too many threads": (["run", "good.tar", "--threads", "100000"], "argument --threads"),
    "peer": (["bench", "good.onnx", "--vs", "onnxruntim"], "did you mean onnxruntime?"),
    "peer of an artifact": (["bench", "good.tar", "--vs", "onnxruntime"], "--onnx"),
    "no command": (["compil"], "did you mean compile?"),
    "option": (["compile", "good.onnx", "--outptu", "x.tar"], "did you mean --output?"),
    "two models": (["compile", "good.onnx", "good.onnx"], "unknown argument"),
    "no model": (["compile"], "MODEL"),
    "no value": (["run", "good.tar", "--inputs"], "--inputs"),
    "linker": (["compile", "good.onnx", "--linker", "no-such-linker"], "no-such-linker"),
    "linker empty": (["compile", "good.onnx", "--linker", ""], "--linker"),
    "linker quotes": (["compile", "good.onnx", "--linker", "gcc '"], "--linker"),
    "linker fails": (["compile", "good.onnx", "--linker", "false"], "false"),
    "onto itself": (["compile", "good.onnx", "-o", "good.onnx"], "the model itself"),
    "no folder": (["compile", "good.onnx", "-o", "absent/out.tar"], "absent"),
    "a folder": (["compile", "good.onnx", "-o", "."], "it is a folder"),
    "a device": (["compile", "good.onnx", "-o", "/dev/full"], "not a regular file"),
    "outputs nowhere": (["run", "good.tar", "--outputs", "absent/out.npz"], "absent"),
    "outputs to a device": (["run", "good.tar", "--outputs", "/dev/full"], "not a regular file"),
    "name too long": (["compile", "good.onnx", "-o", "x" * 300], "too long"),
    "no name": (["compile", "good.onnx", "-o", ""], "folder"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_options(cli: Cli, good: Path, artifact: Path, case: str) -> None:
    words, said = BAD_OPTIONS[case]
    assert said in cli.fails(*words)


def test_no_linker(cli: Cli, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)  # nor the ziglang wheel
    error = cli.fails("compile", good, "--target", "llvm -mtriple=riscv64-linux-gnu")
    assert "no linker is found" in error
    assert "pip install" in error
    assert cli("compile", good).code == 0  # x86-64 and aarch64 need none


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_is_not_writable(cli: Cli, good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    assert "not writable" in cli.fails("compile", good, "-o", folder / "out.tar")


def treadle(*words: str | Path, **limits: int) -> subprocess.CompletedProcess[str]:
    """Run the command in a process with resource limits such as FSIZE=4096."""

    def limit() -> None:
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))

    return subprocess.run(
        [sys.executable, "-m", "treadle", *map(str, words)],
        # Python keeps bytecode that a limit on files has cut off.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=limit,
        check=False,
    )


def test_disk_that_is_full(cli: Cli, good: Path, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    for words in (
        ("compile", good, "-o", tmp_path / "out.tar"),
        ("run", good, "--outputs", tmp_path / "out.npz"),
    ):
        done = treadle(*words, FSIZE=100)
        assert done.returncode == 2, done
        assert "out." in done.stderr
        assert "cannot be written" in done.stderr
        assert set(tmp_path.iterdir()) == before


def test_memory_that_is_short(tmp_path: Path) -> None:
    """Values that are larger than the memory end in an error, not in a crash."""
    path = tmp_path / "large.onnx"
    shape = [1 << 14, 1 << 18]
    onnx.save(model([relu()], [tensor("x", shape)], [tensor("y", shape)]), path)
    done = treadle("run", path, DATA=2 << 30)
    assert done.returncode == 2, done
    assert "memory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("case", ["weights", "fill"])
def test_hostile_files_take_little_memory(tmp_path: Path, case: str) -> None:
    """What a small file asks for is refused before it is allocated."""
    made = model([relu()])
    if case == "weights":
        made.graph.initializer.add(name="w", data_type=1, dims=[1 << 20, 1 << 20])
    else:
        made.graph.initializer.append(helper.make_tensor("s", 7, [1], [1 << 35]))
        made.graph.node.append(helper.make_node("ConstantOfShape", ["s"], ["t"]))
        made.graph.node.append(helper.make_node("Neg", ["t"], ["z"]))
        made.graph.output.append(helper.make_tensor_value_info("z", 1, [1 << 35]))
    path = tmp_path / "bad.onnx"
    path.write_bytes(made.SerializeToString())
    done = treadle("run", path, DATA=1 << 30)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr
