# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import io
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.abuse.models import good_model
from treadle.cli.main import main
from treadle.runtime import native

SECONDS = 60.0
"""What a command may compute; the time others take of the cores does not count."""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Cli:
    """Runs `treadle` in this process, in a folder whose content must not change.

    `temporary` is the folder for temporary files; other programs use the system's.
    """

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.folder = folder
        self.temporary = temporary

    def __call__(self, *arguments: str | Path) -> Result:
        out, err = io.StringIO(), io.StringIO()
        start = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main([str(a) for a in arguments])
            except SystemExit as end:  # argparse
                code = end.code if isinstance(end.code, int) else 1
        assert time.process_time() - start < SECONDS
        return Result(code, out.getvalue(), err.getvalue())

    def fails(self, *arguments: str | Path) -> str:
        """Run; check that it is refused as it should be and leaves nothing; return the error."""
        before = self._files()
        result = self(*arguments)
        assert result.code == 2, result
        assert "error: " in result.err, result
        assert "Traceback" not in result.err, result
        assert self._files() == before
        assert not list(self.temporary.iterdir())
        return result.err[result.err.index("error: ") :]

    def _files(self) -> dict[Path, tuple[int, int]]:
        facts = {p: p.lstat() for p in self.folder.rglob("*")}
        return {p: (f.st_size, f.st_mtime_ns) for p, f in facts.items()}


@pytest.fixture(scope="session")
def _runtime() -> None:
    native.version()  # in a checkout it may have to be compiled first, which no time limit is for


@pytest.fixture
def cli(
    _runtime: None,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    monkeypatch.chdir(tmp_path)
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return Cli(tmp_path, temporary)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A model of one input x: float32[2,3]."""
    path = tmp_path / "good.onnx"
    onnx.save(good_model(), path)
    return path


@pytest.fixture(scope="session")
def _artifact(_runtime: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    onnx.save(good_model(), folder / "good.onnx")
    assert Cli(folder, folder)("compile", folder / "good.onnx", "-o", folder / "good.tar").code == 0
    return folder / "good.tar"


@pytest.fixture
def artifact(_artifact: Path, tmp_path: Path) -> Path:
    """The model `good`, compiled."""
    path = tmp_path / "good.tar"
    path.write_bytes(_artifact.read_bytes())
    return path


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    """Inputs that fit the model `good`."""
    path = tmp_path / "good.npz"
    np.savez(path, x=np.ones((2, 3), np.float32))
    return path
