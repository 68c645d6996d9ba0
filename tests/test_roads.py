# SPDX-License-Identifier: Apache-2.0
"""One model, one answer, on every road: Python, DLPack, saved, another process, CLI, C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import treadle
from benchmarks import engines, light_networks, networks
from benchmarks.architectures import ARCHITECTURES

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
SHAPES = {"image": (1, 1, 8, 8)}
COMMAND = (sys.executable, "-c", "import sys; from treadle.cli.main import main; sys.exit(main())")
NETWORKS = (
    *light_networks.FILES,
    *(pytest.param(f"{name}_torch", marks=pytest.mark.torch) for name in ARCHITECTURES),
)


class DLPackOnly:
    """An array that offers nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)


@pytest.fixture(scope="module")
def expected(image: np.ndarray) -> np.ndarray:
    (probabilities,) = onnxruntime.InferenceSession(MODEL).run(None, {"image": image})
    return np.asarray(probabilities)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "digits.tar"
    treadle.compile(MODEL, shapes=SHAPES).save(path)
    return path


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example program, linked with nothing but the native runtime."""
    folder = tmp_path_factory.mktemp("c")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / "libtreadle.so"
    run(sys.executable, ROOT / "scripts" / "build_native.py", "--output", library, folder=folder)
    source = ROOT / "native" / "examples" / "run_model.c"
    include = f"-I{ROOT / 'native' / 'include'}"
    link = (library, f"-Wl,-rpath,{folder}")
    run(compiler, "-std=c11", include, source, *link, "-o", "run_model", folder=folder)
    return folder / "run_model"


def run(*command: str | Path, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check(probabilities: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(probabilities), expected, rtol=1e-4, atol=1e-6)


def test_numpy_by_position_and_by_name(image: np.ndarray, expected: np.ndarray) -> None:
    executable = treadle.compile(MODEL, shapes=SHAPES)
    check(executable(image)[0], expected)
    check(executable.run({"image": image})[0], expected)


def test_compiled_and_loaded_models_measure_themselves(artifact: Path, image: np.ndarray) -> None:
    for model in (treadle.compile(MODEL, shapes=SHAPES), treadle.load(artifact)):
        result = model.benchmark({"image": image}, number=2, repeat=3)
        assert len(result.results) == 3
        assert 0 < result.min <= result.median <= result.max


def test_dlpack_in_and_out(artifact: Path, image: np.ndarray, expected: np.ndarray) -> None:
    (output,) = treadle.load(artifact).run({"image": DLPackOnly(image)})
    check(np.from_dlpack(output), expected)


@pytest.mark.torch
def test_torch_tensor_in_and_out(artifact: Path, image: np.ndarray, expected: np.ndarray) -> None:
    import torch

    (output,) = treadle.load(artifact).run({"image": torch.from_numpy(image)})
    check(torch.from_dlpack(output).numpy(), expected)


def test_saved_artifact_in_another_process(
    artifact: Path, image: np.ndarray, expected: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "image.npy", image)
    program = (
        "import sys, numpy, treadle\n"
        "(output,) = treadle.load(sys.argv[1]).run({'image': numpy.load('image.npy')})\n"
        "numpy.save('output.npy', numpy.asarray(output))\n"
    )
    run(sys.executable, "-c", program, artifact, folder=tmp_path)
    check(np.load(tmp_path / "output.npy"), expected)


def test_command_line_from_npz_to_npz(
    image: np.ndarray, expected: np.ndarray, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", image=image)
    shapes = ("--input-shapes", "image:[1,1,8,8]")
    run(*COMMAND, "compile", MODEL, *shapes, "-o", "digits.tar", folder=tmp_path)
    files = ("--inputs", "in.npz", "--outputs", "out.npz")
    run(*COMMAND, "run", "digits.tar", *files, folder=tmp_path)
    with np.load(tmp_path / "out.npz") as outputs:
        (name,) = outputs.files
        check(outputs[name], expected)


def test_c_program(
    artifact: Path, image: np.ndarray, expected: np.ndarray, c_program: Path, tmp_path: Path
) -> None:
    image.tofile(tmp_path / "image.bin")
    run(c_program, artifact, "image.bin", "output.bin", folder=tmp_path)
    check(np.fromfile(tmp_path / "output.bin", np.float32).reshape(expected.shape), expected)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_on_every_road(name: str, level: int, c_program: Path, tmp_path: Path) -> None:
    """NumPy, DLPack, the command line from npz to npz in a fresh process, a C program: one result.

    All give the same bits, within 1e-4 (norm) of onnxruntime.
    """
    path, artifact = tmp_path / f"{name}.onnx", tmp_path / f"{name}.tar"
    networks.write(networks.build(name), path)
    inputs = engines.random_inputs(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = [np.asarray(x) for x in session.run(None, inputs)]
    treadle.compile(path, opt_level=level).save(artifact)
    results = [np.asarray(x) for x in treadle.load(artifact).run(inputs)]
    for result, reference in zip(results, expected, strict=True):
        error = np.linalg.norm(result - reference) / np.linalg.norm(reference)
        assert error < 1e-4, f"relative error {error:.1e}"

    capsules = {key: DLPackOnly(value) for key, value in inputs.items()}
    for result, output in zip(results, treadle.load(artifact).run(capsules), strict=True):
        np.testing.assert_array_equal(np.from_dlpack(output), result)

    np.savez(tmp_path / "in.npz", **inputs)
    files = ("--inputs", "in.npz", "--outputs", "out.npz")
    run(*COMMAND, "run", artifact, *files, folder=tmp_path)
    with np.load(tmp_path / "out.npz") as outputs:
        for result, key in zip(results, outputs.files, strict=True):
            np.testing.assert_array_equal(outputs[key], result)

    files_in = [f"in{k}.bin" for k in range(len(inputs))]
    files_out = [f"out{k}.bin" for k in range(len(results))]
    for file, value in zip(files_in, inputs.values(), strict=True):
        value.tofile(tmp_path / file)
    run(c_program, artifact, *files_in, *files_out, folder=tmp_path)
    for result, file in zip(results, files_out, strict=True):
        np.testing.assert_array_equal(
            np.fromfile(tmp_path / file, result.dtype), result.reshape(-1)
        )
