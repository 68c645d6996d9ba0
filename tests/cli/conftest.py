# SPDX-License-Identifier: Apache-2.0
"""A small network, compiled once for all tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.cli.main import main

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="package")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved artifact of the network for one image."""
    path = tmp_path_factory.mktemp("cli") / "digits.tar"
    assert main(["compile", str(DIGITS), "--input-shapes", "image:[1,1,8,8]", "-o", str(path)]) == 0
    return path
