# SPDX-License-Identifier: Apache-2.0
"""The progress of a compilation: a line for every stage where no terminal is there to draw on."""

from __future__ import annotations

import pytest

from treadle.build.compile import Report
from treadle.cli.progress import shown_progress

pytestmark = pytest.mark.tiny


def test_a_line_for_every_stage_and_for_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    with shown_progress(report):
        report.progress("read")
        report.progress("build", 0, 3)
        report.progress("build", 1, 3)  # within a second of the line before
        report.progress("build", 3, 3)
    assert [line.split() for line in capsys.readouterr().err.splitlines()] == [
        ["read", "..."], ["build", "0/3"], ["build", "3/3"],
    ]  # fmt: skip
