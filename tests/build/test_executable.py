# SPDX-License-Identifier: Apache-2.0
"""Executables: forks, loading from bytes, telling what was loaded whatever becomes of files."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import treadle
from treadle.errors import ArtifactError, UsageError

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def model(*steps: str, weight: float = 2) -> bytes:
    """A model of x * weight and then the operators named."""
    names = ["x", *(f"t{i}" for i in range(len(steps))), "y"]
    nodes = [helper.make_node("Mul", ["x", "w"], [names[1]])]
    nodes += [helper.make_node(op, [names[i + 1]], [names[i + 2]]) for i, op in enumerate(steps)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [2, 3])],
        [value("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.full((2, 3), weight, np.float32), "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def check(executable: treadle.Executable | treadle.LoadedExecutable) -> None:
    (y,) = executable.run([X])
    np.testing.assert_array_equal(y.numpy(), 2 * X)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "model.tar"
    treadle.compile(model()).save(path)
    return path


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_artifacts_are_loaded_from_bytes(artifact: Path, kind: Callable[[bytes], bytes]) -> None:
    content = kind(artifact.read_bytes())
    loaded = treadle.load(content)
    artifact.unlink()
    check(loaded)
    assert loaded.input_sizes() == {"x": (2, 3)}
    loaded.save(artifact)
    assert artifact.read_bytes() == bytes(content)


def test_bytes_that_are_no_artifact_are_refused_in_few_words() -> None:
    with pytest.raises(ArtifactError) as caught:
        treadle.load(b"junk" * 300_000)
    assert caught.value.at == "an artifact of 1,200,000 bytes in memory"
    assert len(str(caught.value)) < 500


def test_what_was_loaded_is_described_after_the_folder_changes(
    artifact: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(artifact.parent)
    loaded = treadle.load(artifact.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert loaded.input_sizes() == {"x": (2, 3)}
    assert len(loaded.instructions()) == 1
    loaded.save("copy.tar")
    check(treadle.load("copy.tar"))


def test_what_was_loaded_is_described_after_the_file_is_replaced(artifact: Path) -> None:
    loaded, before = treadle.load(artifact), artifact.read_bytes()
    plan = treadle.load(artifact).describe()
    treadle.compile(model("Softmax"), shapes={}).save(artifact)
    assert artifact.read_bytes() != before
    assert loaded.describe() == plan
    loaded.save(artifact)  # over the file that took the name
    assert artifact.read_bytes() == before


def test_a_file_that_was_written_to_is_not_saved(artifact: Path, tmp_path: Path) -> None:
    loaded = treadle.load(artifact)
    with artifact.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ArtifactError, match="has changed since it was loaded"):
        loaded.save(tmp_path / "copy.tar")
    assert not (tmp_path / "copy.tar").exists()


def test_forks_run_and_describe_the_same_model(artifact: Path) -> None:
    compiled, loaded = treadle.compile(model()), treadle.load(artifact)
    for executable in (compiled, loaded):
        fork = executable.fork()
        check(fork)
        assert type(fork) is type(executable)
        assert fork.executor is not executable.executor
        assert fork.describe() == executable.describe()
        executable.executor.close()
        check(fork)
        with pytest.raises(UsageError, match="closed"):
            check(executable)


def test_executables_cannot_be_pickled(artifact: Path) -> None:
    for executable in (treadle.compile(model()), treadle.load(artifact)):
        with pytest.raises(UsageError, match="cannot be pickled") as caught:
            pickle.dumps(executable)
        assert ".save(path)" in caught.value.hint


def test_weights_of_a_compiled_model_are_there_once(tmp_path: Path) -> None:
    """What had to be copied to an aligned place takes the place of what it was copied from."""
    path = tmp_path / "model.onnx"
    path.write_bytes(model())
    executable = treadle.compile(path)
    check(executable)
    for held in executable.memory.constants.values():
        assert held.__array_interface__["data"][0] % 64 == 0


def test_a_missing_file_and_an_empty_path(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot open the artifact: No such file") as caught:
        treadle.load(tmp_path / "none.tar")
    assert caught.value.at == os.fspath(tmp_path / "none.tar")
    with pytest.raises(UsageError, match="the artifact's path is empty"):
        treadle.load("")
