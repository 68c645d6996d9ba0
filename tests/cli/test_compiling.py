# SPDX-License-Identifier: Apache-2.0
"""Commands that compile what they are given, or find it compiled already."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from treadle.cli.main import main
from treadle.settings import use

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
SHAPES = ("--input-shapes", "image:[1,1,8,8]")
_PROGRAM = """
import sys
from treadle.cli.main import main
code = main(sys.argv[1:])
print("compiler:", "treadle.build.compile" in sys.modules, "onnx" in sys.modules)
sys.exit(code)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of a network, old enough to be kept."""
    path = tmp_path / "digits.onnx"
    path.write_bytes(DIGITS.read_bytes())
    time.sleep(0.1)  # what was written just now may change unseen
    return path


def command(cache: Path, *words: str) -> str:
    """Run a command with a folder of models; return what it prints."""
    settings = {"TREADLE_CACHE": str(cache), "TREADLE_MODEL_CACHE": "100"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_was_compiled_is_run_without_the_compiler(model: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{name}.npz" for name in "abc"]
    said = [
        command(tmp_path / "cache", "run", str(model), *SHAPES, *more, "-o", str(path))
        for path, more in zip(outputs, ([], [], ["--opt-level", "0"]), strict=True)
    ]
    assert "compiler: True True" in said[0]
    assert "compiler: False False" in said[1]
    assert "compiler: True True" in said[2]  # compiled in another way
    first, again, plain = (dict(np.load(path)) for path in outputs)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert all(np.allclose(first[name], plain[name], atol=1e-5) for name in first)


def test_what_was_compiled_is_written_again(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifacts = [tmp_path / f"{name}.tar" for name in "abc"]
    rows = []
    with use(cache=tmp_path / "cache", model_cache=100):
        for artifact, more in zip(
            artifacts, ([], ["--check"], ["--dump-code", "tir"]), strict=True
        ):
            assert main(["compile", str(model), *SHAPES, "-o", str(artifact), *more]) == 0
            rows.append(capsys.readouterr().out.splitlines())
    first, again, dumped = rows
    assert not any(row.startswith("  kept") for row in [*first, *dumped])
    told = ("  time", "  kept", "  wrote", "  check", "  output", "  note")
    assert [r for r in again if not r.startswith(told)][: len(first) - 2] == first[:-2]
    assert any("kept     compiled before in the same way" in row for row in again)
    assert artifacts[1].read_bytes() == artifacts[0].read_bytes()
    assert (tmp_path / "c.tar.tir").exists()


def test_a_file_that_holds_what_is_kept_is_touched_only(model: Path, tmp_path: Path) -> None:
    artifact = tmp_path / "a.tar"
    words = ["compile", str(model), *SHAPES, "-o", str(artifact)]
    with use(cache=tmp_path / "cache", model_cache=100):
        assert main(words) == 0
        content = artifact.read_bytes()
        os.utime(artifact, (1, 1))
        of_first = artifact.stat()
        assert main(words) == 0
        assert artifact.stat().st_ino == of_first.st_ino
        assert artifact.stat().st_mtime > of_first.st_mtime
        for other in (content[:-1], content + b"\0", content[:-9] + b"\1" + content[-8:], b""):
            artifact.write_bytes(other)
            assert main(words) == 0
            assert artifact.read_bytes() == content
        (tmp_path / "other.tar").write_bytes(content)
        artifact.unlink()
        artifact.symlink_to("other.tar")  # the name of another's file: replaced, as ever
        assert main(words) == 0
    assert not artifact.is_symlink()
    assert artifact.read_bytes() == content


def test_other_machines_models_are_kept_and_only_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ("--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")
    words = ["compile", str(model), *SHAPES, *target, "-o", str(tmp_path / "arm.tar")]
    with use(cache=tmp_path / "cache", model_cache=100):
        assert main(words) == 0
        assert main(words) == 0
        assert "kept     compiled before" in capsys.readouterr().out
        assert main(["run", str(model), *SHAPES, *target]) == 2
    assert "the code is made for aarch64" in capsys.readouterr().err


def test_operators_of_the_user_are_never_kept(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("")
    words = [
        "compile",
        str(model),
        *SHAPES,
        "--operators",
        str(mine),
        "-o",
        str(tmp_path / "a.tar"),
    ]
    with use(cache=tmp_path / "cache", model_cache=100):
        assert main(words) == 0
        assert main(words) == 0
    assert "kept" not in capsys.readouterr().out
