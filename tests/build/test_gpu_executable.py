# SPDX-License-Identifier: Apache-2.0
"""Models compiled for GPUs: what runs where, saved and loaded, and what is refused."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import treadle
from benchmarks import networks
from tests.devices import has_nvrtc, image, model_of, small_network
from treadle.build.executable import Executable
from treadle.build.gpu_executable import GpuExecutable
from treadle.build.gpu_loaded import LoadedGpuExecutable
from treadle.build.kernel import Kernel
from treadle.cli.inputs import filled_inputs
from treadle.errors import ArtifactError, DeviceError, ScheduleError, TreadleError, UsageError
from treadle.target.host import why_not_here

on_opencl = pytest.mark.opencl
needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")


def agree(found: list[treadle.NDArray], wanted: list[treadle.NDArray]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


@pytest.fixture
def no_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that has no schedule of softmax for GPUs."""
    made = Kernel.source

    def source(self: Kernel) -> str:
        if self.target.family == "gpu" and "softmax" in self.name:
            raise ScheduleError("there is no schedule of softmax for GPUs")
        return made(self)

    monkeypatch.setattr(Kernel, "source", source)
    # What the cache holds is not scheduled.
    compiling = import_module("treadle.build.compile")  # `treadle.build` is a function
    monkeypatch.setattr(compiling, "load_kernel", lambda key: None)


@on_opencl
@pytest.mark.usefixtures("no_norm")
@pytest.mark.parametrize("batch", [1, "n"])
def test_a_kernel_without_a_schedule_runs_on_the_cpu(batch: int | str, tmp_path: Path) -> None:
    exe = treadle.compile(small_network(batch), target="opencl", dynamic=batch == "n")
    assert isinstance(exe, GpuExecutable)
    (kernel,) = exe.on_host
    assert "softmax" in kernel.name
    assert exe.executor.places()[kernel.name] == "cpu"
    assert set(exe.executor.places().values()) == {"cpu", "opencl(0)"}
    (note,) = (n for n in exe.notes if "runs on the CPU" in n)
    assert "there is no schedule of softmax for GPUs" in note
    reference = treadle.compile(small_network(batch), dynamic=batch == "n")
    for n in (1,) if batch == 1 else (2, 1):
        agree(exe(image(n)), reference(image(n)))
    exe.save(tmp_path / "model.tar")
    agree(treadle.load(tmp_path / "model.tar")(image()), reference(image()))


def nonzero() -> onnx.ModelProto:
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    return model_of(nodes, {"x": (8,)}, ["y"], types={"y": TensorProto.INT64})


@on_opencl
def test_a_model_that_its_data_decides_runs_on_the_cpu() -> None:
    exe = treadle.compile(nonzero(), target="opencl")
    assert type(exe) is Executable
    (note,) = (n for n in exe.notes if "runs on the CPU" in n)
    assert "its data decides sizes" in note
    x = np.array([0, 1, 0, 0, 2, 0, 0, 3], "float32")
    np.testing.assert_array_equal(exe(x)[0].numpy(), [[1, 4, 7]])


@on_opencl
@pytest.mark.parametrize("dynamic", [False, True])
def test_artifacts(tmp_path: Path, dynamic: bool) -> None:
    exe = treadle.compile(small_network("n"), target="opencl", dynamic=dynamic)
    path = tmp_path / "model.tar"
    exe.save(path)
    loaded = treadle.load(path, verify=True)
    assert isinstance(loaded, LoadedGpuExecutable)
    agree(loaded(image()), exe(image()))
    assert loaded.describe() == exe.describe()
    assert loaded.inputs == exe.inputs
    assert [k.name for k in loaded.kernels] == [k.name for k in exe.kernels]
    agree(loaded.fork()(image()), exe(image()))
    loaded.save(tmp_path / "copy.tar")
    assert (tmp_path / "copy.tar").read_bytes() == path.read_bytes()
    agree(treadle.load(path.read_bytes())(image()), exe(image()))


@on_opencl
def test_damaged_artifacts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    treadle.compile(small_network(), target="opencl").save(path)
    whole = path.read_bytes()
    code = whole.index(b"__kernel")
    with pytest.raises(ArtifactError, match=r"mod\.gpu does not match its hash"):
        treadle.load(whole[:code] + b"!" + whole[code + 1 :])
    for cut in (600, code, len(whole) // 2, len(whole) - 4096):
        with pytest.raises(ArtifactError):
            treadle.load(whole[:cut])
    weights = len(whole) - 8192
    broken = whole[:weights] + bytes([whole[weights] ^ 1]) + whole[weights + 1 :]
    with pytest.raises(ArtifactError):
        treadle.load(broken, verify=True)


@on_opencl
def test_other_forms_are_refused(tmp_path: Path) -> None:
    exe = treadle.compile(small_network(), target="opencl")
    with pytest.raises(UsageError, match="a model for opencl is not written as 'so'"):
        exe.save(tmp_path / "model.so")


@on_opencl
@needs_nvrtc
def test_a_model_for_cuda_is_compiled_without_a_gpu(tmp_path: Path) -> None:
    exe = treadle.compile(small_network(), target="cuda -arch=sm_90")
    assert isinstance(exe, GpuExecutable)
    assert all(k.object_code().code.partition(b"\n")[2][:4] == b"\x7fELF" for k in exe.on_device)
    assert ".target sm_90" in exe.kernels[0].asm()
    path = tmp_path / "model.tar"
    exe.save(path)
    if why_not_here(exe.target) is None:
        agree(treadle.load(path)(image()), treadle.compile(small_network())(image()))
        return
    with pytest.raises(TreadleError) as caught:
        exe(image())
    assert caught.value.hint
    with pytest.raises(DeviceError, match="the artifact is made for") as caught:
        treadle.load(path)
    assert caught.value.hint


@on_opencl
@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "resnet18_odd", "wavenet_like", "pose_head"])
def test_networks(name: str) -> None:
    model = networks.build(name)
    exe = treadle.compile(model, target="opencl")
    reference = treadle.compile(model)
    inputs = filled_inputs(reference, "random", {})
    for a, b in zip(exe.run(inputs), reference.run(inputs), strict=True):
        scale = np.abs(b.numpy()).max()
        np.testing.assert_allclose(a.numpy() / scale, b.numpy() / scale, atol=1e-4)
