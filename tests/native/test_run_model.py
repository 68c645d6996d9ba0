# SPDX-License-Identifier: Apache-2.0
"""A plain C program runs an artifact with nothing but the native runtime."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import treadle
from tests.processes import PATIENCE
from tests.runtime import artifacts
from tests.runtime.artifacts import ROOT
from treadle.runtime import native, native_build


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example program, linked to the native runtime."""
    library = native.find_library()
    made = tmp_path_factory.mktemp("program") / "run_model"
    source = ROOT / "native" / "examples" / "run_model.c"
    command = [*artifacts.compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", str(source)]
    command += [f"-I{ROOT / 'native' / 'include'}", "-o", str(made), str(library)]
    command += [f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, check=True, timeout=120)
    return made


def run(program: Path, *args: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *map(str, args)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_it_prints_and_writes_the_outputs(program: Path, tmp_path: Path) -> None:
    model = artifacts.write_artifact(tmp_path / "model.tar")
    data = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    data.tofile(tmp_path / "data.bin")
    done = run(program, model, tmp_path / "data.bin", tmp_path / "out.bin", tmp_path / "sum.bin")
    assert done.returncode == 0, done.stderr
    constant = artifacts.small_constants()["p0"]
    total = data + constant
    out = 2 * total + constant
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out.bin", np.float32), out.ravel())
    np.testing.assert_array_equal(np.fromfile(tmp_path / "sum.bin", np.float32), total.ravel())
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f'output 0 "out" float32[4, 4] hash {native.hash64(out.tobytes())}')
    assert lines[1].startswith(
        f'output 1 "sum" float32[4, 4] hash {native.hash64(total.tobytes())}'
    )
    first = [float(word) for word in lines[1].split("first ")[1].split()]
    np.testing.assert_allclose(first, total.ravel()[:5], rtol=1e-5)


def test_mistakes_end_with_code_2_and_a_message(program: Path, tmp_path: Path) -> None:
    model = artifacts.write_artifact(tmp_path / "model.tar")
    (tmp_path / "short.bin").write_bytes(bytes(60))
    (tmp_path / "good.bin").write_bytes(bytes(64))
    cases = (
        ([], "usage:"),
        ([tmp_path / "none.tar"], "cannot open"),
        ([tmp_path / "good.bin"], "not a tar archive"),
        ([model], "the model has 1 inputs and 2 outputs; 0 files are given"),
        ([model, tmp_path / "short.bin"], '64 bytes of input "data", float32[4, 4]'),
        ([model, tmp_path / "none.bin"], "cannot open"),
        ([model, tmp_path / "good.bin", tmp_path / "no" / "out.bin"], "cannot write"),
    )
    for arguments, message in cases:
        done = run(program, *arguments)
        assert done.returncode == 2
        assert message in done.stderr


def test_a_bad_number_of_threads_is_reported(program: Path, tmp_path: Path) -> None:
    model = artifacts.write_artifact(tmp_path / "model.tar")
    done = run(program, model, TREADLE_NUM_THREADS="several")
    assert done.returncode == 2
    assert "TREADLE_NUM_THREADS is 'several'; it must be a number from 1 to 512" in done.stderr


def test_the_runtime_needs_no_python() -> None:
    library = native.find_library().read_bytes()
    assert b"PyObject" not in library
    assert b"libpython" not in library


def test_the_sources_compile_without_a_warning(tmp_path: Path) -> None:
    artifacts.compiler()
    library = tmp_path / native_build.LIBRARY
    native_build.build(library, strict=True)
    assert native_build.is_current(library, native_build.find_sources())


def test_a_model_with_open_sizes_takes_shapes(program: Path, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 3])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, None),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    artifact = tmp_path / "open.tar"
    treadle.compile(model, dynamic=True).save(artifact)
    for shape in ((1, 2, 3), (4, 5, 3)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        x.tofile(tmp_path / "x.bin")
        given = "x".join(map(str, shape))
        files = (f"{given}:{tmp_path / 'x.bin'}", tmp_path / "y.bin")
        done = run(program, artifact, *files)
        assert done.returncode == 0, done.stderr
        expected = x @ x.transpose(0, 2, 1)
        np.testing.assert_array_equal(np.fromfile(tmp_path / "y.bin", np.float32), expected.ravel())
        assert f"float32[{shape[0]}, {shape[1]}, {shape[1]}]" in done.stdout
    for given, message in (
        ("", "does not start with a shape"),
        ("4x5:", "does not start with a shape"),
        ("4x5x2:", "does not start with a shape"),
        ("4x5x3x1:", "does not start with a shape"),
        ("4x6x3:", "does not have the 288 bytes"),
        ("4000000000x4000000000x3:", "is too large"),
    ):
        done = run(program, artifact, f"{given}{tmp_path / 'x.bin'}")
        assert done.returncode == 2
        assert message in done.stderr
