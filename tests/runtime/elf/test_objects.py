# SPDX-License-Identifier: Apache-2.0
"""Places of object files that cannot be filled in are refused."""

from __future__ import annotations

import pytest

from tests.runtime.elf.test_relocations import FAR, filled
from treadle.errors import ToolchainError
from treadle.runtime.elf.objects import AARCH64, X86_64
from treadle.runtime.elf.relocations import Place, fill_in


@pytest.mark.parametrize(
    ("machine", "kind", "distance", "why"),
    [
        (X86_64, 2, 1 << 31, "more than a relocation can express"),
        (AARCH64, 283, FAR, "more than a relocation can express"),
        (AARCH64, 274, 1 << 20, "more than a relocation can express"),
        (AARCH64, 275, 1 << 33, "more than a relocation can express"),
        (AARCH64, 283, 6, "between two instructions"),
        (AARCH64, 299, 0x5128, "less aligned"),
        (X86_64, 1, 0, "kind 1 are not supported"),
        (AARCH64, 257, 0, "kind 257 are not supported"),
    ],
)
def test_what_a_place_cannot_hold_is_refused(
    machine: int, kind: int, distance: int, why: str
) -> None:
    with pytest.raises(ToolchainError, match=why):
        filled(machine, kind, 0, distance, 1 << 40)


def test_a_place_past_the_end_is_refused() -> None:
    with pytest.raises(ToolchainError, match="outside of its section"):
        fill_in(X86_64, 2, Place(bytearray(6), 4, 0, 0))
