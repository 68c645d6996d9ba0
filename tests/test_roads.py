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

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
SHAPES = {"image": (1, 1, 8, 8)}


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
    class Capsule:
        """Offers nothing but DLPack."""

        def __dlpack__(self, **options: object) -> object:
            return image.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return image.__dlpack_device__()

    (output,) = treadle.load(artifact).run({"image": Capsule()})
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
    main = "import sys; from treadle.cli.main import main; sys.exit(main())"
    treadle_command = (sys.executable, "-c", main)
    np.savez(tmp_path / "in.npz", image=image)
    shapes = ("--input-shapes", "image:[1,1,8,8]")
    run(*treadle_command, "compile", MODEL, *shapes, "-o", "digits.tar", folder=tmp_path)
    files = ("--inputs", "in.npz", "--outputs", "out.npz")
    run(*treadle_command, "run", "digits.tar", *files, folder=tmp_path)
    with np.load(tmp_path / "out.npz") as outputs:
        (name,) = outputs.files
        check(outputs[name], expected)


def test_c_program(artifact: Path, image: np.ndarray, expected: np.ndarray, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path / "libtreadle.so"
    run(sys.executable, ROOT / "scripts" / "build_native.py", "--output", library, folder=tmp_path)
    source = ROOT / "native" / "examples" / "run_model.c"
    include = f"-I{ROOT / 'native' / 'include'}"
    link = (library, f"-Wl,-rpath,{tmp_path}")
    run(compiler, "-std=c11", include, source, *link, "-o", "run_model", folder=tmp_path)
    image.tofile(tmp_path / "image.bin")
    run("./run_model", artifact, "image.bin", "output.bin", folder=tmp_path)
    check(np.fromfile(tmp_path / "output.bin", np.float32).reshape(expected.shape), expected)
