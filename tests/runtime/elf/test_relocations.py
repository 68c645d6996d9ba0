# SPDX-License-Identifier: Apache-2.0
"""Relocations one by one, against the words an assembler writes for the same distances."""

from __future__ import annotations

import pytest

from treadle.runtime.elf.objects import AARCH64, X86_64
from treadle.runtime.elf.relocations import Place, fill_in

FAR = 1 << 27

# machine, kind, what stands there, the distance (or the target, from address 0), what must stand
CASES = [
    (X86_64, 2, 0, -5, 0xFFFFFFFB),
    (X86_64, 4, 0, (1 << 31) - 1, 0x7FFFFFFF),
    (X86_64, 24, 0, -(1 << 40), (1 << 64) - (1 << 40)),
    (AARCH64, 260, 0, -8, (1 << 64) - 8),
    (AARCH64, 261, 0, -8, 0xFFFFFFF8),
    (AARCH64, 274, 0x10000000, 28, 0x100000E0),  # adr x0
    (AARCH64, 274, 0x10000005, -3, 0x30FFFFE5),  # adr x5
    (AARCH64, 273, 0x58000001, 8, 0x58000041),  # ldr x1, a literal
    (AARCH64, 279, 0x36280002, -8, 0x362FFFC2),  # tbz w2, #5
    (AARCH64, 280, 0xB5000003, 16, 0xB5000083),  # cbnz x3
    (AARCH64, 280, 0x54000000, -(1 << 20), 0x54800000),  # b.eq, as far as it goes
    (AARCH64, 282, 0x14000000, 8, 0x14000002),  # b
    (AARCH64, 283, 0x94000000, -FAR, 0x96000000),  # bl, as far as it goes
    (AARCH64, 277, 0x91000000, 0x5123, 0x91048C00),  # add x0, x0
    (AARCH64, 278, 0x39400020, 0x5123, 0x39448C20),  # ldrb w0, [x1]
    (AARCH64, 284, 0x79400020, 0x5122, 0x79424420),  # ldrh w0, [x1]
    (AARCH64, 285, 0xB9400020, 0x5124, 0xB9412420),  # ldr w0, [x1]
    (AARCH64, 286, 0xF9400020, 0x5128, 0xF9409420),  # ldr x0, [x1]
    (AARCH64, 299, 0x3DC00020, 0x5120, 0x3DC04820),  # ldr q0, [x1]
    (AARCH64, 275, 0x90000000, 0x1234, 0xB0000000),  # adrp x0, one page further
    (AARCH64, 276, 0x90000005, -0x3001, 0x90FFFFE5),  # adrp x5, four pages before
]


def filled(machine: int, kind: int, word: int, distance: int, start: int) -> int:
    size = 8 if max(word, abs(distance)) >= 1 << 32 or kind in (24, 260) else 4
    data = bytearray(4) + word.to_bytes(size, "little") + bytearray(4)
    fill_in(machine, kind, Place(data, 4, start, start + distance))
    assert data[:4] == bytes(4) == data[-4:]
    return int.from_bytes(data[4:-4], "little")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("start", [1 << 28, 7 << 32])
def test_the_word_is_the_assemblers(case: tuple[int, int, int, int, int], start: int) -> None:
    machine, kind, word, distance, expected = case
    assert filled(machine, kind, word, distance, start) == expected
