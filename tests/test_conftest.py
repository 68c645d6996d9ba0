# SPDX-License-Identifier: Apache-2.0
"""The golden-text fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Golden

pytestmark = pytest.mark.tiny


def test_golden_text_is_written_then_compared(tmp_path: Path) -> None:
    Golden(tmp_path / "golden", update=True).check("a.txt", "one\ntwo")
    golden = Golden(tmp_path / "golden", update=False)
    golden.check("a.txt", "one\ntwo\n")
    with pytest.raises(AssertionError):
        golden.check("a.txt", "one\nthree")


def test_missing_golden_text_fails(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="--update-golden"):
        Golden(tmp_path, update=False).check("a.txt", "text")
