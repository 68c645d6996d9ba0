# SPDX-License-Identifier: Apache-2.0
"""Outputs of a run are written as arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_main import run
from treadle.cli.run import check_format
from treadle.errors import UsageError


def test_the_only_output_is_written_as_an_array(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, artifact: Path
) -> None:
    for name in ("out.npy", "out.npz"):
        run(capsys, "run", artifact, "-o", tmp_path / name)
    with np.load(tmp_path / "out.npz") as outputs:
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), outputs["probabilities"])
    with pytest.raises(UsageError, match=r"one array.*2 outputs"):
        check_format(tmp_path / "out.npy", 2)
