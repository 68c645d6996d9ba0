# SPDX-License-Identifier: Apache-2.0
"""Lines are appended whole, to whole lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.build.appending import append, appending, ended
from treadle.build.json_lines import LONGEST_LINE

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (b"", b""),
        (b"{}\n", b"{}\n"),
        (b'{}\n{"a": 1', b"{}\n"),
        (b'{"a": 1', b""),
        (b"{}\n\0\0\0", b"{}\n"),
        (b'{}\n{"a": 1}', b'{}\n{"a": 1}\n'),
        (b"not of records", b"not of records\n"),
        (b"{" * (LONGEST_LINE + 2), b"{" * (LONGEST_LINE + 2) + b"\n"),
    ],
)
def test_a_torn_line_is_cut_off_and_a_whole_one_ends(
    tmp_path: Path, before: bytes, kept: bytes
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(before)
    with appending(path) as file:
        assert ended(file) == len(kept)
        assert append(file, b"[1]\n") == len(kept) + 4
    assert path.read_bytes() == kept + b"[1]\n"
