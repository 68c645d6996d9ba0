# SPDX-License-Identifier: Apache-2.0
"""The commands with targets of GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.devices import has_nvrtc, image, small_network
from treadle.cli import doctor
from treadle.cli.main import main
from treadle.errors import DeviceError

on_opencl = pytest.mark.opencl
needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(small_network(), path)
    return path


@on_opencl
def test_a_model_is_compiled_checked_and_run(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = model.with_suffix(".tar")
    compiling = ["compile", str(model), "--target", "opencl", "-o", str(artifact), "--check"]
    assert main(compiling) == 0
    assert "runs on  opencl: " in capsys.readouterr().out
    np.savez(model.with_suffix(".npz"), x=image())
    outputs = model.with_name("outputs.npz")
    given = ["-i", str(model.with_suffix(".npz")), "-o", str(outputs), "--print-time", "--profile"]
    assert main(["run", str(artifact), *given]) == 0
    told = capsys.readouterr().out
    assert "output   y: float32[1,8]" in told
    assert "median (ms)" in told
    assert np.load(outputs)["y"].shape == (1, 8)


@on_opencl
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["explain"], "runs on  opencl: it has a schedule for GPUs"),
        (["profile", "--repeat", "1"], "GFLOP/s"),
        (["bench", "--repeat", "3"], "device   opencl(0), "),
        (["bench", "--repeat", "3", "--kernels"], "kernels"),
        (["compare"], "y: max|Δ|"),
    ],
)
def test_models_are_looked_into(
    model: Path, command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command
    assert main([name, str(model), "--target", "opencl", *options]) == 0
    assert words in capsys.readouterr().out


@on_opencl
@needs_nvrtc
def test_a_model_for_a_gpu_that_is_not_here_is_refused_with_the_next_step(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = str(model.with_suffix(".tar"))
    target = "cuda -arch=sm_75"
    assert main(["compile", str(model), "--target", target, "-o", artifact]) == 0
    assert main(["run", artifact]) != 0
    told = capsys.readouterr().err
    assert "the artifact is made for" in told
    assert "hint" in told


def test_the_doctor_lists_devices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(kind: str) -> list[object]:
        if kind == "opencl":
            return []
        raise DeviceError("NVIDIA's driver (libcuda.so.1) is not found on this machine")

    monkeypatch.setattr(doctor, "found_devices", none)
    main(["doctor"])
    rows = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "gpu      cuda – NVIDIA's driver (libcuda.so.1) is not found on this machine" in rows
    assert "gpu      opencl – none is found" in rows


@on_opencl
def test_the_doctor_names_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    assert "gpu      opencl(0) · " in capsys.readouterr().out


@on_opencl
def test_kernels_for_gpus_are_tuned(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = str(tmp_path / "r.jsonl")
    tune = ["tune", str(model), "--target", "opencl", "-o", records]
    assert main([*tune, "--trials", "4"]) == 0
    assert "trials   4" in capsys.readouterr().out
    assert main([*tune, "--space", "sketch"]) != 0
    assert "there are no sketches for opencl" in capsys.readouterr().err


@on_opencl
def test_the_text_of_kernels_is_written(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = model.with_suffix(".tar")
    compiling = ["compile", str(model), "--target", "opencl", "-o", str(artifact)]
    assert main([*compiling, "--dump-code", "cl,tir"]) == 0
    assert "__kernel" in artifact.with_name("model.tar.cl").read_text()
    assert main([*compiling, "--dump-code", "cu"]) != 0
    assert "write --dump-code cl" in capsys.readouterr().err
